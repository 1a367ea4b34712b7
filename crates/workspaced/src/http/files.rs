//! The files plane: whole files as bytes.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use model::{Code, FileKind, Refusal, Sha256};
use serde::Deserialize;
use tokio::sync::mpsc;
use workspace::Transfer;

use crate::calls::{Answer, Failed};
use crate::files::{Pieces, Said, Upload};
use crate::http::auth::RunCaller;
use crate::http::extract::{CutShort, Incoming, Path, Query};
use crate::http::pace::MinRate;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Pieces of an upload that wait for the disk.
const PIECES_WAITING: usize = 16;

static REASON: HeaderName = HeaderName::from_static("x-reason");
static TOOL_CALL_ID: HeaderName = HeaderName::from_static("x-tool-call-id");

/// What the query of a read may say.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FileQuery {
    /// The read-only tree to look at; the workspace itself where it is missing.
    mount: Option<String>,
}

/// Reads a file.
///
/// Whole, or the one `Range` asked for. `ETag` is the quoted SHA-256 of the whole file.
#[utoipa::path(
    get, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "getFile",
    params(
        ("run" = model::RunId, Path), ("path" = String, Path, description = "The file; slashes as they are."), FileQuery,
        ("If-None-Match" = Option<String>, Header, description = "Answer 304 where the file has this ETag."),
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "Names the call.")
    ),
    responses(
        (status = 200, description = "The file.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The part asked for.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 304, description = "The file has the ETag that the caller knows."),
        (status = 416, description = "The file has no such part; `Content-Range` tells its length.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_file(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path(place): Path<(String, String)>,
    Query((query,)): Query<(FileQuery,)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let said = Said { mount: query.mount, ..said(&headers) };
    let transfer = service.get_file(&run, caller, &place.1, &said).await.map_err(problem)?;
    let etag = etag(&transfer.state.sha256);
    if let Some(known) = headers.get(header::IF_NONE_MATCH)
        && matches_etag(known, &etag)
    {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let size = transfer.state.size_bytes;
    let wanted = headers.get(header::RANGE).filter(|_| if_range_holds(&headers, &etag));
    let part = match wanted.map(|range| parse_range(range, size)) {
        None | Some(Asked::Whole) => None,
        Some(Asked::Part(from, to)) => Some((from, to)),
        Some(Asked::Impossible) => return Err(no_such_part(size)),
    };
    Ok(send(transfer, etag, part, method == Method::HEAD))
}

/// Stores a file.
///
/// Streamed, of any kind. `If-Match: "sha"` replaces the version that it names, `If-None-Match: *` creates.
#[utoipa::path(
    put, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "putFile",
    params(
        ("run" = model::RunId, Path), ("path" = String, Path, description = "The file; slashes as they are."),
        ("If-Match" = Option<String>, Header, description = "The ETag of the version that is replaced."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: nothing may be there."),
        ("X-Reason" = String, Header, description = "Why, 1 to 2,000 characters."),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "Names the call.")
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Replaced.", body = crate::tools::files::StoredFile),
        (status = 201, description = "Created.", body = crate::tools::files::StoredFile),
    ),
)]
pub(super) async fn put_file(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path(place): Path<(String, String)>,
    Query(()): Query<()>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let said = said(&headers);
    let wanted = match (headers.get(header::IF_MATCH), headers.get(header::IF_NONE_MATCH)) {
        (Some(known), None) => parse_etag(known).map(Some),
        (None, Some(none)) if none == "*" => Ok(None),
        (None, None) => Err(precondition_required()),
        (Some(_) | None, Some(_)) => Err(bad_precondition()),
    };
    let (expected, said) = expecting(wanted, said);
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let rate = MinRate::of(&service.limits);
    let upload = Upload { expected, announced, begin: move || receive(body, rate) };
    let answer = service.put_file(&run, caller, &place.1, &said, upload).await.map_err(precondition)?;
    let status = if expected.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(stored(status, answer))
}

/// Deletes a file.
#[utoipa::path(
    delete, path = "/v1/runs/{run}/files/{*path}", tag = "files", operation_id = "deleteFile",
    params(
        ("run" = model::RunId, Path), ("path" = String, Path, description = "The file; slashes as they are."),
        ("If-Match" = String, Header, description = "The ETag of the version that goes."),
        ("X-Reason" = String, Header, description = "Why, 1 to 2,000 characters."),
        ("X-Tool-Call-Id" = Option<String>, Header, description = "Names the call.")
    ),
    responses((status = 200, description = "Deleted.", body = crate::tools::files::StoredFile)),
)]
pub(super) async fn delete_file(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Path(place): Path<(String, String)>,
    Query(()): Query<()>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = headers.get(header::IF_MATCH).ok_or_else(precondition_required);
    let (expected, said) = expecting(known.and_then(parse_etag).map(Some), said(&headers));
    let answer = service.delete_file(&run, caller, &place.1, expected, &said).await.map_err(precondition)?;
    Ok(stored(StatusCode::OK, answer))
}

