//! Routes of runs and their tokens.

pub(crate) mod archive;
pub(crate) mod exports;
pub(crate) mod forks;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::calls::StopRunRequest;
use engine::operators::{IssueTokenRequest, IssuedToken};
use engine::runs::{CreateRunRequest, CreatedRun, CreationAnswer, OwnRun, RunQuery, RunUsage, UpdateRunRequest};
use engine::{CreatedQuery, LabelQuery, List, OrderQuery, Page, Paging};
use model::{Run, RunId, RunState, RunToken, Source, TokenId, json};
use serde::Serialize;

use crate::http::auth::{Orchestrator, Reviewer, RunViewer};
use crate::http::conventions::idempotency_key::{DESCRIPTION as IDEMPOTENCY_KEY, created_at, keyed_request};
use crate::http::conventions::prefer::{applied_async, prefers_async};
use crate::http::extract::{Json, JsonBytes, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Create a run
///
/// The response is sent once the run is `open`; until then lists show it as `preparing`, with the progress of its import.
/// If the import fails there is no run. With `Prefer: respond-async` the response is sent at once, and the import continues:
/// `GET /v1/runs/{run}` shows its progress; a run whose import fails is closed, and `import.error` says why. An import
/// that is interrupted because the service stops is resumed once by the next start, or by another node. Closing the run
/// cancels its import. A closed connection cancels neither. A run with an `archive` source is returned at once and stays `preparing` until the
/// archive is uploaded. A run with a `run` source is a fork: it starts with the files of that run at a record, its policy is that of that
/// run by default, and the chain of that run gets the record `run.fork` in the same commit. It is always answered once it is open. The token's
/// secret is returned only here. A repetition under the same `Idempotency-Key` returns the run with another token.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "createRun", request_body = CreateRunRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = IDEMPOTENCY_KEY, max_length = 128),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: respond before the import.")
    ),
    responses(
        (status = 201, description = "The run and its first token.", body = CreatedRun,
            headers(("Location" = String, description = "The URL path of the run."))),
        (status = 202, description = "The run, which is `preparing`, and its first token.", body = CreatedRun,
            headers(
                ("Location" = String, description = "The URL path of the run."),
                ("Preference-Applied" = String, description = "`respond-async`.")
            )),
        (status = 404, description = "`RUN_NOT_FOUND`: the run of a `run` source does not exist.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "`ALREADY_EXISTS`: a run with this ID exists; `IDEMPOTENCY_KEY_REUSED`; for a `run` source also \
            `RUN_CLOSED`: that run has no files, and `WRITE_CONFLICT`: contents that it had at that record are not stored any more.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_run(
    State(service): State<Service>,
    operator: Orchestrator,
    Query(()): Query<()>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let request = json::parse_into(&body)?;
    let (caller, creator) = (operator.caller(), Arc::clone(&operator.operator));
    let answer = if prefers_async(&headers) { CreationAnswer::AtOnce } else { CreationAnswer::AfterImport };
    let keyed = keyed_request(&caller.actor, &headers, "run.create", &body)?;
    let created = service.runs.create_run(request, creator, &caller, keyed, answer).await?;
    // A repetition under a key gets the first answer, regardless of its preference.
    let is_importing = created.run.state == RunState::Preparing && created.run.source != Source::Archive {};
    let mut response = created_at(&format!("/v1/runs/{}", created.run.run_id), created);
    if is_importing {
        applied_async(&mut response);
    }
    Ok(response)
}

/// List runs
///
/// In order of creation, or by `sort`. Runs that are being imported are the newest. A page may have fewer runs than match, also none, because
/// it searches a bounded number of runs: there are more as long as it has a `nextCursor`.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns",
    params(RunQuery, CreatedQuery, LabelQuery, OrderQuery, Paging),
    responses((status = 200, description = "One page of runs.", body = Page<Run>)),
)]
pub(crate) async fn list_runs(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query((query, created, labels, order, paging)): Query<(RunQuery, CreatedQuery, LabelQuery, OrderQuery, Paging)>,
) -> Result<Json<Page<Run>>, Problem> {
    let filter = query.to_ledger(&created, &labels, order)?;
    let (limit, after) = paging.check(&List::Runs.filtered(&filter))?;
    Ok(Json(service.runs.runs(&filter, after, limit).await?))
}

/// A run as its caller may see it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum RunView {
    /// For operators.
    Run(Box<Run>),
    /// For the run's tokens.
    OwnRun(Box<OwnRun>),
}

