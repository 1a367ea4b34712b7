//! Exports of a run: its tree as an archive, its changes as a diff or a git bundle, streamed from a blocking thread.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use engine::runs::{BundleCommit, Export, ExportFormat, ExportedState};
use model::{LogicalPath, RunId};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::http::auth::{DiffReader, RunCaller};
use crate::http::conventions::compression::LAYER;
use crate::http::extract::Query;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Chunks that may wait between the exporting thread and the connection.
const MAX_WAITING_CHUNKS: usize = 4;
/// Output is gathered to chunks of this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// The state of the tree that an archive has.
static SEQ: HeaderName = HeaderName::from_static("workspaced-seq");
static HEAD_HASH: HeaderName = HeaderName::from_static("workspaced-head-hash");
static LEFT_OUT: HeaderName = HeaderName::from_static("workspaced-left-out");
static LEFT_OUT_PATHS: HeaderName = HeaderName::from_static("workspaced-left-out-paths");
/// The most bytes of the paths in a header.
const MAX_NAMED_BYTES: usize = 4 * 1024;

/// The parameters of an archive.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ArchiveQuery {
    /// Only what has changed after the record with this number, as a layer. That of an earlier archive is its `Workspaced-Seq`.
    since: Option<u64>,
}

/// Download a run's tree, or what has changed in it
///
/// The tree as it is at one record, which the header `Workspaced-Seq` names. With `since`, only the files that have changed after that
/// record, as a tar in the form of a layer of an OCI image: a deleted file is an empty one whose name begins with `.wh.`. A layer, and the
/// tree where `Accept` names `application/x-tar`, is compressed by `Accept-Encoding`. The time of a file is that of the record that last changed it, or of the run's creation. Secret-like
/// and git-internal files are left out. Requires the permission `file:read`; the export is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/archive", tag = "files", operation_id = "getArchive",
    params(("run" = RunId, Path), ArchiveQuery),
    responses(
        (status = 200, description = "The tree as a tar.gz, or as a tar; or the layer.", content(
            (Vec<u8> = "application/gzip"),
            (Vec<u8> = "application/x-tar"),
        ), headers(
            ("Workspaced-Seq" = u64, description = "The newest record at this state of the tree."),
            ("Workspaced-Head-Hash" = String, description = "The hash of that record."),
            ("Workspaced-Left-Out" = u64, description = "The number of entries that are left out, without those that git ignores."),
            ("Workspaced-Left-Out-Paths" = String, description = "Their paths, percent-encoded, with commas between them: the first ones, in 4 KiB."),
        )),
        (status = 409, description = "`RUN_CLOSED`: the run is preparing or deleted.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_archive(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query((query,)): Query<(ArchiveQuery,)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let is_plain = query.since.is_some() || accepts_tar(&headers);
    let export =
        service.runs.begin_export(&run, caller, ExportFormat::Archive { since: query.since, is_plain }).await?;
    let state = export.state();
    let mut response = if is_plain {
        stream(&service, export, LAYER, &format!("{run}.tar"))
    } else {
        stream(&service, export, "application/gzip", &format!("{run}.tar.gz"))
    };
    if let Some(ExportedState { seq, head_hash, left_out }) = state {
        let headers = response.headers_mut();
        headers.insert(&SEQ, HeaderValue::from(seq));
        headers.insert(&LEFT_OUT, HeaderValue::from(left_out.count));
        let paths = named(&left_out.paths);
        headers.extend(
            HeaderValue::from_str(&paths)
                .ok()
                .filter(|_| !paths.is_empty())
                .map(|paths| (LEFT_OUT_PATHS.clone(), paths)),
        );
        headers.extend(HeaderValue::from_str(&head_hash.to_string()).ok().map(|hash| (HEAD_HASH.clone(), hash)));
    }
    Ok(response)
}

/// Returns as many paths as a header has room for, percent-encoded, with commas between them.
fn named(paths: &[LogicalPath]) -> String {
    let mut named = String::new();
    for path in paths {
        let path = utf8_percent_encode(path.as_str(), NON_ALPHANUMERIC).to_string();
        if named.len() + path.len() > MAX_NAMED_BYTES {
            break;
        }
        if !named.is_empty() {
            named.push(',');
        }
        named.push_str(&path);
    }
    named
}

/// Whether the reader asks for a tar by name.
fn accepts_tar(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|range| range.split(';').next().is_some_and(|it| it.trim() == LAYER))
}

