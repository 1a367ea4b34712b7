//! Routes of whole files as bytes.

pub(crate) mod conditional;
pub(crate) mod drift;
mod reason;

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::CallError;
use engine::calls::{Answer, Chunks, Failed, FileCallOptions, FileDownload, FileUpload};
use engine::tools::StoredFile;
use futures_util::stream;
use model::{Code, FileKind, Refusal, RunId, Sha256};
use serde::Deserialize;
use tokio::sync::mpsc;
use workspace::Transfer;

use crate::http::auth::{RunCaller, RunReader};
use crate::http::extract::body::{BodyError, BodyReader};
use crate::http::extract::{Path, Query, json_text};
use crate::http::files::conditional::{
    Requested, etag, failed_if_match, fails_if_match, invalid_precondition, matches_etag, missing_precondition,
    parse_etag, partial_upload, unsatisfiable_range,
};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::transfer::MinRate;
use crate::service::Service;

/// Chunks of an upload that may wait for the disk.
const MAX_WAITING_CHUNKS: usize = 16;

/// Describes the header in the API document.
const REASON_FORMAT: &str =
    "The reason, 1 to 2,000 characters: UTF-8, or `utf-8''` and percent-encoded UTF-8 (RFC 8187).";

static REASON: HeaderName = HeaderName::from_static("x-reason");
/// Set on a file that was changed by something else than a call of the run.
static OUTSIDE: HeaderName = HeaderName::from_static("workspaced-outside");
static TOOL_CALL_ID: HeaderName = HeaderName::from_static("x-tool-call-id");

/// Query of a read.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct FileQuery {
    /// The mount to read from instead of the workspace.
    mount: Option<String>,
    /// The file as it was when the record with this number was written; 0 for the run's start. At most 16 MiB, and not with `mount`. A
    /// symbolic link of that time is not followed.
    #[param(minimum = 0)]
    at_seq: Option<u64>,
}

