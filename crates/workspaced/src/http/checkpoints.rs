//! The checkpoints' routes: the newest one, its key, and proofs.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::RunId;

use crate::checkpoints::{Consistency, ConsistencyProof, Inclusion, InclusionProof};
use crate::http::auth::{Auditor, RunAuditor};
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Tells the newest checkpoint.
///
/// A signed note (C2SP `signed-note` and `tlog-checkpoint`) over the heads of all runs. `openapi/checkpoints.md` beside this
/// document specifies it.
#[utoipa::path(
    get, path = "/v1/checkpoint", tag = "audit", operation_id = "getCheckpoint",
    responses(
        (status = 200, description = "The signed note.", body = String, content_type = "text/plain",
            example = json!("workspaced/6b1c20f5a1e09d34\n7\nXbd6wz8x…=\n\n— workspaced/6b1c20f5a1e09d34 qqu7…=\n")),
        (status = 404, description = "`NOT_FOUND`: nothing has been signed yet.",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_checkpoint(
    State(service): State<Service>,
    _auditor: Auditor,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    Ok(text(service.checkpoint()?.note.clone()))
}

/// Tells the public key of the checkpoints.
///
/// As `signed-note` writes a verifier's key. Keep it where nobody who can change this service can change it.
#[utoipa::path(
    get, path = "/v1/checkpoint/key", tag = "audit", operation_id = "getCheckpointKey",
    responses((status = 200, description = "The verifier's key.", body = String, content_type = "text/plain",
        example = json!("workspaced/6b1c20f5a1e09d34+1a2b3c4d+ATux…=\n"))),
)]
pub(super) async fn get_checkpoint_key(
    State(service): State<Service>,
    _auditor: Auditor,
    Query(()): Query<()>,
) -> Response {
    text(format!("{}\n", service.checkpoint_key()))
}

/// Proves that one checkpoint's tree is the beginning of another's.
///
/// A consistency proof of RFC 6962 between any two sizes up to the newest checkpoint's.
#[utoipa::path(
    get, path = "/v1/checkpoint/consistency", tag = "audit", operation_id = "proveConsistency", params(Consistency),
    responses(
        (status = 200, description = "The proof.", body = ConsistencyProof),
        (status = 404, description = "`NOT_FOUND`: no checkpoint is that large yet.",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn prove_consistency(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((asked,)): Query<(Consistency,)>,
) -> Result<Json<ConsistencyProof>, Problem> {
    Ok(Json(service.prove_consistency(asked).await?))
}

/// Proves that a record is in the history that the newest checkpoint was signed over.
///
/// `NOT_FOUND` as long as no checkpoint covers it: one is signed every few seconds.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit/inclusion", tag = "audit", operation_id = "proveInclusion",
    params(("run" = RunId, Path), Inclusion),
    responses((status = 200, description = "The proof, with the records that it links.", body = InclusionProof)),
)]
pub(super) async fn prove_inclusion(
    State(service): State<Service>,
    RunAuditor { run, .. }: RunAuditor,
    Query((asked,)): Query<(Inclusion,)>,
) -> Result<Json<InclusionProof>, Problem> {
    Ok(Json(service.prove_inclusion(&run, asked).await?))
}

fn text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
