//! Routes of tool calls and of the tool catalogue.

pub(crate) mod batch;
pub(crate) mod explain;
pub(crate) mod text_view;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::tools::{Audience, CatalogueView, ToolInfo};
use engine::{CallError, tools};
use model::{Code, Mount, Refusal, Sha256, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tool_formats::{CatalogueFormat, FunctionForm};

use crate::http::auth::{RunCaller, ToolCaller, ToolUser};
use crate::http::extract::{JsonBytes, Path, Query, json_text};
use crate::http::files::conditional::{etag, matches_etag};
use crate::http::problem::Problem;
use crate::http::tools::text_view::PrefersText;
use crate::service::Service;

/// The route of all tools.
pub(crate) const PATH: &str = "/v1/runs/{run}/tools/{tool}";

/// Which form of the catalogue to return.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct CatalogueQuery {
    /// The form of a tool's declaration: as function-calling interfaces of models take it, as MCP does, or a format that models were
    /// trained on.
    #[serde(default)]
    #[param(inline)]
    format: CatalogueFormat,
    /// `model` leaves out what a model does not decide, and the schemas of the outputs.
    #[serde(default)]
    #[param(inline)]
    audience: Audience,
    /// With `format=openai`: functions without the member `function`, as the Responses API takes them.
    #[serde(default)]
    flat: bool,
    /// With `format=openai`: schemas that the API enforces. Every member is required, and those that were optional may be null. They are
    /// those of `audience=model`.
    #[serde(default)]
    strict: bool,
}

/// The tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolList {
    /// The tools that the caller may use, in the order of the catalogue and in the form of `format`. In a format that models were trained
    /// on: the list that the provider's API takes.
    #[schema(value_type = Vec<ToolInfo>)]
    items: Vec<Value>,
    /// The mounts of the token's run, for `mount` of the reading tools; missing if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    mounts: Vec<Mount>,
}

/// List the tools
///
/// With name, description and JSON Schemas, as a function-calling model needs them. With a run token, only the tools that its
/// permissions and the run's policy allow, and the run's mounts.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", operation_id = "listTools",
    params(CatalogueQuery, ("If-None-Match" = Option<String>, Header, description = "The `ETag` of an earlier answer.")),
    responses(
        (status = 200, description = "The tools.", body = ToolList,
            headers(("ETag" = String, description = "Changes with the answer."))),
        (status = 304, description = "The answer is the one that `If-None-Match` names."),
    ),
)]
pub(crate) async fn list_tools(
    State(service): State<Service>,
    user: ToolUser,
    Query((query,)): Query<(CatalogueQuery,)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let run = match &user.run {
        Some(run) => Some(service.runs.run(run).await?),
        None => None,
    };
    let mounts = run.as_ref().map_or_else(Vec::new, |run| run.mounts.clone());
    let CatalogueQuery { format, audience, flat, strict } = query;
    if (flat || strict) && !matches!(format, CatalogueFormat::Openai) {
        return Err(Refusal::invalid("`flat` and `strict` are for `format=openai`", "Leave them out.").into());
    }
    let view = CatalogueView {
        audience: if strict { Audience::Model } else { audience },
        permissions: &user.permissions,
        policy: run.as_ref().map(|run| &run.policy),
        has_mounts: !mounts.is_empty(),
        has_runner: user.run.as_ref().is_some_and(|run| service.calls.has_runner(run)),
    };
    let list = ToolList { items: format.items(&view, FunctionForm { flat, strict }), mounts };
    let body = serde_json::to_vec(&list).map_err(|error| Problem::from(CallError::Internal(Box::new(error))))?;
    let etag = etag(&Sha256::of(&body));
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| matches_etag(known, &etag));
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { json_text(Bytes::from(body)).into_response() };
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

/// Calls one tool, and answers in the form that `Accept` prefers. The API document has a path for each tool.
pub(crate) async fn call_tool(
    State(service): State<Service>,
    ToolCaller(RunCaller { run, caller, .. }): ToolCaller,
    Path((_, tool)): Path<(String, String)>,
    Query(()): Query<()>,
    PrefersText(prefers_text): PrefersText,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let tool = tools::find(&tool).ok_or_else(tool_not_found)?;
    let answer = if prefers_text {
        let members = json::parse_object(&body);
        drop(body);
        service.calls.call_members_as_text(&run, caller, tool, members).await.map(text_view::answer)
    } else {
        service
            .calls
            .call_tool(&run, caller, tool, body)
            .await
            .map(|answer| json_text(answer.to_json()).into_response())
    };
    answer.map_err(|failed| Problem::from(failed.error).of_call(failed.tool_call_id))
}

/// Refuses a tool that does not exist.
pub(crate) fn tool_not_found() -> Refusal {
    Refusal::new(Code::ToolNotFound, "no such tool", "GET /v1/tools lists every tool.")
}
