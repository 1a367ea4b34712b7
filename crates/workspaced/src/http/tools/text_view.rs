//! The model's view of tool calls: `text/plain`, for callers that prefer it to JSON.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use engine::calls::TextAnswer;
use engine::tools::refusal_text;
use model::{Sha256, ToolCallId};

use crate::http::conventions::accept;
use crate::http::problem::Refused;
use crate::service::Service;

/// The media type of the model's view.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// The ID of the call.
pub(crate) const CALL: HeaderName = HeaderName::from_static("workspaced-call");
/// The number of the call's record.
pub(crate) const SEQ: HeaderName = HeaderName::from_static("workspaced-seq");
/// The hash of the file, in answers about a single one.
pub(crate) const SHA256: HeaderName = HeaderName::from_static("workspaced-sha256");

/// Whether the caller prefers the model's view to JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefersText(pub(crate) bool);

impl FromRequestParts<Service> for PrefersText {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _service: &Service) -> Result<Self, Self::Rejection> {
        Ok(Self(prefers_text(&parts.headers)))
    }
}

/// Returns the response of a successful call.
pub(crate) fn answer(answer: TextAnswer) -> Response {
    let TextAnswer { text, answer } = answer;
    let mut response = text.into_response();
    let seq = answer.head.map(|head| head.seq);
    set_headers(response.headers_mut(), Some(&answer.tool_call_id), seq, answer.output.sha256());
    response
}

/// Replaces the problem document of a refusal by its text. Other responses stay as they are.
pub(crate) fn refusal(mut response: Response) -> Response {
    let Some(Refused(refused)) = response.extensions_mut().remove::<Refused>() else { return response };
    let (refusal, tool_call_id) = &*refused;
    *response.body_mut() = Body::from(refusal_text(refusal));
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    set_headers(headers, tool_call_id.as_ref(), refusal.details.seq, refusal.details.current_sha256);
    response
}

fn set_headers(headers: &mut HeaderMap, id: Option<&ToolCallId>, seq: Option<u64>, sha256: Option<Sha256>) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    // An ID has no control characters, so that it can be a header's value.
    headers.extend(id.and_then(|id| HeaderValue::from_bytes(id.as_str().as_bytes()).ok()).map(|id| (CALL, id)));
    headers.extend(seq.map(|seq| (SEQ, HeaderValue::from(seq))));
    let sha256 = sha256.and_then(|sha256| HeaderValue::from_str(&sha256.to_string()).ok());
    headers.extend(sha256.map(|sha256| (SHA256, sha256)));
}

/// Whether `Accept` prefers the model's view to JSON.
pub(crate) fn prefers_text(headers: &HeaderMap) -> bool {
    accept::prefers(headers, "text/plain", accept::JSON)
}
