//! Routes of tool calls and of the tool catalogue.

pub(crate) mod batch;
pub(crate) mod explain;

use axum::extract::State;
use axum::response::IntoResponse;
use model::{Code, Mount, Refusal};
use serde::Serialize;

use crate::http::auth::{RunCaller, ToolUser};
use crate::http::extract::{Json, JsonBytes, Path, Query, json_text};
use crate::http::problem::Problem;
use crate::service::Service;
use engine::tools::{self, CATALOGUE, ToolInfo};

/// The route of all tools.
pub(crate) const PATH: &str = "/v1/runs/{run}/tools/{tool}";

/// The tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolList {
    /// The tools, in the order of the catalogue.
    items: &'static [ToolInfo],
    /// The mounts of the token's run, for `mount` of the reading tools; missing if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    mounts: Vec<Mount>,
}

/// List the tools
///
/// With name, description and JSON Schemas, as a function-calling model needs them. With a run token, also the run's mounts.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", operation_id = "listTools",
    responses((status = 200, description = "The tools.", body = ToolList)),
)]
pub(crate) async fn list_tools(
    State(service): State<Service>,
    user: ToolUser,
    Query(()): Query<()>,
) -> Result<Json<ToolList>, Problem> {
    let mounts = match &user.run {
        Some(run) => service.run(run).await?.mounts,
        None => Vec::new(),
    };
    Ok(Json(ToolList { items: CATALOGUE.as_slice(), mounts }))
}

/// Calls one tool. The API document has a path for each tool.
pub(crate) async fn call_tool(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path((_, tool)): Path<(String, String)>,
    Query(()): Query<()>,
    JsonBytes(body): JsonBytes,
) -> Result<impl IntoResponse, Problem> {
    let tool = tools::find(&tool).ok_or_else(tool_not_found)?;
    match service.call_tool(&run, caller, tool, body).await {
        Ok(answer) => Ok(json_text(answer.body)),
        Err(failed) => Err(Problem::from(failed.error).of_call(failed.tool_call_id)),
    }
}

/// Refuses a tool that does not exist.
pub(crate) fn tool_not_found() -> Refusal {
    Refusal::new(Code::ToolNotFound, "no such tool", "GET /v1/tools lists every tool.")
}
