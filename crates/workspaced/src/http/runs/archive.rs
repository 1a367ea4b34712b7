//! The upload of the archive that a run is made from, streamed to the blocking thread that imports it.

use std::io::{self, Read};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::{Buf as _, Bytes};
use model::{Refusal, Run, RunId};
use tokio::sync::mpsc;

use crate::http::auth::Orchestrator;
use crate::http::extract::body::{BodyError, BodyReader, too_slow};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::transfer::MinRate;
use crate::service::Service;

/// Chunks that may wait between the connection and the importing thread.
const MAX_WAITING_CHUNKS: usize = 4;

/// Upload the archive that a run is made from
///
/// A tar, tar.gz or tar.zst. If it is refused the run stays `preparing` and another archive may be sent.
#[utoipa::path(
    put, path = "/v1/runs/{run}/archive", tag = "runs", operation_id = "putArchive", params(("run" = RunId, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "A tar, tar.gz or tar.zst. Its media type is not considered."),
    responses(
        (status = 200, description = "The run, which is now open.", body = Run),
        (status = 409, description = "`ALREADY_EXISTS`: the run has its files already; `RUN_CLOSED`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn put_archive(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    body: Body,
) -> Result<Json<Run>, Problem> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_CHUNKS);
    let limits = &service.state.http_limits;
    let send = send_chunks(body, sender, limits.max_archive_bytes, MinRate::of(limits));
    let reader = ChunkReader { receiver, chunk: Bytes::new(), is_complete: false };
    let caller = operator.caller();
    let import = service.runs.import_archive(&run, &caller, reader, Arc::clone(&operator.operator));
    tokio::pin!(send);
    tokio::pin!(import);
    let (imported, sent) = tokio::select! {
        imported = &mut import => (imported, Ok(())),
        sent = &mut send => (import.await, sent),
    };
    match (imported, sent) {
        (Ok(run), _) => Ok(Json(run)),
        // An error of the body explains more than that of the importer, which only sees the body end early.
        (Err(_), Err(problem)) => Err(problem),
        (Err(error), Ok(())) => Err(error.into()),
    }
}

/// Sends the chunks of `body`, and an empty one at its end: an importer must not take a part of an archive for the whole.
async fn send_chunks(
    body: Body,
    sender: mpsc::Sender<io::Result<Bytes>>,
    limit: u64,
    min_rate: MinRate,
) -> Result<(), Problem> {
    let (mut body, mut length) = (BodyReader::new(body, min_rate), 0u64);
    let problem = loop {
        let data = match body.next_chunk().await {
            Ok(Some(data)) => data,
            Ok(None) => {
                // Fails if the importer has stopped reading, which is not an error of the body.
                let _ = sender.send(Ok(Bytes::new())).await;
                return Ok(());
            }
            Err(BodyError::Disconnected) => break ended_early().into(),
            Err(BodyError::TooSlow) => break too_slow(min_rate),
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

fn ended_early() -> Refusal {
    Refusal::invalid("the archive ended early", "Send the whole archive again.")
}

/// Reads the chunks of a body on a blocking thread.
struct ChunkReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
    is_complete: bool,
}

impl Read for ChunkReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.is_complete {
            match self.receiver.blocking_recv() {
                Some(Ok(chunk)) if chunk.is_empty() => self.is_complete = true,
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => return Err(error),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.chunk.len().min(buf.len());
        self.chunk.copy_to_slice(&mut buf[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    async fn read(sent: Vec<io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(sent.len().max(1));
        for chunk in sent {
            sender.send(chunk).await.unwrap();
        }
        drop(sender);
        let mut reader = ChunkReader { receiver, chunk: Bytes::new(), is_complete: false };
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        read.await.unwrap()
    }

    #[tokio::test]
    async fn a_body_is_complete_only_after_its_end_marker() {
        let chunk = || Ok(Bytes::from_static(b"abc"));
        assert_eq!(read(vec![chunk(), chunk(), Ok(Bytes::new())]).await.unwrap(), b"abcabc");
        assert_eq!(read(vec![chunk()]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read(vec![chunk(), Err(io::ErrorKind::TimedOut.into())]).await.is_err());
    }

    #[tokio::test]
    async fn errors_of_the_body_are_reported() {
        let rate = MinRate { stall_timeout: std::time::Duration::from_secs(5), bytes_per_second: 1024 };
        let (sender, mut receiver) = mpsc::channel(8);
        assert!(send_chunks(Body::from("12345"), sender, 5, rate).await.is_ok());
        assert_eq!(receiver.recv().await.unwrap().unwrap(), "12345");
        assert!(receiver.recv().await.unwrap().unwrap().is_empty(), "the end marker");

        let (sender, mut receiver) = mpsc::channel(8);
        let problem = send_chunks(Body::from("123456"), sender, 5, rate).await.unwrap_err();
        assert_eq!(problem.into_response().status(), 413);
        assert!(receiver.recv().await.unwrap().is_err());
    }
}
