//! The operator plane's calls on runs.

use axum::extract::State;
use axum::http::StatusCode;
use model::{Run, RunId};

use crate::http::auth::{Auditor, Operator};
use crate::http::extract::{Json, Path};
use crate::http::problem::Problem;
use crate::runs::{CreatedRun, NewRun};
use crate::service::Service;

/// Creates a run.
///
/// All or nothing: a source that is refused or breaks off leaves no run. While its source comes in the run is listed as
/// `preparing`, with what is there so far. The token is shown this once.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "createRun", request_body = NewRun,
    responses((status = 201, description = "The run and its first token.", body = CreatedRun)),
)]
pub(super) async fn create_run(
    State(service): State<Service>,
    _operator: Operator,
    Json(request): Json<NewRun>,
) -> Result<(StatusCode, axum::Json<CreatedRun>), Problem> {
    let created = service.create_run(request).await?;
    Ok((StatusCode::CREATED, axum::Json(created)))
}

/// Tells of a run.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", operation_id = "getRun", params(("run" = RunId, Path)),
    responses((status = 200, description = "The run.", body = Run)),
)]
pub(super) async fn get_run(
    State(service): State<Service>,
    _auditor: Auditor,
    Path(run): Path<RunId>,
) -> Result<axum::Json<Run>, Problem> {
    Ok(axum::Json(service.run(&run).await?))
}
