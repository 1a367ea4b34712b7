//! The checkpoints' routes: the newest one, its key, and proofs.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::RunId;
use serde::Deserialize;
use transparency::{ConsistencyProof, InclusionProof};

use crate::http::auth::{Auditor, RunAuditor};
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Which two trees to compare.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConsistencyQuery {
    /// The number of leaves of the earlier tree.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    from: Option<u64>,
    /// The number of leaves of the later tree. Default: the newest checkpoint's.
    #[param(minimum = 1, example = 7)]
    to: Option<u64>,
}

/// Which record to prove.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct InclusionQuery {
    /// The record's `seq`.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    seq: Option<u64>,
}

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
    Ok(text(service.checkpoints().newest()?.note.clone()))
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
    text(format!("{}\n", service.checkpoints().verifier_key()))
}

/// Proves that one checkpoint's tree is the beginning of another's.
///
/// A consistency proof of RFC 6962 between any two sizes up to the newest checkpoint's.
#[utoipa::path(
    get, path = "/v1/checkpoint/consistency", tag = "audit", operation_id = "proveConsistency", params(ConsistencyQuery),
    responses(
        (status = 200, description = "The proof.", body = ConsistencyProof),
        (status = 404, description = "`NOT_FOUND`: no checkpoint is that large yet.",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn prove_consistency(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((query,)): Query<(ConsistencyQuery,)>,
) -> Result<Json<ConsistencyProof>, Problem> {
    Ok(Json(service.checkpoints().prove_consistency(query.from, query.to).await?))
}

/// Proves that a record is in the history that the newest checkpoint was signed over.
///
/// `NOT_FOUND` as long as no checkpoint covers it: one is signed every few seconds.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit/inclusion", tag = "audit", operation_id = "proveInclusion",
    params(("run" = RunId, Path), InclusionQuery),
    responses((status = 200, description = "The proof, with the records that it links.", body = InclusionProof)),
)]
pub(super) async fn prove_inclusion(
    State(service): State<Service>,
    RunAuditor { run, .. }: RunAuditor,
    Query((query,)): Query<(InclusionQuery,)>,
) -> Result<Json<InclusionProof>, Problem> {
    Ok(Json(service.prove_inclusion(&run, query.seq).await?))
}

fn text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