/// Download a file
///
/// Whole or one range. `ETag` is the quoted SHA-256 of the whole file. `HEAD` returns the headers alone.
#[utoipa::path(
    get, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "getFile",
    params(
        ("run" = RunId, Path), ("path" = String, Path, description = "The path, with unescaped slashes."), FileQuery,
        ("If-Match" = Option<String>, Header, description = "Respond with 412 unless the file has one of these ETags."),
        ("If-None-Match" = Option<String>, Header, description = "Respond with 304 if the file has this ETag."),
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-Range" = Option<String>, Header, description = "Ignore `Range` if the file does not have this ETag."),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "The ID of the call.")
    ),
    responses(
        (status = 200, description = "The file: as text, or as bytes if it is binary.",
            content((Vec<u8> = "application/octet-stream"), (String = "text/plain")),
            headers(("Workspaced-Outside" = String, description = "`true` if the file was changed by something else than a call of the run."))),
        (status = 206, description = "The requested part.",
            content((Vec<u8> = "application/octet-stream"), (String = "text/plain"))),
        (status = 304, description = "The file has the given ETag."),
        (status = 412, description = "`WRITE_CONFLICT`: the file has none of the ETags of `If-Match`.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 416, description = "The file has no such part; `Content-Range` has its size.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_file(
    State(service): State<Service>,
    RunReader { run, caller, .. }: RunReader,
    Path((_run, path)): Path<(String, String)>,
    Query((query,)): Query<(FileQuery,)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let range = headers.get(header::RANGE).map(|range| String::from_utf8_lossy(range.as_bytes()).into_owned());
    // A client may send the reason of its changes with every request.
    let options = options_of(&headers, &[&TOOL_CALL_ID]);
    let options = FileCallOptions { mount: query.mount, at_seq: query.at_seq, range, ..options };
    let FileDownload { transfer, is_outside } =
        service.calls.get_file(&run, caller, &path, &options).await.map_err(problem)?;
    let etag = etag(&transfer.state.sha256);
    if fails_if_match(&headers, &etag) {
        return Err(failed_if_match(&path, transfer.state.sha256));
    }
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| matches_etag(known, &etag)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let size = transfer.state.size_bytes;
    let part = match Requested::of(&headers, &etag, size) {
        Requested::Whole => None,
        Requested::Part(from, to) => Some((from, to)),
        Requested::Unsatisfiable => return Err(unsatisfiable_range(size)),
    };
    let mut response = file_response(transfer, etag, part, method == Method::HEAD);
    if is_outside {
        response.headers_mut().insert(&OUTSIDE, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Store a file
///
/// Streamed; the file may be of any kind. `If-Match: "sha256"` replaces that version, `If-None-Match: *` creates the file.
#[utoipa::path(
    put, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "putFile",
    params(
        ("run" = RunId, Path), ("path" = String, Path, description = "The path, with unescaped slashes."),
        ("If-Match" = Option<String>, Header, description = "The ETag of the version to replace."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: the file must not exist."),
        ("X-Reason" = String, Header, description = REASON_FORMAT),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "The ID of the call.")
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was replaced.", body = StoredFile),
        (status = 201, description = "The file was created.", body = StoredFile),
    ),
)]
pub(crate) async fn put_file(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path((_run, path)): Path<(String, String)>,
    Query(()): Query<()>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let precondition = match (headers.get(header::IF_MATCH), headers.get(header::IF_NONE_MATCH)) {
        _ if headers.contains_key(header::CONTENT_RANGE) => Err(partial_upload()),
        (Some(known), None) => parse_etag(known).map(Some),
        (None, Some(none)) if none == "*" => Ok(None),
        (None, None) => Err(missing_precondition()),
        (Some(_) | None, Some(_)) => Err(invalid_precondition()),
    };
    let (expected, options) = with_precondition(precondition, call_options(&headers));
    let announced = body.size_hint().exact();
    let min_rate = MinRate::of(&service.state.http_limits);
    let upload = FileUpload { expected, announced, receive: move || receive(body, min_rate) };
    // The future has the upload's buffers and the state of the whole call: too large for the stack of every layer above it.
    let stored_file = Box::pin(service.calls.put_file(&run, caller, &path, &options, upload));
    let answer = stored_file.await.map_err(failed_precondition)?;
    let status = if expected.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(stored(status, &answer))
}

/// Delete a file
#[utoipa::path(
    delete, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "deleteFile",
    params(
        ("run" = RunId, Path), ("path" = String, Path, description = "The path, with unescaped slashes."),
        ("If-Match" = String, Header, description = "The ETag of the version to delete."),
        ("X-Reason" = String, Header, description = REASON_FORMAT),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "The ID of the call.")
    ),
    responses((status = 200, description = "The file was deleted.", body = StoredFile)),
)]
pub(crate) async fn delete_file(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path((_run, path)): Path<(String, String)>,
    Query(()): Query<()>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = headers.get(header::IF_MATCH).ok_or_else(missing_precondition);
    let (expected, options) = with_precondition(known.and_then(parse_etag).map(Some), call_options(&headers));
    let answer =
        service.calls.delete_file(&run, caller, &path, expected, &options).await.map_err(failed_precondition)?;
    Ok(stored(StatusCode::OK, &answer))
}

/// Reads what the headers say about the call.
pub(crate) fn call_options(headers: &HeaderMap) -> FileCallOptions {
    options_of(headers, &[&REASON, &TOOL_CALL_ID])
}

/// As [`call_options`], of these headers alone.
fn options_of(headers: &HeaderMap, names: &[&HeaderName]) -> FileCallOptions {
    let mut options = FileCallOptions::default();
    for (name, option) in [(&REASON, &mut options.reason), (&TOOL_CALL_ID, &mut options.tool_call_id)] {
        if !names.contains(&name) {
            continue;
        }
        let Some(value) = headers.get(name) else { continue };
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| {
            let message = format!("the header {name} is not UTF-8");
            Refusal::invalid(message, "Encode the header as UTF-8.")
        });
        match text.and_then(|text| if *name == REASON { reason::decode(text) } else { Ok(text.to_owned()) }) {
            Ok(text) => *option = Some(text),
            Err(refusal) => options.refusal = Some(refusal),
        }
    }
    options
}

