//! The route of a run's drift: files that differ from its ledger.

use axum::extract::State;
use axum::response::IntoResponse;
use model::RunId;

use crate::http::auth::RunCaller;
use crate::http::extract::{Query, json_text};
use crate::http::problem::Problem;
use crate::service::Service;
use engine::tools::drift::DriftReport;

/// List files that differ from the ledger
///
/// Finds changes that no call of the run made: compares every file with its last version in the run's audit, or with the base
/// if the audit has none. Requires the permission `file:diff`; the call is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/drift", tag = "files", operation_id = "getDrift", params(("run" = RunId, Path)),
    responses((status = 200, description = "The files that differ; none if the tree is intact.", body = DriftReport)),
)]
pub(crate) async fn get_drift(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<impl IntoResponse, Problem> {
    Ok(json_text(service.drift(&run, caller).await?))
}
