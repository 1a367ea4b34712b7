//! A run as a whole, in as an archive, out as an archive, a diff or a git bundle, streamed between the connection and a thread that may block.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes, BytesMut};
use model::{Refusal, Run, RunId};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::artifacts::{BundleCommit, Export, Outlet};
use crate::http::auth::{Operator, RunCaller};
use crate::http::extract::{CutShort, Incoming, Json, Path, Query, dripping};
use crate::http::pace::MinRate;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Pieces that may wait between the connection and the thread.
const MAX_WAITING: usize = 4;
/// How much is gathered before it is handed to the connection.
const PIECE_BYTES: usize = 64 * 1024;

/// Sends the archive that a run is made from.
///
/// A tar or tar.gz. One that is refused leaves the run `preparing`: another may be sent.
#[utoipa::path(
    put, path = "/v1/runs/{run}/archive", tag = "runs", operation_id = "putArchive", params(("run" = RunId, Path)),
    request_body(content = Vec<u8>, content_type = "application/x-tar", description = "A tar or tar.gz."),
    responses(
        (status = 200, description = "The run, open.", body = Run),
        (status = 409, description = "`ALREADY_EXISTS`: the run has its files; `RUN_CLOSED`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn put_archive(
    State(service): State<Service>,
    _operator: Operator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    body: Body,
) -> Result<Json<Run>, Problem> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let limits = &service.limits;
    let pump = pump(body, sender, limits.max_archive_bytes, MinRate::of(limits));
    let import = service.import_archive(&run, Pieces { receiver, piece: Bytes::new(), ended: false });
    tokio::pin!(pump);
    tokio::pin!(import);
    let (imported, pumped) = tokio::select! {
        imported = &mut import => (imported, Ok(())),
        pumped = &mut pump => (import.await, pumped),
    };
    match (imported, pumped) {
        (Ok(run), _) => Ok(Json(run)),
        // What is wrong with the body says more than what the importer makes of its end.
        (Err(_), Err(problem)) => Err(problem),
        (Err(error), Ok(())) => Err(error.into()),
    }
}

/// Hands the body over piece by piece. Its end is told too: an importer must not take a broken body for a whole one.
async fn pump(body: Body, sender: mpsc::Sender<io::Result<Bytes>>, limit: u64, rate: MinRate) -> Result<(), Problem> {
    let (mut body, mut length) = (Incoming::new(body, rate), 0u64);
    let problem = loop {
        let data = match body.piece().await {
            Ok(Some(data)) => data,
            Ok(None) => {
                // An importer that has ended does not want to know.
                let _ = sender.send(Ok(Bytes::new())).await;
                return Ok(());
            }
            Err(CutShort::BrokenOff) => break broken_off().into(),
            Err(CutShort::TooSlow) => break dripping(rate),
        };
        length += data.len() as u64;
        if length > limit {
            break Problem::body_too_large(limit);
        }
        if sender.send(Ok(data)).await.is_err() {
            return Ok(());
        }
    };
    let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
    Err(problem)
}

fn broken_off() -> Refusal {
    Refusal::invalid("the archive broke off", "Send the whole archive again.")
}

/// A body, as a thread reads it.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(Ok(piece)) if piece.is_empty() => self.ended = true,
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => return Err(error),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.piece.len().min(buf.len());
        self.piece.copy_to_slice(&mut buf[..count]);
        Ok(count)
    }
}

/// Sends a run's tree.
///
/// Secret-like and git-internal files are left out. Needs the permission `file:read`, and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/archive", tag = "files", operation_id = "getArchive", params(("run" = RunId, Path)),
    responses(
        (status = 200, description = "A tar.gz.", body = Vec<u8>, content_type = "application/gzip"),
        (status = 409, description = "`RUN_CLOSED`: the run is preparing or deleted.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_archive(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let export = service.begin_export(&run, caller, Outlet::Archive).await?;
    Ok(stream(&service, export, "application/gzip", &format!("{run}.tar.gz")))
}

/// Sends everything that differs from the base.
///
/// As one unified diff on what the run started with; secret-like files are left out, and ignored ones that the run has not
/// changed. It is streamed, however long it is.
/// Needs the permissions `file:diff` and `file:read`, and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/patch", tag = "files", operation_id = "getPatch", params(("run" = RunId, Path)),
    responses((status = 200, description = "The diff.", body = String, content_type = "text/x-diff",
        example = json!("diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"))),
)]
pub(super) async fn get_patch(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let export = service.begin_export(&run, caller, Outlet::Patch).await?;
    Ok(stream(&service, export, "text/x-diff", &format!("{run}.diff")))
}

