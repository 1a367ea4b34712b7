//! The routes of uploaded artifacts, by their digest.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::calls::{UploadedArtifact, too_large};
use engine::{Caller, forbidden};
use model::{MAX_UPLOAD_BYTES, Permission, Refusal, RunId, Sha256};

use crate::http::auth::{RunAuditor, RunCaller};
use crate::http::extract::body::{BodyError, BodyReader, too_slow};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::transfer::MinRate;
use crate::service::Service;

/// Minimum rate of an upload, which is in memory until it is complete.
const MIN_BYTES_PER_SECOND: u64 = 64 * 1024;

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
    let bytes = receive(&service, &run, &caller, body).await?;
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

/// Reads the body into memory that is reserved for it.
async fn receive(service: &Service, run: &RunId, caller: &Caller, body: Body) -> Result<Vec<u8>, Problem> {
    let http = &service.state.http_limits;
    // A body of unknown length may be as long as the limit.
    let announced = body.size_hint().exact().unwrap_or(MAX_UPLOAD_BYTES);
    if announced > 0 {
        service.calls.acquire_body(announced, http.body_timeout).await.map_err(|refusal| close(refusal.into()))?;
    }
    let min_rate =
        MinRate { bytes_per_second: http.min_bytes_per_second.max(MIN_BYTES_PER_SECOND), ..MinRate::of(http) };
    // The rate of each part of the body would permit to send most of it at once and the rest slowly.
    let most = http.body_timeout + Duration::from_secs(announced / min_rate.bytes_per_second);
    let received = tokio::time::timeout(most, receive_all(service, run, caller, body, min_rate)).await;
    received.unwrap_or_else(|_| Err(too_slow(min_rate)))
}

async fn receive_all(
    service: &Service,
    run: &RunId,
    caller: &Caller,
    body: Body,
    min_rate: MinRate,
) -> Result<Vec<u8>, Problem> {
    let (mut body, mut bytes) = (BodyReader::new(body, min_rate), Vec::new());
    loop {
        match body.next_chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(bytes),
            Err(BodyError::TooSlow) => return Err(too_slow(min_rate)),
            Err(BodyError::Disconnected) => {
                return Err(Refusal::invalid("the body ended early", "Send the whole artifact again.").into());
            }
        }
        if bytes.len() as u64 > MAX_UPLOAD_BYTES {
            return Err(close(service.calls.refuse_upload(run, caller, too_large(bytes.len() as u64)).await.into()));
        }
    }
}

/// Makes a refusal close the connection: the rest of the body is not read.
fn close(problem: Problem) -> Problem {
    problem.with_header(header::CONNECTION, HeaderValue::from_static("close"))
}
