//! Routes of checkpoints: the newest one, its key, and proofs.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::audit::has_event_data;
use engine::forbidden;
use model::{Permission, RunId};
use serde::Deserialize;
use transparency::{ConsistencyProof, InclusionProof};

use crate::http::auth::{Reviewer, RunAuditor};
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// The two tree sizes to compare.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConsistencyQuery {
    /// Size of the earlier tree.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    from: Option<u64>,
    /// Size of the later tree. Default: that of the newest checkpoint.
    #[param(minimum = 1, example = 7)]
    to: Option<u64>,
}

/// The record to prove.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct InclusionQuery {
    /// The `seq` of the record.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    seq: Option<u64>,
}

/// Get the newest checkpoint
///
/// A signed note (C2SP `signed-note` and `tlog-checkpoint`) over the heads of all runs, specified in
/// `openapi/checkpoints.md` next to this document.
#[utoipa::path(
    get, path = "/v1/checkpoint", tag = "audit", operation_id = "getCheckpoint",
    responses(
        (status = 200, description = "The signed note.", body = String, content_type = "text/plain",
            example = json!("workspaced/6b1c20f5a1e09d34\n7\nXbd6wz8x…=\n\n— workspaced/6b1c20f5a1e09d34 qqu7…=\n")),
        (status = 404, description = "`NOT_FOUND`: nothing has been signed yet.",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_checkpoint(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    Ok(text(service.checkpoints().newest()?.note.clone()))
}

/// Get the public key of the checkpoints
///
/// In the format of a `signed-note` verifier key. Keep a copy where nobody who can change this service can change it.
#[utoipa::path(
    get, path = "/v1/checkpoint/key", tag = "audit", operation_id = "getCheckpointKey",
    responses((status = 200, description = "The verifier key.", body = String, content_type = "text/plain",
        example = json!("workspaced/6b1c20f5a1e09d34+1a2b3c4d+ATux…=\n"))),
)]
pub(crate) async fn get_checkpoint_key(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query(()): Query<()>,
) -> Response {
    text(format!("{}\n", service.checkpoints().verifier_key()))
}

/// Get the changes of the key
///
/// The checkpoints by which each key of the log names its successor, in order: notes that both keys have signed, each followed by an
/// empty line. None if the key was never changed. A verifier that has kept an earlier key follows them to the present one.
#[utoipa::path(
    get, path = "/v1/checkpoint/key/changes", tag = "audit", operation_id = "getCheckpointKeyChanges",
    responses((status = 200, description = "The statements.", body = String, content_type = "text/plain",
        example = json!("workspaced/6b1c20f5a1e09d34\n7\nXbd6wz8x…=\nold-key workspaced/6b1c20f5a1e09d34+1a2b3c4d+ATux…=\nnew-key workspaced/6b1c20f5a1e09d34+9f8e7d6c+AcRt…=\n\n— workspaced/6b1c20f5a1e09d34 Gis8…=\n— workspaced/6b1c20f5a1e09d34 n459…=\n\n"))),
)]
pub(crate) async fn get_checkpoint_key_changes(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query(()): Query<()>,
) -> Response {
    let mut notes = service.checkpoints().key_changes().join("\n");
    if !notes.is_empty() {
        notes.push('\n');
    }
    text(notes)
}

/// Prove that a checkpoint extends an earlier one
///
/// An RFC 6962 consistency proof between any two sizes up to that of the newest checkpoint.
#[utoipa::path(
    get, path = "/v1/checkpoint/consistency", tag = "audit", operation_id = "proveConsistency", params(ConsistencyQuery),
    responses(
        (status = 200, description = "The proof.", body = ConsistencyProof),
        (status = 404, description = "`NOT_FOUND`: no checkpoint has that size yet.",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn prove_consistency(
    State(service): State<Service>,
    _reviewer: Reviewer,
    Query((query,)): Query<(ConsistencyQuery,)>,
) -> Result<Json<ConsistencyProof>, Problem> {
    Ok(Json(service.checkpoints().prove_consistency(query.from, query.to).await?))
}

/// Prove that the newest checkpoint covers a record
///
/// `NOT_FOUND` until a checkpoint covers the record. One is signed every few seconds. A run token requires `file:read` as well as
/// `audit:read` if an event with data is among the records.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit/inclusion", tag = "audit", operation_id = "proveInclusion",
    params(("run" = RunId, Path), InclusionQuery),
    responses((status = 200, description = "The proof, with the records that it connects.", body = InclusionProof)),
)]
pub(crate) async fn prove_inclusion(
    State(service): State<Service>,
    RunAuditor { run, may_read, .. }: RunAuditor,
    Query((query,)): Query<(InclusionQuery,)>,
) -> Result<Json<InclusionProof>, Problem> {
    let proof = service.prove_inclusion(&run, query.seq).await?;
    // Without the data the records prove nothing.
    if !may_read && proof.records.iter().any(has_event_data) {
        return Err(forbidden(&[Permission::FileRead]).into());
    }
    Ok(Json(proof))
}

fn text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
