//! Routes of runs and their tokens.

pub(crate) mod archive;
pub(crate) mod exports;

use axum::extract::State;
use axum::http::StatusCode;
use model::{Run, RunId, RunState, TokenId};
use serde::Deserialize;

use crate::http::auth::{Auditor, Operator};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;
use engine::admission::tokens::{IssueTokenRequest, IssuedToken};
use engine::page::{List, Page, Paging};
use engine::runs::{CreateRunRequest, CreatedRun};

/// Filters of the list of runs.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StateFilter {
    /// Only runs in this state.
    state: Option<RunState>,
}

/// Create a run
///
/// The response is sent once the run is `open`; until then lists show it as `preparing`, with the progress of its import.
/// If the import fails there is no run. A run with an `archive` source is returned at once and stays `preparing` until the
/// archive is uploaded. The token's secret is returned only here.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "createRun", request_body = CreateRunRequest,
    responses(
        (status = 201, description = "The run and its first token.", body = CreatedRun),
        (status = 409, description = "`ALREADY_EXISTS`: a run with this ID exists.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_run(
    State(service): State<Service>,
    _operator: Operator,
    Query(()): Query<()>,
    Json(request): Json<CreateRunRequest>,
) -> Result<(StatusCode, Json<CreatedRun>), Problem> {
    let created = service.create_run(request).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// List runs
///
/// In order of creation. Runs that are being imported come last.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns", params(StateFilter, Paging),
    responses((status = 200, description = "One page of runs.", body = Page<Run>)),
)]
pub(crate) async fn list_runs(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((filter, paging)): Query<(StateFilter, Paging)>,
) -> Result<Json<Page<Run>>, Problem> {
    let (limit, after) = paging.check(List::Runs)?;
    Ok(Json(service.runs(filter.state, after, limit).await?))
}

/// Get a run
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", operation_id = "getRun", params(("run" = RunId, Path)),
    responses((status = 200, description = "The run.", body = Run)),
)]
pub(crate) async fn get_run(
    State(service): State<Service>,
    _auditor: Auditor,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.run(&run).await?))
}

/// Close a run
///
/// After the response no mutation is recorded or applied and no call is approved, including calls in progress. Reads
/// continue to work. Calls that wait for an approval fail. Closing a closed run succeeds.
#[utoipa::path(
    post, path = "/v1/runs/{run}/close", tag = "runs", operation_id = "closeRun", params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted, or still being imported.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn close_run(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.close_run(&run).await?))
}

/// Delete a run's files
///
/// Recorded mutations finish first; later ones, and calls that wait for an approval, fail. The run remains in the state
/// `deleted`, with its audit and artifacts. Deleting a deleted run succeeds.
#[utoipa::path(
    delete, path = "/v1/runs/{run}", tag = "runs", operation_id = "deleteRun", params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run is still being imported.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn delete_run(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.delete_run(&run).await?))
}

/// Issue a token for a run
///
/// The secret is returned only here.
#[utoipa::path(
    post, path = "/v1/runs/{run}/tokens", tag = "runs", operation_id = "issueToken", params(("run" = RunId, Path)),
    request_body = IssueTokenRequest,
    responses(
        (status = 201, description = "The token with its secret.", body = IssuedToken),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted, or still being imported.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn issue_token(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<IssueTokenRequest>,
) -> Result<(StatusCode, Json<IssuedToken>), Problem> {
    let issued = service.issue_token(&run, request).await?;
    Ok((StatusCode::CREATED, Json(issued)))
}

/// Revoke a token
///
/// After the response the token is refused, including for calls in progress that are not recorded yet; its streams and
/// downloads end. Revoking a revoked token succeeds.
#[utoipa::path(
    delete, path = "/v1/runs/{run}/tokens/{tokenId}", tag = "runs", operation_id = "revokeToken",
    params(("run" = RunId, Path), ("tokenId" = TokenId, Path)),
    responses((status = 204, description = "The token is revoked.")),
)]
pub(crate) async fn revoke_token(
    State(service): State<Service>,
    _operator: Operator,
    Path((run, token)): Path<(RunId, TokenId)>,
    Query(()): Query<()>,
) -> Result<StatusCode, Problem> {
    service.revoke_token(&run, &token).await?;
    Ok(StatusCode::NO_CONTENT)
}
