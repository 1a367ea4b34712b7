//! The route of change sets: what a command has changed outside of the service.

use std::time::Duration;
use std::{fmt, io};

use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::CallError;
use engine::calls::{ApplyChangesetRequest, Failed, Layer, MAX_LAYER_IN_MEMORY, changeset_id};
use engine::tools::{APPLY_CHANGESET, AppliedChangeset};
use futures_util::stream;
use model::{Code, Refusal, RunId, ToolCallId};
use multer::{Field, Multipart};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::http::auth::RunCaller;
use crate::http::extract::body::{BodyError, BodyReader, closed, disconnected, large_body_rate, too_slow};
use crate::http::extract::{Query, json_text};
use crate::http::problem::{Problem, ProblemBody, body_too_large};
use crate::http::transfer::MinRate;
use crate::service::Service;

/// The part with the JSON.
const CHANGESET: &str = "changeset";
/// The part with the layer.
const LAYER: &str = "layer";
/// The maximum size of the JSON with the borders of the parts, in bytes.
const MAX_CHANGESET_BYTES: u64 = 256 * 1024;
/// The largest request that is received into memory, in bytes.
const MAX_IN_MEMORY: u64 = MAX_LAYER_IN_MEMORY + MAX_CHANGESET_BYTES;
/// Chunks of a layer that may wait for the disk.
const MAX_WAITING_CHUNKS: usize = 16;
const HINT: &str =
    "Send multipart/form-data with the part `changeset` (JSON), and then the part `layer` (a tar, tar.gz or tar.zst).";

/// The parts of a request, for the API document.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only the derived description is used")]
pub(crate) struct ChangesetParts {
    /// What the change set is about.
    changeset: ApplyChangesetRequest,
    /// The changes: a tar in the form of a layer of an OCI image, as it is or compressed with gzip or zstd. A new or replaced file is an
    /// entry with its mode; a deleted file or folder is an empty entry whose name begins with `.wh.`. The pax record `WORKSPACED.base` of an
    /// entry is the SHA-256 of the version that it was made from, or `none`: of a folder that has newer versions of some files than the
    /// record that it is at. Default: the version at `basedOnSeq`.
    #[schema(value_type = String, format = Binary)]
    layer: Vec<u8>,
}

/// The answer, with what every mutation's answer has.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangesetAnswer {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
    /// The ID of the change set.
    tool_call_id: String,
    /// The number of its record.
    seq: u64,
    /// The hash of that record.
    head_hash: String,
    #[serde(flatten)]
    applied: AppliedChangeset,
    /// The diff.
    artifact_uris: Vec<String>,
    /// One line that describes the change.
    summary: String,
    /// Warnings for the caller.
    warnings: Vec<String>,
}

