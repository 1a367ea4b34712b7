//! The route that tells what policy would decide.

use axum::extract::State;
use model::RunId;

use crate::explain::{PolicyExplanation, PolicyQuery};
use crate::http::auth::RunCaller;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Tells what policy would decide.
///
/// Over a path or a patch, for reading and for changing, and which rules decide. Nothing is changed and nothing recorded.
/// A caller without `file:read` is answered from paths, kinds and policy alone: not whether the patch fits the files.
#[utoipa::path(
    post, path = "/v1/runs/{run}/policy/explain", tag = "tools", operation_id = "explainPolicy",
    params(("run" = RunId, Path)), request_body = PolicyQuery,
    responses((status = 200, description = "What would be decided.", body = PolicyExplanation)),
)]
pub(super) async fn explain_policy(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    Json(question): Json<PolicyQuery>,
) -> Result<Json<PolicyExplanation>, Problem> {
    Ok(Json(service.explain(&run, caller, question).await?))
}