/// Sends everything that differs from the base as a git bundle.
///
/// It holds one branch, which is one commit on the base: fetch it into a clone of the repository that the run was made
/// from. The bundle of a run without such a repository holds its base too, as far as policy shows it, and can be cloned.
/// Secret-like and git-internal files are left out, and ignored ones that the run has not changed. Needs the permission
/// `file:read`, and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/bundle", tag = "files", operation_id = "getBundle",
    params(("run" = RunId, Path), BundleCommit),
    responses(
        (status = 200, description = "A git bundle.", body = Vec<u8>, content_type = "application/x-git-bundle"),
        (status = 409, description = "`RUN_CLOSED`: the run is preparing or deleted.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_bundle(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query((commit,)): Query<(BundleCommit,)>,
) -> Result<Response, Problem> {
    let export = service.begin_export(&run, caller, Outlet::Bundle(commit)).await?;
    Ok(stream(&service, export, "application/x-git-bundle", &format!("{run}.bundle")))
}

/// Sends an export while it is written.
fn stream(service: &Service, export: Export, media_type: &'static str, file_name: &str) -> Response {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let outgoing = Outgoing { sender: sender.clone(), piece: BytesMut::new() };
    service.tasks.spawn(async move {
        let cancel = Arc::new(AtomicBool::new(false));
        let write = export.write(outgoing, Arc::clone(&cancel));
        tokio::pin!(write);
        let written = tokio::select! {
            written = &mut write => written,
            () = sender.closed() => {
                // Whoever asked has gone away: nobody needs the rest.
                cancel.store(true, Ordering::Relaxed);
                write.await
            }
        };
        if let Err(error) = written {
            tracing::warn!(error = &error as &dyn std::error::Error, "an export broke off");
            // Breaks the connection off, so that nobody takes a part for the whole.
            let _ = sender.send(Err(io::Error::other("the export broke off"))).await;
        }
    });
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{file_name}\""));
    let mut response = Body::from_stream(ReceiverStream::new(receiver)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().extend(name.ok().map(|name| (header::CONTENT_DISPOSITION, name)));
    response
}

/// A body, as a thread writes it.
struct Outgoing {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl Outgoing {
    fn send(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Outgoing {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(buf);
        if self.piece.len() >= PIECE_BYTES {
            self.send()?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(sent: Vec<io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(sent.len().max(1));
        for piece in sent {
            sender.send(piece).await.unwrap();
        }
        drop(sender);
        let mut incoming = Pieces { receiver, piece: Bytes::new(), ended: false };
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            incoming.read_to_end(&mut all).map(|_| all)
        });
        read.await.unwrap()
    }

    #[tokio::test]
    async fn a_body_is_whole_only_when_its_end_was_told() {
        let piece = || Ok(Bytes::from_static(b"abc"));
        assert_eq!(read(vec![piece(), piece(), Ok(Bytes::new())]).await.unwrap(), b"abcabc");
        assert_eq!(read(vec![piece()]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read(vec![piece(), Err(io::ErrorKind::TimedOut.into())]).await.is_err());
    }

    #[tokio::test]
    async fn a_pump_tells_what_is_wrong_with_the_body() {
        let rate = MinRate { stall: std::time::Duration::from_secs(5), bytes_a_second: 1024 };
        let (sender, mut receiver) = mpsc::channel(8);
        assert!(pump(Body::from("12345"), sender, 5, rate).await.is_ok());
        assert_eq!(receiver.recv().await.unwrap().unwrap(), "12345");
        assert!(receiver.recv().await.unwrap().unwrap().is_empty(), "the end is told");

        let (sender, mut receiver) = mpsc::channel(8);
        let problem = pump(Body::from("123456"), sender, 5, rate).await.unwrap_err();
        assert_eq!(problem.into_response().status(), 413);
        assert!(receiver.recv().await.unwrap().is_err());
    }
}
