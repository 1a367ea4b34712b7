//! Routes of approvals.

use axum::extract::State;
use engine::calls::{self, ApprovalDecision, ApprovalQuery, ApprovalResult, CurrentApproval};
use engine::{CreatedQuery, List, OrderQuery, Page, Paging};
use model::{Approval, ApprovalId};

use crate::http::auth::{Decider, Reviewer};
use crate::http::extract::{Json, Path, Query};
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
