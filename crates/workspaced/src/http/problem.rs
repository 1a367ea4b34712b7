//! Error responses as `application/problem+json`, and the only table of status codes.

pub(crate) mod pages;

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::calls::RecordedError;
use engine::{CallError, RequestIds};
use model::{Code, ProblemDetails, Refusal, RefusalReader, ToolCallId, hint_for};
use serde::Serialize;
use serde_json::Value;

use crate::http::conventions::request_ids;

/// What a refused token is answered with (RFC 6750).
pub(crate) const CHALLENGE: &str = r#"Bearer realm="workspaced", error="invalid_token""#;

/// The media type of error responses.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An error response: a problem document as of RFC 9457, with the members that every refusal has.
#[derive(Debug)]
pub(crate) struct Problem {
    refusal: Box<Refusal>,
    status: StatusCode,
    tool_call_id: Option<ToolCallId>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    /// Whether another node owns the run.
    has_moved: bool,
}

/// An error response.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// The URL path, at this service, of a page that explains the code.
    #[serde(rename = "type")]
    #[schema(value_type = String, format = "uri-reference", example = "/problems/RUN_NOT_FOUND")]
    problem_type: String,
    /// The code as words.
    #[schema(value_type = String, example = "Run not found")]
    title: String,
    /// The HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// Always false.
    #[schema(example = false)]
    ok: bool,
    /// What programs should match on.
    code: Code,
    /// What is wrong, in one sentence.
    #[schema(example = "the run does not exist")]
    detail: &'a str,
    /// The request, as `urn:workspaced:request:{requestId}`, for the operator of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "uri", example = "urn:workspaced:request:019ab2c4-5e7f-7a31-8c2d-4b6f8e0a1c3d")]
    instance: Option<String>,
    /// The same as `detail`.
    #[schema(example = "the run does not exist")]
    message: &'a str,
    /// What to do next, in one sentence.
    #[schema(example = "List the runs with GET /v1/runs.")]
    hint: &'a str,
    /// The tool call, if the request was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a ToolCallId>,
    #[serde(flatten)]
    details: &'a ProblemDetails,
}

impl Problem {
    /// Adds the ID of the tool call.
    #[must_use]
    pub(crate) fn of_call(mut self, id: ToolCallId) -> Self {
        self.tool_call_id = Some(id);
        self
    }

    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the refusal.
    pub(crate) fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Returns the body as a JSON value for the Model Context Protocol, where a hint names tools instead of routes.
    pub(crate) fn document(&self) -> Value {
        // The text is JSON by construction.
        let mut document: Value = serde_json::from_str(&self.text().0).unwrap_or_default();
        document["hint"] = hint_for(&self.refusal.hint, RefusalReader::Model).into();
        document
    }

    /// Replaces the status, for requests to which HTTP assigns another one.
    #[must_use]
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The token is missing or not valid.
    pub(crate) fn unauthenticated() -> Self {
        Self::from(Refusal::new(
            Code::Unauthenticated,
            "missing or invalid token",
            "Send `Authorization: Bearer TOKEN` with a token that exists, has not expired and is not revoked.",
        ))
    }

    /// The token does not permit the request. The text is always the same, so that it reveals nothing about other runs.
    pub(crate) fn forbidden() -> Self {
        Self::from(Refusal::new(
            Code::Forbidden,
            "the token does not permit this request",
            "Use a token of this run with the required permission, or an operator token.",
        ))
    }

    /// The service failed. The cause is in its log.
    pub(crate) fn internal() -> Self {
        Self::from(Refusal::new(
            Code::Internal,
            "internal error; see the service's log",
            "Repeat the same request; if it fails again, report it to the operator of the service.",
        ))
    }

    /// No route has this path.
    pub(crate) fn no_route() -> Self {
        let hint = "GET /openapi.json lists every path.";
        Self::from(Refusal::new(Code::NotFound, "no such path", hint))
    }

    /// The path does not have this method. HTTP requires status 405, which has no code of its own.
    pub(crate) fn no_method() -> Self {
        let hint = "The header `Allow` lists the methods of this path.";
        let problem = Self::from(Refusal::invalid("the path does not support this method", hint));
        problem.with_status(StatusCode::METHOD_NOT_ALLOWED)
    }

    /// The body is encoded. HTTP requires status 415, which has no code of its own.
    pub(crate) fn unsupported_encoding(encoding: &str) -> Self {
        let message = format!("unsupported Content-Encoding `{encoding}`");
        let hint = "Send the body unencoded, without the header; an archive may still be a tar.gz.";
        let problem = Self::from(Refusal::invalid(message, hint)).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        problem.with_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
    }

