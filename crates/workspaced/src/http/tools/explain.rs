//! The route that explains policy decisions.

use axum::extract::{FromRequest as _, Request, State};
use engine::calls::Calls;
use engine::calls::{PolicyExplanation, PolicyQuery};
use model::RunId;

use crate::http::auth::RunCaller;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Explain what policy would decide
///
/// For a path, a patch or a command: the decisions, and the rules that make them. Changes nothing. For a
/// caller without `file:read` only paths, kinds and policy are considered, not whether the patch applies. For others the answer
/// about a patch depends on the content of files, and is recorded with the tool `policy.explain`.
#[utoipa::path(
    post, path = "/v1/runs/{run}/policy/explain", tag = "tools", operation_id = "explainPolicy",
    params(("run" = RunId, Path)), request_body = PolicyQuery,
    responses((status = 200, description = "The decisions.", body = PolicyExplanation)),
)]
pub(crate) async fn explain_policy(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    request: Request,
) -> Result<Json<PolicyExplanation>, Problem> {
    Calls::check_may_explain(&caller)?;
    let Json(query) = Json::<PolicyQuery>::from_request(request, &service).await?;
    Ok(Json(service.calls.explain(&run, caller, query).await?))
}
