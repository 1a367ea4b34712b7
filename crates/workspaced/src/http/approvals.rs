//! Routes of approvals.

use axum::extract::State;
use axum::response::IntoResponse;
use engine::calls::{self, ApprovalDecision, ApprovalFileQuery, ApprovalQuery, ApprovalResult, CurrentApproval};
use engine::{CreatedQuery, List, OrderQuery, Page, Paging};
use model::{Approval, ApprovalId};
use serde::Serialize;

use crate::http::auth::{Decider, Reviewer};
use crate::http::extract::{Json, Path, Query, json_text};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// List approvals
///
/// Without their diffs. In the order in which they were requested, or the newest first. A page may have fewer approvals than match, also none,
/// because it searches a bounded number of approvals: there are more as long as it has a `nextCursor`.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", operation_id = "listApprovals",
    params(ApprovalQuery, CreatedQuery, OrderQuery, Paging),
    responses((status = 200, description = "One page of approvals.", body = Page<Approval>)),
)]
pub(crate) async fn list_approvals(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query((query, created, order, paging)): Query<(ApprovalQuery, CreatedQuery, OrderQuery, Paging)>,
) -> Result<Json<Page<Approval>>, Problem> {
    let filter = query.to_ledger(&created, order)?;
    let (limit, after) = paging.check(&List::Approvals.filtered(&filter))?;
    Ok(Json(service.calls.approvals(&filter, after, limit).await?))
}

/// Get an approval
///
/// While it is pending, `present` has the hashes of its files as they are now, so that a reviewer sees whether they still are as the
/// change expects.
#[utoipa::path(
    get, path = "/v1/approvals/{approvalId}", tag = "approvals", operation_id = "getApproval",
    params(("approvalId" = ApprovalId, Path)),
    responses((status = 200, description = "The approval, with the diff of the call.", body = CurrentApproval)),
)]
pub(crate) async fn get_approval(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
) -> Result<Json<CurrentApproval>, Problem> {
    Ok(Json(service.calls.approval(&id).await?))
}

/// Lines of a file of an approval.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalFileLines {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
    /// The ID of the read's record.
    tool_call_id: String,
    /// The path.
    path: String,
    /// Number of the first returned line.
    start_line: u64,
    /// Number of the last returned line; `startLine` minus 1 if no line is returned.
    end_line: u64,
    /// Number of lines in the file.
    total_lines: u64,
    /// Whether more lines follow.
    truncated: bool,
    /// The `startLine` to continue with.
    #[schema(required = false)]
    next_start_line: Option<u64>,
    /// The lines, unchanged.
    content: String,
    /// The record at whose state the file is read: that of the call.
    at_seq: u64,
}

/// Read a file of an approval
///
/// The text that the approval's diff is against: the file as it was when the call was made. For the person who decides and needs more than
/// the lines around the change: the scope `approve` permits no other file. Recorded as a `read_file` of the operator, and judged as one.
#[utoipa::path(
    get, path = "/v1/approvals/{approvalId}/file", tag = "approvals", operation_id = "readApprovalFile",
    params(("approvalId" = ApprovalId, Path), ApprovalFileQuery),
    responses((status = 200, description = "The lines, and what else `read_file` answers.", body = ApprovalFileLines)),
)]
pub(crate) async fn read_approval_file(
    State(service): State<Service>,
    reviewer: Reviewer,
    Path(id): Path<ApprovalId>,
    Query((query,)): Query<(ApprovalFileQuery,)>,
) -> Result<impl IntoResponse, Problem> {
    let answer = service.calls.read_approval_file(&id, reviewer.caller(), query).await?;
    Ok(json_text(answer.to_json()))
}

/// Approve a pending call
///
/// The call is planned and judged again against the current files, and then applied. The approval becomes `approved`, or
/// `failed` if the files have changed since. If the run's policy requires several approvers, the approval stays `pending`
/// with the operator in `approvedBy` until the last of them approves; an operator who approves again changes nothing. With
/// `notCreator`, the operator who created the run, and the one who made the call, get 403 `FORBIDDEN`.
///
/// With `edits` the operator changes the result: each is a call of `edit_file` by the operator, judged like any other, recorded after
/// the approved call, and applied with it or not at all. `editedSeq` is the first of their records. If one is refused, nothing
/// changes and the approval stays `pending`.
#[utoipa::path(
    post, path = "/v1/approvals/{approvalId}/approve", tag = "approvals", operation_id = "approveCall",
    params(("approvalId" = ApprovalId, Path)), request_body = ApprovalDecision,
    responses(
        (status = 200, description = "The approval, and the record of the decision.", body = ApprovalResult),
        (status = 409, description = "`ALREADY_EXISTS`: the approval is decided already.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn approve(
    State(service): State<Service>,
    Decider { operator, request, .. }: Decider,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
    Json(decision): Json<ApprovalDecision>,
) -> Result<Json<ApprovalResult>, Problem> {
    let decider = calls::DecidingPerson { request: Some(request), ..decision.check(operator)? };
    Ok(Json(service.calls.approve(&id, decider).await?))
}

/// Deny a pending call
///
/// One denial ends the approval, regardless of how many operators have approved.
#[utoipa::path(
    post, path = "/v1/approvals/{approvalId}/deny", tag = "approvals", operation_id = "denyCall",
    params(("approvalId" = ApprovalId, Path)), request_body = ApprovalDecision,
    responses(
        (status = 200, description = "The approval, and the record of the decision.", body = ApprovalResult),
        (status = 409, description = "`ALREADY_EXISTS`: the approval is decided already.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn deny(
    State(service): State<Service>,
    Decider { operator, request, .. }: Decider,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
    Json(decision): Json<ApprovalDecision>,
) -> Result<Json<ApprovalResult>, Problem> {
    let decider = calls::DecidingPerson { request: Some(request), ..decision.check(operator)? };
    Ok(Json(service.calls.deny(&id, decider).await?))
}