/// Download a run's changes as a diff
///
/// What `git diff --binary --full-index` writes from the run's base to its tree, so that `git apply` accepts it: with the contents of
/// binary files, renames and modes. Empty if nothing has changed. Leaves out secret-like files, and ignored files that the run has not
/// changed. The first lines, which begin with `#`, name symbolic links that lead out of the tree: those are left out too. Requires the permissions `file:diff` and `file:read`; the export is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/patch", tag = "files", operation_id = "getPatch",
    params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "The diff.", body = String, content_type = "text/x-diff",
            example = json!("diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n")),
    ),
)]
pub(crate) async fn get_patch(
    State(service): State<Service>,
    DiffReader { run, caller, .. }: DiffReader,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let export = service.runs.begin_export(&run, caller, ExportFormat::Patch).await?;
    Ok(stream(&service, export, "text/x-diff", &format!("{run}.diff")))
}

/// Download a run's changes as a git bundle
///
/// The bundle has one branch with one commit on top of the base. Fetch it into a clone of the repository that the run was
/// made from. A run from another source has no bundle: download its patch or its archive. Leaves out secret-like and git-internal
/// files, symbolic links that lead out of the tree, and ignored files that the run has not changed. Requires the permission `file:read`;
/// the export is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/bundle", tag = "files", operation_id = "getBundle",
    params(("run" = RunId, Path), BundleCommit),
    responses(
        (status = 200, description = "The git bundle.", body = Vec<u8>, content_type = "application/x-git-bundle"),
        (status = 414, description = "The URL is longer than 64 KiB; the body is empty."),
        (status = 431, description = "The head of the request is too large; the body is empty."),
        (status = 409, description = "`RUN_CLOSED`: the run is preparing or deleted.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_bundle(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query((commit,)): Query<(BundleCommit,)>,
) -> Result<Response, Problem> {
    let export = service.runs.begin_export(&run, caller, ExportFormat::Bundle(commit)).await?;
    Ok(stream(&service, export, "application/x-git-bundle", &format!("{run}.bundle")))
}

/// Returns a response that sends an export while it is written.
fn stream(service: &Service, export: Export, media_type: &'static str, file_name: &str) -> Response {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_CHUNKS);
    let writer = ChunkWriter { sender: sender.clone(), chunk: BytesMut::new() };
    service.state.tasks.spawn(async move {
        let cancel = Arc::new(AtomicBool::new(false));
        let write = export.write(writer, Arc::clone(&cancel));
        tokio::pin!(write);
        let written = tokio::select! {
            written = &mut write => written,
            () = sender.closed() => {
                // The client disconnected.
                cancel.store(true, Ordering::Relaxed);
                write.await
            }
        };
        if let Err(error) = written {
            if sender.is_closed() {
                tracing::debug!(error = &error as &dyn std::error::Error, "the client left during an export");
                return;
            }
            tracing::warn!(error = &error as &dyn std::error::Error, "export failed");
            // Aborts the connection, so that the client does not take a part for the whole.
            let _ = sender.send(Err(io::Error::other("the export failed"))).await;
        }
    });
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{file_name}\""));
    let mut response = Body::from_stream(ReceiverStream::new(receiver)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().extend(name.ok().map(|name| (header::CONTENT_DISPOSITION, name)));
    response
}

/// Sends what a blocking thread writes in chunks.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    chunk: BytesMut,
}

impl ChunkWriter {
    fn send(&mut self) -> io::Result<()> {
        let chunk = self.chunk.split().freeze();
        self.sender.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(buf);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() { Ok(()) } else { self.send() }
    }
}
