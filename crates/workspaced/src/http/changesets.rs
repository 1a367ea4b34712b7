//! The route of change sets: what a command has changed outside of the service.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::calls::{ApplyChangesetRequest, Failed};
use engine::tools::{APPLY_CHANGESET, AppliedChangeset, MAX_LAYER_BYTES};
use futures_util::stream;
use model::{Refusal, RunId};
use multer::Multipart;
use serde::Serialize;

use crate::http::auth::RunCaller;
use crate::http::extract::body::{closed, receive_whole};
use crate::http::extract::{Query, json_text};
use crate::http::problem::{Problem, ProblemBody, body_too_large};
use crate::service::Service;

/// The part with the JSON.
const CHANGESET: &str = "changeset";
/// The part with the layer.
const LAYER: &str = "layer";
/// The maximum size of the JSON with the borders of the parts, in bytes.
const MAX_CHANGESET_BYTES: u64 = 256 * 1024;
/// The maximum size of a whole request, in bytes.
pub(crate) const MAX_BYTES: u64 = MAX_LAYER_BYTES + MAX_CHANGESET_BYTES;
const HINT: &str =
    "Send multipart/form-data with the part `changeset` (JSON), and then the part `layer` (a tar, tar.gz or tar.zst).";

/// The parts of a request, for the API document.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only the derived description is used")]
pub(crate) struct ChangesetParts {
    /// What the change set is about.
    changeset: ApplyChangesetRequest,
    /// The changes: a tar in the form of a layer of an OCI image, as it is or compressed with gzip or zstd. A new or replaced file is an
    /// entry with its mode; a deleted file or folder is an empty entry whose name begins with `.wh.`.
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
/// token has only if it was issued with it. At most 16 MiB as sent, and 64 MiB, 50,000 entries and 8 MiB a file when unpacked.
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
    service.calls.check_permitted(&run, &caller, &APPLY_CHANGESET).await.map_err(problem)?;
    let Some(body) = receive_whole(&service, body, MAX_BYTES).await? else {
        let failed = service.calls.refuse_changeset(&run, caller, body_too_large(MAX_BYTES)).await;
        return Err(closed(problem(failed)));
    };
    let (changeset, layer) = match parts(&headers, body, CHANGESET, HINT).await.and_then(with_layer) {
        Ok(parts) => parts,
        Err(refusal) => return Err(problem(service.calls.refuse_changeset(&run, caller, refusal).await)),
    };
    // The future has the whole call: too large for the stack of every layer above it.
    let answer = Box::pin(service.calls.apply_changeset(&run, caller, &changeset, layer)).await.map_err(problem)?;
    Ok(json_text(answer.body).into_response())
}

fn with_layer((changeset, layer): (Bytes, Option<Bytes>)) -> Result<(Bytes, Bytes), Refusal> {
    let missing = || Refusal::invalid("the part `layer` is missing", HINT);
    Ok((changeset, layer.ok_or_else(missing)?))
}

/// Returns the parts of a request: the JSON, whose part is `document`, and the layer.
pub(crate) async fn parts(
    headers: &HeaderMap,
    body: Vec<u8>,
    document: &str,
    hint: &str,
) -> Result<(Bytes, Option<Bytes>), Refusal> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(content_type)
        .map_err(|_| Refusal::invalid("the body's Content-Type is not multipart/form-data with a boundary", hint))?;
    let body = Bytes::from(body);
    let mut parts = Multipart::new(stream::iter([Ok::<_, Infallible>(body)]), boundary);
    let (mut json, mut layer) = (None, None);
    let damaged =
        |error: multer::Error| Refusal::invalid(format!("the body is no valid multipart/form-data: {error}"), hint);
    while let Some(part) = parts.next_field().await.map_err(damaged)? {
        let slot = match part.name() {
            Some(name) if name == document => &mut json,
            Some(LAYER) => &mut layer,
            name => {
                let name = model::excerpt(name.unwrap_or_default(), 100);
                return Err(Refusal::invalid(format!("the body has the unknown part `{name}`"), hint));
            }
        };
        if slot.is_some() {
            return Err(Refusal::invalid("the body has a part twice", hint));
        }
        *slot = Some(part.bytes().await.map_err(damaged)?);
    }
    let missing = || Refusal::invalid(format!("the part `{document}` is missing"), hint);
    let json = json.ok_or_else(missing)?;
    if json.len() as u64 > MAX_CHANGESET_BYTES {
        return Err(body_too_large(MAX_CHANGESET_BYTES));
    }
    Ok((json, layer))
}

fn problem(failed: Failed) -> Problem {
    Problem::from(failed.error).of_call(failed.tool_call_id)
}
