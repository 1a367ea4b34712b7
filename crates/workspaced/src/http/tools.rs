//! Tool calls and their catalogue.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::{Code, Mount, Refusal};
use serde::Serialize;

use crate::http::auth::{RunCaller, ToolUser};
use crate::http::extract::{Json, JsonBytes, Path, Query};
use crate::http::problem::Problem;
use crate::service::Service;
use crate::tools::{self, CATALOGUE, ToolInfo};

/// Every tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolList {
    /// The tools, in the order of the catalogue.
    items: &'static [ToolInfo],
    /// The read-only trees of the token's run, which reading tools take as `mount`; missing where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    mounts: Vec<Mount>,
}

/// Lists the tools.
///
/// With name, description and JSON Schemas: what a function-calling model needs. A run's token is told the run's mounts too.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", operation_id = "listTools",
    responses((status = 200, description = "Every tool.", body = ToolList)),
)]
pub(super) async fn list_tools(
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

/// Carries out one tool call. Each tool is documented as a path of its own.
pub(super) async fn call_tool(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path((_, tool)): Path<(String, String)>,
    Query(()): Query<()>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let tool = tools::find(&tool).ok_or_else(tool_not_found)?;
    match service.call_tool(&run, caller, tool, body).await {
        Ok(answer) => Ok(([(header::CONTENT_TYPE, "application/json")], answer.body).into_response()),
        Err(failed) => Err(Problem::from(failed.error).of_call(failed.tool_call_id)),
    }
}

pub(super) fn tool_not_found() -> Refusal {
    Refusal::new(Code::ToolNotFound, "there is no such tool", "GET /v1/tools lists every tool.")
}