/// Apply a change set
///
/// What a command has changed outside of the service: all of it, or nothing. Each file is judged by the rules of every mutation, with the
/// limits of `commandBudget`, and replaces the version that it had at `basedOnSeq`. Generated and vendored files, and those that git
/// ignores, are not taken and are counted in `notTaken`. The command is recorded as an event before the change set, in the same commit;
/// if the set is refused, by itself. `revert_calls` undoes a change set by its ID. Requires the permission `changeset:apply`, which a
/// token has only if it was issued with it. At most 50,000 entries. A file has at most `maxTransferBytes` of the policy; all together have at
/// most as much, or 64 MiB if that is more, and the layer as it is sent, or 16 MiB.
#[utoipa::path(
    post, path = "/v1/runs/{run}/changesets", tag = "files", operation_id = "applyChangeset", params(("run" = RunId, Path)),
    request_body(content = ChangesetParts, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "The change set is applied, now or before.", body = ChangesetAnswer),
        (status = 202, description = "`APPROVAL_REQUIRED`: it waits for a person.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "`WRITE_CONFLICT`: a file has changed since `basedOnSeq`; `CHANGED_OUTSIDE`; `RUN_CLOSED`; \
            `TOOL_CALL_ID_REUSED`.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn apply_changeset(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    service.calls.check_permitted(&run, &caller, &APPLY_CHANGESET, None).await.map_err(problem)?;
    let received = Parts::receive(&service, &run, &headers, body, (CHANGESET, HINT), changeset_id).await;
    let with_layer = |parts: Parts| -> Result<_, NotReceived> {
        let missing = || Refusal::invalid("the part `layer` is missing", HINT);
        Ok((parts.json, parts.layer.ok_or_else(missing)?))
    };
    let (changeset, layer) = match received.and_then(with_layer) {
        Ok(parts) => parts,
        Err(NotReceived::Refused(refusal)) => {
            return Err(closed(problem(service.calls.refuse_changeset(&run, caller, refusal).await)));
        }
        Err(NotReceived::Failed(problem)) => return Err(problem),
    };
    let is_cut = layer.is_err();
    // The future has the whole call: too large for the stack of every layer above it.
    let answer = Box::pin(service.calls.apply_changeset(&run, caller, &changeset, layer)).await.map_err(problem);
    // Of a layer that was refused on its way, the rest is not read.
    let answer = answer.map_err(|problem| if is_cut { closed(problem) } else { problem })?;
    Ok(json_text(answer.to_json()).into_response())
}

/// The parts of a request.
pub(crate) struct Parts {
    /// The JSON.
    pub(crate) json: Bytes,
    /// The layer, or why it is not taken.
    pub(crate) layer: Option<Result<Layer, Refusal>>,
}

/// Why a request was not received.
pub(crate) enum NotReceived {
    /// It cannot be read, or has too much. The rest of it is not read.
    Refused(Refusal),
    /// Nothing of it is recorded.
    Failed(Problem),
}

impl From<Refusal> for NotReceived {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<CallError> for NotReceived {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => Self::Refused(refusal),
            error => Self::Failed(error.into()),
        }
    }
}

/// Why the stream of a body has ended.
#[derive(Debug)]
struct BrokenBody(BodyError);

impl fmt::Display for BrokenBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body ended early")
    }
}

impl std::error::Error for BrokenBody {}

impl Parts {
    /// Receives the parts of a request: the JSON, whose part is `document`, and a layer, which is received into a file if it is large. It is
    /// that of the set that `set_id` finds in the JSON, if that comes first.
    pub(crate) async fn receive(
        service: &Service,
        run: &RunId,
        headers: &HeaderMap,
        body: Body,
        (document, hint): (&str, &str),
        set_id: impl Fn(&[u8]) -> Option<ToolCallId>,
    ) -> Result<Self, NotReceived> {
        let http = &service.state.http_limits;
        let announced = body.size_hint().exact();
        // A body of unknown length may be as long as the limit.
        let in_memory = announced.unwrap_or(MAX_IN_MEMORY).min(MAX_IN_MEMORY);
        if let Some(announced) = announced.filter(|announced| *announced > MAX_IN_MEMORY) {
            let limit = Box::pin(service.calls.max_layer_bytes(run)).await?;
            if announced > limit.saturating_add(MAX_CHANGESET_BYTES) {
                return Err(body_too_large(limit + MAX_CHANGESET_BYTES).into());
            }
        }
        if in_memory > 0 {
            let reserved = service.calls.acquire_body(in_memory, http.body_timeout).await;
            reserved.map_err(|refusal| NotReceived::Failed(closed(refusal.into())))?;
        }
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(content_type).map_err(|_| {
            Refusal::invalid("the body's Content-Type is not multipart/form-data with a boundary", hint)
        })?;
        let min_rate = large_body_rate(http);
        // The rate of each part of the body would permit to send most of it at once and the rest slowly.
        let most = http.body_timeout
            + Duration::from_secs(announced.unwrap_or(MAX_IN_MEMORY) / min_rate.bytes_per_second.max(1));
        let receive = receive(service, run, (body, boundary), min_rate, (document, hint), set_id);
        let timed_out = |_| Err(NotReceived::Failed(too_slow(min_rate)));
        tokio::time::timeout(most, receive).await.unwrap_or_else(timed_out)
    }
}

