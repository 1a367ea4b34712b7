//! What differs from what a run's ledger says.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use model::RunId;

use crate::http::auth::RunCaller;
use crate::http::extract::Query;
use crate::http::problem::Problem;
use crate::service::Service;
use crate::tools::tree::DriftReport;

/// Tells what differs from what the ledger says.
///
/// What no call of the run has done: every file is compared with the last version that the run's audit tells of it, and
/// with the base where it tells of none. Needs the permission `file:diff`, and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/drift", tag = "files", operation_id = "getDrift", params(("run" = RunId, Path)),
    responses((status = 200, description = "What differs; nothing where all is as it should be.", body = DriftReport)),
)]
pub(super) async fn get_drift(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let drift = service.drift(&run, caller).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], drift).into_response())
}
