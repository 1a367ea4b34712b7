//! Routes of what a reviewer has viewed.

use axum::extract::State;
use axum::http::StatusCode;
use engine::runs::{ViewedFiles, ViewedRequest};
use model::RunId;

use crate::http::auth::{Decider, Reviewer};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// List the files that the operator has viewed
///
/// Each operator has marks of its own, and the version of a file to which a mark belongs: a file with another version has to be viewed
/// again. An operator has at most 5,000 marks in all runs; older ones go. Those of a deleted run go with it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/viewed", tag = "runs", operation_id = "listViewed", params(("run" = RunId, Path)),
    responses((status = 200, description = "The marks.", body = ViewedFiles)),
)]
pub(crate) async fn list_viewed(
    State(service): State<Service>,
    reviewer: Reviewer,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<ViewedFiles>, Problem> {
    Ok(Json(service.runs.viewed_files(&run, &reviewer.operator).await?))
}

/// Mark a file as viewed, or not
///
/// The mark is the operator's own. It decides nothing, and is no record of the run's chain.
#[utoipa::path(
    put, path = "/v1/runs/{run}/viewed", tag = "runs", operation_id = "setViewed", params(("run" = RunId, Path)),
    request_body = ViewedRequest,
    responses((status = 204, description = "The mark is set, or removed.")),
)]
pub(crate) async fn set_viewed(
    State(service): State<Service>,
    reviewer: Decider,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<ViewedRequest>,
) -> Result<StatusCode, Problem> {
    service.runs.set_viewed(&run, &reviewer.operator, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
