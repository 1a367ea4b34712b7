//! The routes of calls that wait for a person.

use axum::extract::State;
use model::{Approval, ApprovalId};

use crate::approvals::{ApprovalDecision, ApprovalFilter};
use crate::http::auth::{Auditor, Operator};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::page::{List, Page, Paging};
use crate::pipeline::ApprovalResult;
use crate::service::Service;

/// Lists approvals.
///
/// In the order in which they were asked for.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", operation_id = "listApprovals", params(ApprovalFilter, Paging),
    responses((status = 200, description = "One page of approvals.", body = Page<Approval>)),
)]
pub(super) async fn list_approvals(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((filter, paging)): Query<(ApprovalFilter, Paging)>,
) -> Result<Json<Page<Approval>>, Problem> {
    let (limit, after) = paging.check(List::Approvals)?;
    Ok(Json(service.approvals(&filter, after, limit).await?))
}

/// Tells of an approval.
#[utoipa::path(
    get, path = "/v1/approvals/{approvalId}", tag = "approvals", operation_id = "getApproval",
    params(("approvalId" = ApprovalId, Path)),
    responses((status = 200, description = "The approval, with what would change.", body = Approval)),
)]
pub(super) async fn get_approval(
    State(service): State<Service>,
    _auditor: Auditor,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
) -> Result<Json<Approval>, Problem> {
    Ok(Json(service.told_approval(&id).await?))
}

/// Approves a call.
///
/// It is judged again against the files as they are now, and then applied; the approval is `approved`, or `failed` where
/// the files have changed since.
#[utoipa::path(
    post, path = "/v1/approvals/{approvalId}/approve", tag = "approvals", operation_id = "approve",
    params(("approvalId" = ApprovalId, Path)), request_body = ApprovalDecision,
    responses(
        (status = 200, description = "The approval, and the record that the decision left.", body = ApprovalResult),
        (status = 409, description = "`ALREADY_EXISTS`: it is decided already.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn approve(
    State(service): State<Service>,
    _operator: Operator,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
    Json(decision): Json<ApprovalDecision>,
) -> Result<Json<ApprovalResult>, Problem> {
    Ok(Json(service.approve(&id, decision.check()?).await?))
}

/// Turns a call down.
#[utoipa::path(
    post, path = "/v1/approvals/{approvalId}/deny", tag = "approvals", operation_id = "deny",
    params(("approvalId" = ApprovalId, Path)), request_body = ApprovalDecision,
    responses(
        (status = 200, description = "The approval, and the record that the decision left.", body = ApprovalResult),
        (status = 409, description = "`ALREADY_EXISTS`: it is decided already.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn deny(
    State(service): State<Service>,
    _operator: Operator,
    Path(id): Path<ApprovalId>,
    Query(()): Query<()>,
    Json(decision): Json<ApprovalDecision>,
) -> Result<Json<ApprovalResult>, Problem> {
    Ok(Json(service.deny(&id, decision.check()?).await?))
}
