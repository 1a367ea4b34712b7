//! Calls of tools in the forms that models were trained on: the provider's input in, what goes back to the model out.

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use engine::tools::refusal_text;
use model::{Code, Refusal, RunId, excerpt, json};
use serde::{Deserialize, Deserializer};
use tool_formats::{FORMATS, FormatCall, FormatRefusal, FormatTool, ToolFormat};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use crate::http::auth::RunCaller;
use crate::http::extract::{JsonBytes, Query};
use crate::http::files::call_options;
use crate::http::problem::{Problem, ProblemBody};
use crate::http::tools::text_view;
use crate::service::Service;

/// The route of all formats.
pub(crate) const PATH: &str = "/v1/runs/{run}/formats/{format}/{tool}";

/// The name of a format in a query.
#[derive(Clone, Copy)]
pub(crate) struct FormatName(pub(crate) &'static ToolFormat);

impl std::fmt::Debug for FormatName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl<'de> Deserialize<'de> for FormatName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        ToolFormat::find(&name).map(Self).ok_or_else(|| {
            let (name, names) = (excerpt(&name, 60), ToolFormat::names());
            serde::de::Error::custom(format_args!("there is no format `{name}`; there are {names}"))
        })
    }
}

impl utoipa::PartialSchema for FormatName {
    fn schema() -> RefOr<Schema> {
        let names = FORMATS.iter().map(|format| format.name.as_str());
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

impl utoipa::ToSchema for FormatName {}

/// A caller of the tool of a format in the path, on the run in the path.
pub(crate) struct FormatCaller {
    caller: RunCaller,
    format: &'static ToolFormat,
    tool: &'static FormatTool,
}

impl FromRequestParts<Service> for FormatCaller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Response> {
        let caller =
            RunCaller::from_request_parts(parts, service).await.map_err(axum::response::IntoResponse::into_response)?;
        let members = RawPathParams::from_request_parts(parts, service).await;
        let member = |wanted: &str| {
            let found = members.as_ref().ok().and_then(|members| members.iter().find(|(name, _)| *name == wanted));
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let problem = |refusal: Refusal| Problem::from(refusal).into_response();
        let format = find(&member("format")).map_err(problem)?;
        let name = member("tool");
        let tool = format.tool(&name).ok_or_else(|| {
            let message = format!("the format `{}` has no tool `{}`", format.name, excerpt(&name, 60));
            problem(Refusal::new(Code::ToolNotFound, message, format!("Its tools are {}.", format.tool_names())))
        })?;
        // Before the body is read, which takes memory. A model reads the refusal as that of any other call.
        match tool_formats::check_permitted(&service.calls, &caller.run, &caller.caller, format, tool).await {
            Ok(()) => Ok(Self { caller, format, tool }),
            Err(failed) => {
                let problem = Problem::from(failed.error).of_call(failed.tool_call_id);
                let text = refusal_text(problem.refusal());
                let mut response = problem.into_response();
                let body = FormatBody(HeaderValue::from_static(text_view::TEXT), text);
                response.extensions_mut().extend(with_body(body));
                Err(response)
            }
        }
    }
}

/// Returns the format with `name`.
///
/// # Errors
///
/// `INVALID_REQUEST`, which names all.
fn find(name: &str) -> Result<&'static ToolFormat, Refusal> {
    ToolFormat::find(name).ok_or_else(|| {
        let message = format!("there is no format `{}`", excerpt(name, 60));
        Refusal::invalid(message, format!("The formats are {}.", ToolFormat::names()))
    })
}

/// The text of a refusal for a model, instead of a problem document.
#[derive(Clone)]
struct FormatBody(HeaderValue, String);

/// Call a tool in a form that a model was trained on
///
/// Takes the input as the provider's API gives it, and answers what goes back to the model, also for a refusal: text, or for
/// `openai-apply-patch` the item `apply_patch_call_output`. The call becomes one of the tools of the catalogue, and is judged, limited and
/// recorded as such; its record has `format`. Absolute paths are under `/workspace`. A change expects the version of a file that the
/// token has seen.
#[utoipa::path(
    post, path = "/v1/runs/{run}/formats/{format}/{tool}", tag = "tools", operation_id = "callInFormat",
    params(
        ("run" = RunId, Path),
        ("format" = inline(FormatName), Path, description = "The format."),
        ("tool" = String, Path, description = "The tool, by its name in the format."),
        ("X-Reason" = Option<String>, Header, description = "The reason of a change, for forms that have none: 1 to 2,000 characters in UTF-8, or `utf-8''` and percent-encoded UTF-8 (RFC 8187)."),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "The ID of the call.")
    ),
    request_body(content = serde_json::Value, description = "The input: mostly an object, or the text of a tool that takes text."),
    responses(
        (status = 200, description = "What goes back to the model.", content(
            (String = "text/plain"),
            (serde_json::Value = "application/json"),
        )),
        (status = 202, description = "The call waits for an approval.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The call exceeds a budget of the run's policy.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 507, description = "The request would exceed a quota of the run or of the service.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn call_in_format(
    State(service): State<Service>,
    FormatCaller { caller, format, tool }: FormatCaller,
    Query(()): Query<()>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let options = call_options(&headers);
    let input = json::parse(&body);
    drop(body);
    // The ID by which the provider knows the call.
    let call_id = input.as_ref().ok().and_then(|input| input["call_id"].as_str()).map(str::to_owned);
    let input = options.refusal.map_or(input, Err);
    let call = FormatCall { format, tool, input, reason: options.reason, tool_call_id: options.tool_call_id };
    let RunCaller { run, caller, .. } = caller;
    match tool_formats::call(&service.calls, &run, caller, call).await {
        Ok(mut answer) => {
            let call_id = call_id.unwrap_or_else(|| answer.answer.tool_call_id.to_string());
            let item = tool.item(&call_id, true, &answer.text).map(|item| item.to_string());
            let is_item = item.is_some();
            answer.text = item.unwrap_or(answer.text);
            let mut response = text_view::answer(answer);
            if is_item {
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            }
            Ok(response)
        }
        Err(FormatRefusal { failed, text }) => {
            let call_id = call_id.unwrap_or_else(|| failed.tool_call_id.to_string());
            let body = match tool.item(&call_id, false, &text) {
                _ if text.is_empty() => None,
                Some(item) => Some(FormatBody(HeaderValue::from_static(JSON), item.to_string())),
                None => Some(FormatBody(HeaderValue::from_static(text_view::TEXT), text)),
            };
            let mut response = Problem::from(failed.error).of_call(failed.tool_call_id).into_response();
            response.extensions_mut().extend(body.map(with_body).unwrap_or_default());
            Ok(response)
        }
    }
}

/// The media type of items.
const JSON: &str = "application/json";

fn with_body(body: FormatBody) -> axum::http::Extensions {
    let mut extensions = axum::http::Extensions::new();
    extensions.insert(body);
    extensions
}

/// Replaces the problem document of a refusal by what the model is told. Refusals before the call stay as they are, unless the caller
/// prefers text.
pub(crate) fn refusal(mut response: Response, prefers_text: bool) -> Response {
    let Some(FormatBody(media_type, body)) = response.extensions_mut().remove::<FormatBody>() else {
        return if prefers_text { text_view::refusal(response) } else { response };
    };
    let mut response = text_view::refusal(response);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media_type);
    *response.body_mut() = Body::from(body);
    response
}
