//! The operator plane's calls on runs and their tokens.

use axum::extract::State;
use axum::http::StatusCode;
use model::{Run, RunId, RunState, TokenId};
use serde::Deserialize;

use crate::http::auth::{Auditor, Operator};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::page::{List, Page, Paging};
use crate::runs::{CreateRunRequest, CreatedRun};
use crate::service::Service;
use crate::tokens::{IssueTokenRequest, IssuedToken};

/// Which runs to list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(super) struct StateFilter {
    /// Only runs in this state.
    state: Option<RunState>,
}

/// Creates a run.
///
/// All or nothing: a source that is refused or breaks off leaves no run. While its source comes in the run is listed as
/// `preparing`, with what is there so far; the answer comes when it is `open`. A run from an `archive` is answered at
/// once and stays `preparing` until the archive is sent. The token is shown this once.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "createRun", request_body = CreateRunRequest,
    responses(
        (status = 201, description = "The run and its first token.", body = CreatedRun),
        (status = 409, description = "`ALREADY_EXISTS`: there is a run of this ID.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create_run(
    State(service): State<Service>,
    _operator: Operator,
    Query(()): Query<()>,
    Json(request): Json<CreateRunRequest>,
) -> Result<(StatusCode, Json<CreatedRun>), Problem> {
    let created = service.create_run(request).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Lists runs.
///
/// In the order of their creation. Runs whose source is coming in stand at the end of the last page.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns", params(StateFilter, Paging),
    responses((status = 200, description = "One page of runs.", body = Page<Run>)),
)]
pub(super) async fn list_runs(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((filter, paging)): Query<(StateFilter, Paging)>,
) -> Result<Json<Page<Run>>, Problem> {
    let (limit, after) = paging.check(List::Runs)?;
    Ok(Json(service.runs(filter.state, after, limit).await?))
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
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.run(&run).await?))
}

/// Closes a run.
///
/// From the answer on no mutation is recorded or applied and no approval made, also not for calls under way; reads go on.
/// Calls that wait for a person fail. Closing twice is no error.
#[utoipa::path(
    post, path = "/v1/runs/{run}/close", tag = "runs", operation_id = "closeRun", params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted, or its source is still coming in.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn close_run(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.close_run(&run).await?))
}

/// Deletes a run's files.
///
/// Mutations that are recorded finish first, later ones and calls that wait for a person fail. The run stays, in the state `deleted`, and so do its
/// audit and artifacts. Deleting twice is no error.
#[utoipa::path(
    delete, path = "/v1/runs/{run}", tag = "runs", operation_id = "deleteRun", params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run's source is still coming in.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete_run(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.delete_run(&run).await?))
}

/// Issues a token for a run.
///
/// The secret is shown this once.
#[utoipa::path(
    post, path = "/v1/runs/{run}/tokens", tag = "runs", operation_id = "issueToken", params(("run" = RunId, Path)),
    request_body = IssueTokenRequest,
    responses(
        (status = 201, description = "The token with its secret.", body = IssuedToken),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted, or its source is still coming in.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn issue_token(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<IssueTokenRequest>,
) -> Result<(StatusCode, Json<IssuedToken>), Problem> {
    let issued = service.issue_token(&run, request).await?;
    Ok((StatusCode::CREATED, Json(issued)))
}

/// Revokes a token.
///
/// From the answer on it is refused, also for calls under way that are not recorded yet; its streams and downloads end.
/// Revoking twice is no error.
#[utoipa::path(
    delete, path = "/v1/runs/{run}/tokens/{tokenId}", tag = "runs", operation_id = "revokeToken",
    params(("run" = RunId, Path), ("tokenId" = TokenId, Path)),
    responses((status = 204, description = "It is revoked.")),
)]
pub(super) async fn revoke_token(
    State(service): State<Service>,
    _operator: Operator,
    Path((run, token)): Path<(RunId, TokenId)>,
    Query(()): Query<()>,
) -> Result<StatusCode, Problem> {
    service.revoke_token(&run, &token).await?;
    Ok(StatusCode::NO_CONTENT)
}
