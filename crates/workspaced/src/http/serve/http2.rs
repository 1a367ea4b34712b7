//! Connections of HTTP/2, over TLS or with prior knowledge. What holds for one of HTTP/1 holds here for each request, and for the
//! connection as a whole.

mod sending;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::http::auth::bearer::PeerAddr;
use crate::http::serve::http2::sending::{OpenRequest, PacedBody, Sending, while_received};
use crate::http::serve::timeout_stream::{Phase, TimeoutStream, Timeouts};

/// Maximum concurrent requests of a connection.
const MAX_STREAMS: u32 = 128;
/// Bytes of a request body that a client may send before somebody reads them. Small, because no caller was granted memory for them;
/// large enough for 2.5 MB/s over 50 ms.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// The same, of all requests of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Maximum number of requests that the client has withdrawn before they were looked at, and of those that were refused as malformed.
const MAX_RESETS: usize = 32;
/// Maximum bytes of a response that the connection has in memory.
const MAX_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// How long a connection without requests may take to close.
const LINGER: Duration = Duration::from_secs(2);

/// Limits of a request's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    /// Maximum size in bytes.
    pub(crate) bytes: usize,
    /// Maximum number of headers.
    pub(crate) headers: usize,
}

/// Answers the requests of the connection `stream` until it ends. At `shutdown`, those in progress are completed.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut stream: TimeoutStream<S>,
    router: Router,
    peer: PeerAddr,
    timeouts: Timeouts,
    limits: HeadLimits,
    shutdown: CancellationToken,
) {
    stream.expect_frames();
    let executor = StreamExecutor::default();
    let mut http = http2::Builder::new(executor.clone());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .max_header_list_size(u32::try_from(limits.bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_RESETS);
    let phase = peer.phase.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let (sending, open) = (Sending::new(timeouts.write), OpenRequest::begin(&peer.phase));
        executor.watch_next(&sending);
        answer(router.clone(), request, peer.clone(), limits, sending, open)
    });
    let mut connection = Box::pin(http.serve_connection(TokioIo::new(stream), answer));
    let ended = tokio::select! {
        biased;
        ended = &mut connection => Some(ended),
        () = shutdown.cancelled() => None,
        () = until_idle_too_long(&phase, &timeouts) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        // The client is told which requests are the last, and that the connection closes.
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            ended = connection => ended,
            () = until_closing_too_long(&phase) => Ok(()),
        }
    };
    if let Err(error) = ended {
        // The client disconnected, timed out, or broke the protocol.
        tracing::debug!(%error, "connection failed");
    }
}

/// Answers one request.
async fn answer(
    mut router: Router,
    request: Request<Incoming>,
    peer: PeerAddr,
    limits: HeadLimits,
    sending: Arc<Sending>,
    open: OpenRequest,
) -> Result<hyper::Response<PacedBody>, Infallible> {
    let response = if request.headers().len() > limits.headers {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        response
    } else {
        let mut request = with_host(request.map(Body::new));
        request.extensions_mut().insert(peer);
        router.call(request).await?
    };
    Ok(response.map(|body| PacedBody::new(body, sending, open)))
}

/// Names the host of a request where one of HTTP/1 does, and leaves its path as the target.
fn with_host(mut request: Request) -> Request {
    let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    request
}

/// Returns once the connection waits too long for a request. Whatever else its client sends does not count.
async fn until_idle_too_long(phase: &Phase, timeouts: &Timeouts) {
    loop {
        match phase.time_left(timeouts) {
            Some(Duration::ZERO) => return,
            Some(left) => tokio::time::sleep(left).await,
            // When the request ends is not told here: an idle connection then lives an eighth longer.
            None => tokio::time::sleep(timeouts.idle / 8).await,
        }
    }
}

/// Returns once a connection that closes has had no request for a moment.
async fn until_closing_too_long(phase: &Phase) {
    loop {
        tokio::time::sleep(LINGER).await;
        if !phase.is_answering() && phase.waited() >= LINGER {
            return;
        }
    }
}

/// Spawns the tasks of a connection's requests.
#[derive(Clone, Debug, Default)]
struct StreamExecutor(Arc<Mutex<Option<Arc<Sending>>>>);

impl StreamExecutor {
    /// Watches the next task: hyper spawns that of a request right after it has asked the service for its future.
    fn watch_next(&self, sending: &Arc<Sending>) {
        *self.0.lock() = Some(Arc::clone(sending));
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, answer: F) {
        let next = self.0.lock().take();
        match next {
            Some(sending) => tokio::spawn(while_received(answer, sending)),
            None => tokio::spawn(answer),
        };
    }
}