    /// The body has more than `limit` bytes.
    pub(crate) fn body_too_large(limit: u64) -> Self {
        Self::from(body_too_large(limit)).with_header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// Returns the body and its media type. Within a request, the body names it.
    pub(crate) fn text(&self) -> (String, &'static str) {
        let body = ProblemBody {
            problem_type: format!("/problems/{}", self.refusal.code),
            title: title(self.refusal.code),
            status: self.status.as_u16(),
            ok: false,
            code: self.refusal.code,
            detail: &self.refusal.message,
            instance: request_ids::instance(),
            message: &self.refusal.message,
            hint: &self.refusal.hint,
            tool_call_id: self.tool_call_id.as_ref(),
            details: &self.refusal.details,
        };
        // A call that requires approval is not an error, although its response has the same members.
        let media_type = if self.status.is_success() { "application/json" } else { PROBLEM_JSON };
        // Strings, numbers and lists always serialise.
        (serde_json::to_string(&body).unwrap_or_default(), media_type)
    }
}

/// Refuses a body of more than `limit` bytes.
pub(crate) fn body_too_large(limit: u64) -> Refusal {
    Refusal::new(Code::BodyTooLarge, format!("the body is larger than {limit} bytes"), "Send less data per request.")
        .with_details(|details| details.limit = Some(limit))
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        // A recorded refusal is redacted already; one that is not recorded is redacted here.
        Self {
            status: status(refusal.code),
            refusal: Box::new(refusal.redacted()),
            tool_call_id: None,
            headers: Vec::new(),
            has_moved: false,
        }
    }
}

impl From<RecordedError> for Problem {
    fn from(error: RecordedError) -> Self {
        CallError::from(error).into()
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => refusal.into(),
            CallError::Moved(_) => Self { has_moved: true, ..CallError::not_routed().into() },
            CallError::Internal(cause) => {
                tracing::error!(error = &*cause as &(dyn std::error::Error + 'static), "internal error");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (text, media_type) = self.text();
        let mut response = (self.status, [(header::CONTENT_TYPE, media_type)], text).into_response();
        if let Some(seconds) = retry_after(self.status, &self.refusal.details) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        response.headers_mut().extend(self.headers);
        if self.has_moved {
            response.extensions_mut().insert(RunHasMoved);
        }
        // A caller of a tool may prefer text.
        response.extensions_mut().insert(Refused(Arc::new((*self.refusal, self.tool_call_id))));
        response
    }
}

/// The refusal and the call that a response was made from; in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) Arc<(Refusal, Option<ToolCallId>)>);

/// Another node owns the run of the request, of which nothing was done; in the extensions of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunHasMoved;

/// The request of examples.
const EXAMPLE_ID: &str = "019ab2c4-5e7f-7a31-8c2d-4b6f8e0a1c3d";

/// Returns an example of a response with `code`, for the API document.
pub(crate) fn example_of(code: &str) -> serde_json::Value {
    let code: Code = serde_json::from_value(serde_json::Value::from(code)).unwrap_or(Code::Internal);
    let refusal = Refusal::new(code, "what is wrong, in one sentence", "what to do next, in one sentence");
    let ids = RequestIds { request_id: EXAMPLE_ID.to_owned(), trace_id: None };
    let (text, _) = request_ids::sync_scope(ids.into(), || Problem::from(refusal).text());
    serde_json::from_str(&text).unwrap_or_default()
}

fn retry_after(status: StatusCode, details: &ProblemDetails) -> Option<u64> {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(details.retry_after_seconds.unwrap_or(1)),
        StatusCode::SERVICE_UNAVAILABLE => Some(details.retry_after_seconds.unwrap_or(5)),
        _ => None,
    }
}

/// Returns the code as words: `RUN_NOT_FOUND` → `Run not found`.
pub(crate) fn title(code: Code) -> String {
    let mut words = code.as_str().replace('_', " ").to_lowercase();
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

/// Returns the status of a code.
pub(crate) fn status(code: Code) -> StatusCode {
    match code {
        Code::ApprovalRequired => StatusCode::ACCEPTED,
        Code::InvalidRequest | Code::PathRejected | Code::PatchInvalid | Code::NotAFile | Code::NotADirectory => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden | Code::PolicyDenied | Code::PolicyDeniedSecret => StatusCode::FORBIDDEN,
        Code::NotFound | Code::RunNotFound | Code::ToolNotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists
        | Code::WriteConflict
        | Code::PatchConflict
        | Code::BaseCommitMismatch
        | Code::EditNotFound
        | Code::EditNotUnique
        | Code::ToolCallIdReused
        | Code::IdempotencyKeyReused
        | Code::RunClosed
        | Code::RevertConflict
        | Code::ChangedOutside => StatusCode::CONFLICT,
        Code::FileTooLarge | Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedBinary => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::BatchNotDone => StatusCode::FAILED_DEPENDENCY,
        Code::PatchBudgetExceeded => StatusCode::UNPROCESSABLE_ENTITY,
        Code::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        Code::Unavailable | Code::RunNeedsRepair => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_run_that_has_moved_is_to_be_retried() {
        let moved = CallError::Moved(model::RunId::parse("r1").unwrap());
        let response = Problem::from(moved).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let (refusal, _) = &*response.extensions().get::<Refused>().unwrap().0;
        assert_eq!(refusal.code, Code::Unavailable);
    }
}