/// Get a run
///
/// A token of the run, with any permissions, sees its own view: state, policy, what is used of the budgets and what remains,
/// mounts, and the top level of the tree.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", operation_id = "getRun", params(("run" = RunId, Path)),
    responses((status = 200, description = "The run.", body = RunView)),
)]
pub(crate) async fn get_run(
    State(service): State<Service>,
    viewer: RunViewer,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<RunView>, Problem> {
    Ok(Json(match &viewer.token {
        None => RunView::Run(Box::new(service.runs.run_with_forks(&run).await?)),
        Some(token) => RunView::OwnRun(Box::new(service.runs.own_run(token).await?)),
    }))
}

/// Update a run
///
/// Replaces the labels, the expiry time, or both, of a run that is not deleted. A closed run takes labels only. The change is
/// recorded in the run's chain as `run.update`.
#[utoipa::path(
    patch, path = "/v1/runs/{run}", tag = "runs", operation_id = "updateRun", params(("run" = RunId, Path)),
    request_body = UpdateRunRequest,
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted or still being imported, or it is closed and the request \
            has `expiresAt`.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn update_run(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<UpdateRunRequest>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.runs.update_run(&run, &operator.caller(), request).await?))
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
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.runs.close_run(&run, &operator.caller()).await?))
}

/// Stop a run's agent
///
/// Revokes all tokens of the run, also for calls in progress that are not recorded yet, and ends the commands that wait or run; streams
/// and downloads with its tokens end. The run stays open, so that operators can look at it, close it or issue another token. Recorded as
/// `run.stop`, with the reason. Access tokens of an OAuth issuer are not the run's, and are not revoked: close the run.
#[utoipa::path(
    post, path = "/v1/runs/{run}/stop", tag = "runs", operation_id = "stopRun", params(("run" = RunId, Path)),
    request_body = StopRunRequest,
    responses(
        (status = 200, description = "The run.", body = Run),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn stop_run(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<StopRunRequest>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.calls.stop_run(&run, &operator.caller(), request).await?))
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
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<Run>, Problem> {
    Ok(Json(service.runs.delete_run(&run, &operator.caller()).await?))
}

/// Get a run's usage
///
/// What the run has used of its budgets and quotas, and what remains: the same as its tokens see.
#[utoipa::path(
    get, path = "/v1/runs/{run}/usage", tag = "runs", operation_id = "getRunUsage", params(("run" = RunId, Path)),
    responses((status = 200, description = "The usage.", body = RunUsage)),
)]
pub(crate) async fn get_usage(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
) -> Result<Json<RunUsage>, Problem> {
    Ok(Json(service.runs.run_usage(&run).await?))
}

/// List a run's tokens
///
/// Every token that was issued for the run, in the order of issue, without its secret: also those that are expired or revoked.
#[utoipa::path(
    get, path = "/v1/runs/{run}/tokens", tag = "runs", operation_id = "listTokens", params(("run" = RunId, Path), Paging),
    responses(
        (status = 200, description = "One page of tokens.", body = Page<RunToken>),
        (status = 409, description = "`RUN_CLOSED`: the run is archived.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn list_tokens(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Path(run): Path<RunId>,
    Query((paging,)): Query<(Paging,)>,
) -> Result<Json<Page<RunToken>>, Problem> {
    let list = List::Tokens(&run).unfiltered();
    let (limit, after) = paging.check(&list)?;
    Ok(Json(service.runs.run_tokens(&run, after, limit, &list).await?))
}

/// Issue a token for a run
///
/// The secret is returned only here. A repetition under the same `Idempotency-Key` issues another token.
#[utoipa::path(
    post, path = "/v1/runs/{run}/tokens", tag = "runs", operation_id = "issueToken",
    params(
        ("run" = RunId, Path),
        ("Idempotency-Key" = Option<String>, Header, description = IDEMPOTENCY_KEY, max_length = 128)
    ),
    request_body = IssueTokenRequest,
    responses(
        (status = 201, description = "The token with its secret.", body = IssuedToken,
            headers(("Location" = String, description = "The URL path of the token, for its revocation."))),
        (status = 409, description = "`RUN_CLOSED`: the run is deleted, or still being imported; `IDEMPOTENCY_KEY_REUSED`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn issue_token(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let request = json::parse_into(&body)?;
    let operation = format!("token.issue {run}");
    let caller = operator.caller();
    let keyed = keyed_request(&caller.actor, &headers, &operation, &body)?;
    let issued = service.operators.issue_token(&run, &caller, request, keyed).await?;
    Ok(created_at(&format!("/v1/runs/{run}/tokens/{}", issued.token_id), issued))
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
    operator: Orchestrator,
    Path((run, token)): Path<(RunId, TokenId)>,
    Query(()): Query<()>,
) -> Result<StatusCode, Problem> {
    service.operators.revoke_token(&run, &operator.caller(), &token).await?;
    Ok(StatusCode::NO_CONTENT)
}
