//! Routes of operators.

pub(crate) mod webhooks;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::operators::{CreateOperatorRequest, CreatedOperator, RotateTokenRequest};
use engine::{List, Page, Paging};
use model::{Code, OperatorName, Refusal, Scope, json};
use serde::Serialize;

use crate::http::auth::{AnyOperator, Orchestrator};
use crate::http::conventions::idempotency_key::{DESCRIPTION as IDEMPOTENCY_KEY, created_at, keyed_request};
use crate::http::extract::{Json, JsonBytes, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Create an operator
///
/// The token is returned only here. A repetition under the same `Idempotency-Key` replaces it, and the first one ends after an hour. A name belongs to one operator until that one is revoked.
#[utoipa::path(
    post, path = "/v1/operators", tag = "operators", operation_id = "createOperator",
    request_body = CreateOperatorRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = IDEMPOTENCY_KEY, max_length = 128)),
    responses(
        (status = 201, description = "The operator with its token.", body = CreatedOperator,
            headers(("Location" = String, description = "The URL path of the operator, for its revocation."))),
        (status = 409, description = "`ALREADY_EXISTS`: an operator of this name exists; `IDEMPOTENCY_KEY_REUSED`.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "`QUOTA_EXCEEDED`: there are too many operators.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn create_operator(
    State(service): State<Service>,
    Orchestrator { operator, .. }: Orchestrator,
    Query(()): Query<()>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let request = json::parse_into(&body)?;
    let keyed = keyed_request(&operator.actor(), &headers, "operator.create", &body)?;
    let created = service.operators.create_operator(request, operator, keyed).await?;
    Ok(created_at(&format!("/v1/operators/{}", created.operator.name), created))
}

/// List operators
///
/// Those of the configuration first, then the others in order of creation, revoked ones included.
#[utoipa::path(
    get, path = "/v1/operators", tag = "operators", operation_id = "listOperators", params(Paging),
    responses((status = 200, description = "One page of operators.", body = Page<model::Operator>)),
)]
pub(crate) async fn list_operators(
    State(service): State<Service>,
    _operator: Orchestrator,
    Query((paging,)): Query<(Paging,)>,
) -> Result<Json<Page<model::Operator>>, Problem> {
    let (limit, after) = paging.check(&List::Operators.unfiltered())?;
    Ok(Json(service.operators.operators(after, limit).await?))
}

/// The operator whose token the request has.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperatorSelf {
    /// Its name.
    name: OperatorName,
    /// What it may do.
    scopes: Vec<Scope>,
}

/// Get the calling operator
///
/// The name is `self`: every operator may ask who it is and what it may do. Others are in the list of operators.
#[utoipa::path(
    get, path = "/v1/operators/{name}", tag = "operators", operation_id = "getOperator",
    params(("name" = String, Path, description = "`self`.", example = "self")),
    responses((status = 200, description = "The operator.", body = OperatorSelf)),
)]
pub(crate) async fn get_operator(
    AnyOperator { operator, .. }: AnyOperator,
    Path(name): Path<String>,
    Query(()): Query<()>,
) -> Result<Json<OperatorSelf>, Problem> {
    if name != "self" {
        let hint = "Use the name `self`; GET /v1/operators lists every operator.";
        return Err(Refusal::new(Code::NotFound, "only the calling operator can be requested", hint).into());
    }
    Ok(Json(OperatorSelf { name: operator.name.clone(), scopes: operator.scopes.iter().copied().collect() }))
}

/// Replace an operator's token
///
/// The new token is returned only here. A repetition under the same `Idempotency-Key` gives one more. The present one stays valid for
/// `overlapSeconds`, so that no call is refused while its holder changes to the new one. A second request within the overlap does not
/// change when an earlier token ends, except that with `overlapSeconds` 0 every earlier token ends at once. Revoking the operator
/// ends every token of it. An operator of the configuration has its tokens there.
#[utoipa::path(
    post, path = "/v1/operators/{name}/tokens", tag = "operators", operation_id = "rotateOperatorToken",
    request_body = Option<RotateTokenRequest>,
    params(
        ("name" = String, Path, description = "The operator's name."),
        ("Idempotency-Key" = Option<String>, Header, description = IDEMPOTENCY_KEY, max_length = 128)
    ),
    responses(
        (status = 201, description = "The operator with its new token.", body = CreatedOperator,
            headers(("Location" = String, description = "The URL path of the operator, for its revocation."))),
        (status = 409, description = "`IDEMPOTENCY_KEY_REUSED`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 507, description = "`QUOTA_EXCEEDED`: there are too many operators.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn rotate_operator_token(
    State(service): State<Service>,
    Orchestrator { operator, .. }: Orchestrator,
    Path(name): Path<String>,
    Query(()): Query<()>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let request = json::parse_into(&body)?;
    let operation = format!("operator.rotate {}", name.to_ascii_lowercase());
    let keyed = keyed_request(&operator.actor(), &headers, &operation, &body)?;
    let created = service.operators.rotate_operator_token(&name, request, operator, keyed).await?;
    Ok(created_at(&format!("/v1/operators/{}", created.operator.name), created))
}

/// Revoke an operator
///
/// After the response its token is refused, including for calls in progress that are not recorded yet; its streams and
/// downloads end. Revoking a revoked operator succeeds. An operator of the configuration is removed there.
#[utoipa::path(
    delete, path = "/v1/operators/{name}", tag = "operators", operation_id = "revokeOperator",
    params(("name" = String, Path, description = "The operator's name.")),
    responses((status = 204, description = "The operator is revoked.")),
)]
pub(crate) async fn revoke_operator(
    State(service): State<Service>,
    Orchestrator { operator, .. }: Orchestrator,
    Path(name): Path<String>,
    Query(()): Query<()>,
) -> Result<StatusCode, Problem> {
    service.operators.revoke_operator(&name, operator).await?;
    Ok(StatusCode::NO_CONTENT)
}
