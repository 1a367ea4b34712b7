//! Routes of forks: merging one into the run that it was made from, and comparing two runs.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use engine::audit::{CompareQuery, RunComparison};
use engine::calls::MergeRequest;
use model::RunId;

use crate::http::auth::{Orchestrator, Reviewer};
use crate::http::changesets::{ChangesetAnswer, problem};
use crate::http::extract::{Json, Path, Query, json_text};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Merge a fork
///
/// Applies what a fork of this run has changed since it was made, or since it was merged last, as one change set: judged by the policy of
/// this run with the limits of `commandBudget`, all of it or nothing. A file that both runs have changed is a conflict, unless `onConflict`
/// is `merge` and the changes are in different lines. The fork may be closed; it stays as it is, and its chain gets a record in the same
/// commit. `forks[].mergedSeq` of this run says up to which record of the fork its changes are here.
#[utoipa::path(
    post, path = "/v1/runs/{run}/merge", tag = "runs", operation_id = "mergeRun", params(("run" = RunId, Path)),
    request_body = MergeRequest,
    responses(
        (status = 200, description = "The changes are applied.", body = ChangesetAnswer),
        (status = 202, description = "`APPROVAL_REQUIRED`: the merge waits for a person.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "`WRITE_CONFLICT`: both runs have changed a file, or the fork was merged meanwhile; `CHANGED_OUTSIDE`; \
            `RUN_CLOSED`: this run is closed, or the fork is deleted.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`FILE_TOO_LARGE`: a file of the fork is not stored in the ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 422, description = "`PATCH_BUDGET_EXCEEDED`: the changes exceed `commandBudget`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn merge_run(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<MergeRequest>,
) -> Result<Response, Problem> {
    // The future has the whole call: too large for the stack of every layer above it.
    let merged = Box::pin(service.calls.merge_run(&run, operator.caller(), request)).await.map_err(problem)?;
    Ok(json_text(merged.to_json()).into_response())
}

/// Compare two runs
///
/// Each at its newest record: the files that either has changed or that differ, with their hashes, and the counts, budgets and tests of
/// both. The runs need not be forks of one another.
#[utoipa::path(
    get, path = "/v1/runs/{run}/compare/{other}", tag = "runs", operation_id = "compareRuns",
    params(("run" = RunId, Path), ("other" = RunId, Path), CompareQuery),
    responses(
        (status = 200, description = "The comparison.", body = RunComparison),
        (status = 409, description = "`RUN_CLOSED`: one of the runs has no files.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn compare_runs(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Path((run, other)): Path<(RunId, RunId)>,
    Query((query,)): Query<(CompareQuery,)>,
) -> Result<Json<RunComparison>, Problem> {
    Ok(Json(service.audit.compare([&run, &other], &query).await?))
}