/// Returns the version that a call expects. A missing or invalid precondition is refused by the call itself, since every
/// call of an authenticated caller is recorded.
fn with_precondition(
    precondition: Result<Option<Sha256>, Refusal>,
    options: FileCallOptions,
) -> (Option<Sha256>, FileCallOptions) {
    match precondition {
        Ok(expected) => (expected, options),
        Err(refusal) => {
            let refusal = match options.refusal {
                Some(first) => first.first(refusal),
                None => refusal,
            };
            (None, FileCallOptions { refusal: Some(refusal), ..options })
        }
    }
}

fn stored(status: StatusCode, answer: &Answer) -> Response {
    let hash = answer.output.sha256();
    let mut response = (status, json_text(answer.to_json())).into_response();
    response.headers_mut().extend(hash.map(|hash| (header::ETAG, etag(&hash))));
    response
}

fn problem(failed: Failed) -> Problem {
    Problem::from(failed.error).of_call(failed.tool_call_id)
}

/// As [`problem`], with status 412 if the file is not in the expected state.
fn failed_precondition(failed: Failed) -> Problem {
    let is_precondition = matches!(
        failed.error.as_error(),
        CallError::Refused(refusal) if matches!(refusal.code, Code::WriteConflict | Code::AlreadyExists)
    );
    let problem = problem(failed);
    if is_precondition { problem.with_status(StatusCode::PRECONDITION_FAILED) } else { problem }
}

fn file_response(transfer: Transfer, etag: HeaderValue, part: Option<(u64, u64)>, is_head: bool) -> Response {
    let size = transfer.state.size_bytes;
    let (from, to) = part.unwrap_or((0, size));
    let media_type = if transfer.state.kind == FileKind::Binary { "application/octet-stream" } else { "text/plain" };
    let mut response = Response::builder()
        .status(if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK })
        .header(header::ETAG, etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, media_type)
        .header(header::CONTENT_LENGTH, to - from);
    if part.is_some() {
        response = response.header(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", to - 1));
    }
    let body = match (is_head, transfer.bytes()) {
        (true, _) => Body::empty(),
        // Of a known size, so that it counts in the memory of answers; a part too, which would hold all of the file.
        (false, Some(bytes)) => {
            let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            Body::from(Bytes::copy_from_slice(&bytes[at(from)..at(to)]))
        }
        (false, None) => file_body(transfer, from, to),
    };
    response.body(body).unwrap_or_else(|_| Problem::internal().into_response())
}

/// Streams bytes of a file. A chunk that does not belong to the announced version aborts the connection.
fn file_body(transfer: Transfer, from: u64, to: u64) -> Body {
    let chunks = stream::try_unfold((Arc::new(transfer), from), move |(transfer, position)| async move {
        if position >= to {
            return Ok::<_, io::Error>(None);
        }
        let source = Arc::clone(&transfer);
        let read = tokio::task::spawn_blocking(move || source.read_chunk(position, to - position)).await;
        let chunk = read.map_err(io::Error::other)??;
        if chunk.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let next = position + chunk.len() as u64;
        Ok(Some((Bytes::from(chunk), (transfer, next))))
    });
    Body::from_stream(chunks)
}

/// Starts receiving a body. If it ends early or is too slow the last item is an error.
fn receive(body: Body, min_rate: MinRate) -> Chunks {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_CHUNKS);
    let mut body = BodyReader::new(body, min_rate);
    tokio::spawn(async move {
        loop {
            let chunk = tokio::select! {
                chunk = body.next_chunk() => chunk,
                // The receiver has stopped reading.
                () = sender.closed() => return,
            };
            let chunk = match chunk {
                Ok(None) => return,
                Ok(Some(data)) => Ok(data),
                Err(BodyError::Disconnected) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(BodyError::TooSlow) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            };
            let is_last = chunk.is_err();
            if sender.send(chunk).await.is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
