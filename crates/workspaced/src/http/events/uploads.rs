//! The routes of uploaded artifacts, by their digest.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::calls::{UploadedArtifact, too_large};
use engine::forbidden;
use model::{MAX_UPLOAD_BYTES, Permission, Refusal, RunId, Sha256};

use crate::http::auth::{RunAuditor, RunCaller};
use crate::http::extract::body::{closed, receive_whole};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Upload an artifact
///
/// For what is too large for an event's `data`, such as a test log or a transcript: at most 16 MiB, stored under its SHA-256.
/// Its content is not redacted, but refused with `POLICY_DENIED_SECRET` if it contains a credential. Counts towards the run's
/// bound of events. Requires the permission `event:append`; the upload is recorded with the tool `artifact.upload`.
#[utoipa::path(
    put, path = "/v1/runs/{run}/artifacts/sha256/{digest}", tag = "events", operation_id = "putUploadedArtifact",
    params(("run" = RunId, Path), ("digest" = Sha256, Path, description = "The SHA-256 of the body.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The artifact is stored.", body = UploadedArtifact),
        (status = 200, description = "The run had the artifact before.", body = UploadedArtifact),
        (status = 409, description = "`RUN_CLOSED`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 507, description = "`QUOTA_EXCEEDED`: the run has too many events, or too many bytes of them.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn put_upload(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path((_run, digest)): Path<(String, String)>,
    Query(()): Query<()>,
    body: Body,
) -> Result<Response, Problem> {
    service.calls.admit_upload(&run, &caller).await?;
    let digest = match parse_digest(&digest) {
        Ok(digest) => digest,
        Err(refusal) => return Err(service.calls.refuse_upload(&run, &caller, refusal).await.into()),
    };
    let Some(bytes) = receive_whole(&service, body, MAX_UPLOAD_BYTES).await? else {
        let refusal = too_large(MAX_UPLOAD_BYTES + 1);
        return Err(closed(service.calls.refuse_upload(&run, &caller, refusal).await.into()));
    };
    let stored = service.calls.store_upload(&run, &caller, digest, bytes).await?;
    let status = if stored.seq.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(stored)).into_response())
}

/// Get an uploaded artifact
///
/// A run token requires `file:read` as well as `audit:read`, since an artifact may contain file content.
#[utoipa::path(
    get, path = "/v1/runs/{run}/artifacts/sha256/{digest}", tag = "events", operation_id = "getUploadedArtifact",
    params(("run" = RunId, Path), ("digest" = Sha256, Path, description = "The SHA-256 of the artifact.")),
    responses((status = 200, description = "The artifact.", body = Vec<u8>, content_type = "application/octet-stream")),
)]
pub(crate) async fn get_upload(
    State(service): State<Service>,
    RunAuditor { run, may_read, .. }: RunAuditor,
    Path((_run, digest)): Path<(String, String)>,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    if !may_read {
        return Err(forbidden(&[Permission::FileRead]).into());
    }
    let digest = parse_digest(&digest)?;
    let bytes = service.calls.uploaded_artifact(&run, &digest).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        // A browser must not show what an agent wrote as a page of this service.
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((headers, bytes).into_response())
}

fn parse_digest(raw: &str) -> Result<Sha256, Refusal> {
    let invalid = || Refusal::invalid("the digest is not a SHA-256", "Give 64 hexadecimal digits.");
    Sha256::parse(raw).map_err(|_| invalid())
}