fn said(headers: &HeaderMap) -> Said {
    let mut said = Said::default();
    for (name, place) in [(&REASON, &mut said.reason), (&TOOL_CALL_ID, &mut said.tool_call_id)] {
        let Some(value) = headers.get(name) else { continue };
        if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
            *place = Some(text.to_owned());
        } else {
            let message = format!("the header {name} is no UTF-8");
            said.refusal = Some(Refusal::invalid(message, "Write the header in UTF-8."));
        }
    }
    said
}

/// The version that a call expects. A precondition that is missing or cannot be used is refused by the call itself, since
/// every call of a known caller is recorded.
fn expecting(precondition: Result<Option<Sha256>, Refusal>, said: Said) -> (Option<Sha256>, Said) {
    match precondition {
        Ok(expected) => (expected, said),
        Err(refusal) => {
            let refusal = match said.refusal {
                Some(first) => first.first(refusal),
                None => refusal,
            };
            (None, Said { refusal: Some(refusal), ..said })
        }
    }
}

fn stored(status: StatusCode, answer: Answer) -> Response {
    let members: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    let hash = members.get("newSha256").and_then(|hash| Sha256::parse(hash.as_str()?).ok());
    if let Some(hash) = hash {
        response.headers_mut().insert(header::ETAG, etag(&hash));
    }
    response
}

fn problem(failed: Failed) -> Problem {
    Problem::from(failed.error).of_call(failed.tool_call_id)
}

/// As [`problem`]; a version that is not the expected one fails the request's precondition.
fn precondition(failed: Failed) -> Problem {
    let failed_precondition = matches!(
        &failed.error,
        crate::CallError::Refused(refusal) if matches!(refusal.code, Code::WriteConflict | Code::AlreadyExists)
    );
    let problem = problem(failed);
    if failed_precondition { problem.with_status(StatusCode::PRECONDITION_FAILED) } else { problem }
}

fn precondition_required() -> Refusal {
    Refusal::new(
        Code::PreconditionRequired,
        "the call needs a precondition",
        "Send `If-Match` with the file's ETag to replace or delete it, or `If-None-Match: *` to create it.",
    )
}

fn bad_precondition() -> Refusal {
    Refusal::invalid("the precondition cannot be used", "Send either `If-Match: \"sha256\"` or `If-None-Match: *`.")
}

fn etag(hash: &Sha256) -> HeaderValue {
    // A quoted hash is plain ASCII.
    HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn parse_etag(value: &HeaderValue) -> Result<Sha256, Refusal> {
    let quoted = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
    quoted.and_then(|raw| Sha256::parse(raw).ok()).ok_or_else(bad_precondition)
}

/// Whether a list of tags holds `etag`; weak ones count, as the comparison for a read is weak.
fn matches_etag(list: &HeaderValue, etag: &HeaderValue) -> bool {
    let (Ok(list), Ok(etag)) = (list.to_str(), etag.to_str()) else { return false };
    list.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

fn if_range_holds(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|wanted| wanted == etag)
}

/// What a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Everything: there is no range, or none that is understood.
    Whole,
    /// From the first byte to behind the last.
    Part(u64, u64),
    /// Nothing that the file has.
    Impossible,
}