async fn receive(
    service: &Service,
    run: &RunId,
    (body, boundary): (Body, String),
    min_rate: MinRate,
    (document, hint): (&str, &str),
    set_id: impl Fn(&[u8]) -> Option<ToolCallId>,
) -> Result<Parts, NotReceived> {
    let chunks = stream::try_unfold(BodyReader::new(body, min_rate), |mut body| async move {
        // The parser takes all that is ready before it looks at it: one chunk at a time.
        tokio::task::yield_now().await;
        let chunk = body.next_chunk().await.map_err(BrokenBody)?;
        Ok::<_, BrokenBody>(chunk.map(|chunk| (chunk, body)))
    });
    let mut parts = Multipart::new(chunks, boundary);
    let (mut json, mut layer) = (None, None);
    let damaged = |error: multer::Error| not_received(&error, min_rate, hint);
    while let Some(part) = parts.next_field().await.map_err(damaged)? {
        match part.name() {
            Some(name) if name == document && json.is_none() => json = Some(small_part(part, damaged).await?),
            Some(LAYER) if layer.is_none() => {
                let set = json.as_deref().and_then(&set_id);
                let received = layer_part(service, (run, set), part, damaged).await?;
                let is_refused = received.is_err();
                layer = Some(received);
                if is_refused && json.is_some() {
                    break;
                }
            }
            Some(name) if name == document || name == LAYER => {
                return Err(Refusal::invalid("the body has a part twice", hint).into());
            }
            name => {
                let name = model::excerpt(name.unwrap_or_default(), 100);
                return Err(Refusal::invalid(format!("the body has the unknown part `{name}`"), hint).into());
            }
        }
    }
    let json = json.ok_or_else(|| Refusal::invalid(format!("the part `{document}` is missing"), hint))?;
    Ok(Parts { json, layer })
}

fn not_received(error: &multer::Error, min_rate: MinRate, hint: &str) -> NotReceived {
    let broken = match error {
        multer::Error::StreamReadFailed(source) => source.downcast_ref::<BrokenBody>(),
        _ => None,
    };
    match broken {
        Some(BrokenBody(BodyError::TooSlow)) => NotReceived::Failed(too_slow(min_rate)),
        Some(BrokenBody(BodyError::Disconnected)) => NotReceived::Failed(disconnected()),
        None => Refusal::invalid(format!("the body is no valid multipart/form-data: {error}"), hint).into(),
    }
}

/// Receives the part with the JSON.
async fn small_part(mut part: Field<'_>, damaged: impl Fn(multer::Error) -> NotReceived) -> Result<Bytes, NotReceived> {
    let mut bytes = Vec::new();
    while let Some(chunk) = part.chunk().await.map_err(&damaged)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_CHANGESET_BYTES {
            return Err(body_too_large(MAX_CHANGESET_BYTES).into());
        }
    }
    Ok(bytes.into())
}

/// Receives a layer: into memory, or from the first byte on that is too much for it, into a file of the run.
async fn layer_part(
    service: &Service,
    (run, set): (&RunId, Option<ToolCallId>),
    mut part: Field<'_>,
    damaged: impl Fn(multer::Error) -> NotReceived,
) -> Result<Result<Layer, Refusal>, NotReceived> {
    let mut first = Vec::new();
    while let Some(chunk) = part.chunk().await.map_err(&damaged)? {
        first.extend_from_slice(&chunk);
        if first.len() as u64 <= MAX_LAYER_IN_MEMORY {
            continue;
        }
        let (sender, receiver) = mpsc::channel(MAX_WAITING_CHUNKS);
        let receive = Box::pin(service.calls.receive_layer(run, set.as_ref(), first, receiver));
        let (forwarded, received) = tokio::join!(forward(&mut part, sender), receive);
        forwarded.map_err(damaged)?;
        return match received {
            Ok(layer) => Ok(Ok(layer)),
            // The command of a set that is refused is recorded; who sends too much records it itself, since it may not have been read.
            Err(CallError::Refused(refusal)) if refusal.code != Code::BodyTooLarge && !refusal.code.is_retryable() => {
                Ok(Err(refusal))
            }
            Err(error) => Err(error.into()),
        };
    }
    Ok(Ok(Bytes::from(first).into()))
}

/// Forwards the rest of a part, as long as it is taken.
async fn forward(part: &mut Field<'_>, to: mpsc::Sender<io::Result<Bytes>>) -> Result<(), multer::Error> {
    while let Some(chunk) = part.chunk().await? {
        if to.send(Ok(chunk)).await.is_err() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn problem(failed: Failed) -> Problem {
    Problem::from(failed.error).of_call(failed.tool_call_id)
}