fn parse_range(value: &HeaderValue, size: u64) -> Asked {
    let Some(range) = value.to_str().ok().and_then(|text| text.trim().strip_prefix("bytes=")) else {
        return Asked::Whole;
    };
    // Several ranges at once are answered with the whole file, as the standard allows.
    let Some((first, last)) = range.split_once('-').filter(|_| !range.contains(',')) else { return Asked::Whole };
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<u64>().ok().map(Some) };
    match (number(first.trim()), number(last.trim())) {
        (Some(Some(from)), Some(last)) if last.is_none_or(|last| from <= last) => {
            let to = last.map_or(size, |last| last.saturating_add(1).min(size));
            if from < size { Asked::Part(from, to) } else { Asked::Impossible }
        }
        (Some(None), Some(Some(suffix))) => {
            if suffix == 0 || size == 0 {
                Asked::Impossible
            } else {
                Asked::Part(size.saturating_sub(suffix), size)
            }
        }
        _ => Asked::Whole,
    }
}

/// The refusal of a range that a file of `size` bytes does not have. HTTP has a status and a header of its own for it.
fn no_such_part(size: u64) -> Problem {
    let message = format!("the file has {size} bytes, none of which the range asks for");
    let refusal = Refusal::invalid(message, "Ask for bytes that the file has, or leave the range out.")
        .with_details(|details| details.actual = Some(size));
    let range =
        HeaderValue::try_from(format!("bytes */{size}")).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"));
    Problem::from(refusal).with_status(StatusCode::RANGE_NOT_SATISFIABLE).with_header(header::CONTENT_RANGE, range)
}

fn send(transfer: Transfer, etag: HeaderValue, part: Option<(u64, u64)>, head: bool) -> Response {
    let size = transfer.state.size_bytes;
    let (from, to) = part.unwrap_or((0, size));
    let media_type = if transfer.state.kind == FileKind::Binary { "application/octet-stream" } else { "text/plain" };
    let mut response = Response::builder()
        .status(if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK })
        .header(header::ETAG, etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, media_type)
        .header(header::CONTENT_LENGTH, to - from)
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if part.is_some() {
        response = response.header(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", to - 1));
    }
    let body = if head { Body::empty() } else { stream_of(transfer, from, to) };
    response.body(body).unwrap_or_else(|_| Problem::internal().into_response())
}

/// The bytes of a file piece by piece; a piece that is not of the announced version breaks the connection off.
fn stream_of(transfer: Transfer, from: u64, to: u64) -> Body {
    let pieces = stream::try_unfold((std::sync::Arc::new(transfer), from), move |(transfer, at)| async move {
        if at >= to {
            return Ok::<_, std::io::Error>(None);
        }
        let source = std::sync::Arc::clone(&transfer);
        let piece =
            tokio::task::spawn_blocking(move || source.piece(at, to - at)).await.map_err(std::io::Error::other)??;
        if piece.is_empty() {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        let next = at + piece.len() as u64;
        Ok(Some((Bytes::from(piece), (transfer, next))))
    });
    Body::from_stream(pieces)
}

/// Hands a body on piece by piece. A body that breaks off, or comes too slowly, ends in an error.
fn receive(body: Body, rate: MinRate) -> Pieces {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let mut body = Incoming::new(body, rate);
    tokio::spawn(async move {
        loop {
            let piece = tokio::select! {
                piece = body.piece() => piece,
                // Nobody wants the rest.
                () = sender.closed() => return,
            };
            let piece = match piece {
                Ok(None) => return,
                Ok(Some(data)) => Ok(data),
                Err(CutShort::BrokenOff) => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
                Err(CutShort::TooSlow) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
            };
            let ended = piece.is_err();
            if sender.send(piece).await.is_err() || ended {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_part_or_the_whole() {
        let table = [
            ("bytes=0-4", 10, Asked::Part(0, 5)),
            ("bytes=5-", 10, Asked::Part(5, 10)),
            ("bytes=-3", 10, Asked::Part(7, 10)),
            ("bytes=-30", 10, Asked::Part(0, 10)),
            ("bytes=8-99", 10, Asked::Part(8, 10)),
            ("bytes=10-", 10, Asked::Impossible),
            ("bytes=-0", 10, Asked::Impossible),
            ("bytes=0-", 0, Asked::Impossible),
            ("bytes=5-2", 10, Asked::Whole),
            ("bytes=0-1,3-4", 10, Asked::Whole),
            ("lines=0-1", 10, Asked::Whole),
        ];
        for (raw, size, want) in table {
            assert_eq!(parse_range(&HeaderValue::from_static(raw), size), want, "{raw}");
        }
    }
}
