//! The accept loop: limits and times out connections, and drains them at shutdown.

mod connections;
mod frames;
mod handshakes;
mod http2;
mod request_body;
pub(crate) mod timeout_stream;
pub(crate) mod tls;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown, Watcher};
use model::{Code, Refusal};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::http::auth::bearer::PeerAddr;
use crate::http::conventions::request_ids;
use crate::http::problem::Problem;
use crate::http::serve::connections::Connections;
use crate::http::serve::frames::PREFACE;
use crate::http::serve::handshakes::Handshakes;
use crate::http::serve::http2::HeadLimits;
use crate::http::serve::request_body::BodyTracker;
use crate::http::serve::timeout_stream::{NotifyOnDropBody, Phase, TimeoutStream, Timeouts};
use crate::http::serve::tls::{Certificate, TlsStream, is_http2};
use crate::telemetry;
use config::http_limits::HttpLimits;

/// How long accepting pauses after an error, such as running out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Size of a connection's read buffer in bytes. Limits the size of a request head.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// The socket becomes writable below this many unsent bytes. Small enough that a download at the minimum rate shows
/// progress well within the stall timeout.
const MAX_UNSENT_BYTES: u32 = 16 * 1024;
/// Connections that the kernel queues until they are accepted, if it allows as many. Clients of further ones retry after
/// a second or more.
const BACKLOG: u32 = 4096;
/// Connections over the limit that are answered at the same time. Further ones are closed without an answer.
const MAX_REFUSALS: usize = 64;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;
/// Headers and bytes that a node adds to a request that it forwards.
const HOP_HEADERS: usize = 8;
const HOP_BYTES: usize = 4 * 1024;
/// What one node accepts, the one that it forwards it to accepts as well.
const HEAD_LIMITS: HeadLimits = HeadLimits { bytes: MAX_BUFFER_BYTES + HOP_BYTES, headers: MAX_HEADERS + HOP_HEADERS };
/// Bytes of a new connection that are read at once.
const FIRST_BYTES: usize = 4 * 1024;

/// A connection, plain or encrypted. The encrypted one is on the heap, so that plain ones stay small.
type Stream = Either<TcpStream, Box<TlsStream>>;

/// What every connection is served with.
struct Server {
    http: http1::Builder,
    router: Router,
    timeouts: Timeouts,
    connections: Arc<Connections>,
    refusals: Arc<Semaphore>,
    /// How connections are encrypted.
    tls: Option<Handshakes>,
    shutdown: CancellationToken,
}

/// Listens on `address`.
///
/// # Errors
///
/// Fails if the address is not available.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted service can bind while connections of its predecessor are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `router` until `shutdown` is cancelled, then drains requests in progress for at most the drain timeout. With a
/// certificate, connections are encrypted.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &HttpLimits,
    certificate: Option<Arc<Certificate>>,
    shutdown: CancellationToken,
) {
    let timeouts = Timeouts::of(limits);
    let mut http = http1::Builder::new();
    // `TimeoutStream` enforces the timeouts. This one is longer, and only makes hyper poll the stream after a response.
    http.timer(TokioTimer::new()).header_read_timeout(timeouts.longest_read());
    http.max_buf_size(HEAD_LIMITS.bytes).max_headers(HEAD_LIMITS.headers);
    // Half of the connections: the other half stays for those that have completed their handshake.
    let max_handshakes = limits.max_connections.div_ceil(2);
    let tls = certificate
        .map(|certificate| Handshakes::new(certificate, max_handshakes, limits.header_timeout, shutdown.clone()));
    let connections = Connections::new(limits.max_connections);
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let shutdown_of_connections = shutdown.clone();
    let server =
        Arc::new(Server { http, router, timeouts, connections, refusals, tls, shutdown: shutdown_of_connections });
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, address)) => server.serve(stream, address.ip(), graceful.watcher()),
            // The client disconnected before its connection was accepted.
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::error!(%error, "failed to accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests in progress are aborted: the drain timeout is over");
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Server {
    fn serve(self: &Arc<Self>, stream: TcpStream, address: IpAddr, watcher: Watcher) {
        let peer = PeerAddr { address, phase: Phase::new() };
        let Some(open) = self.connections.add(address, peer.phase.clone()) else {
            telemetry::connection_refused();
            self.refuse(stream);
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        // By default the socket becomes writable only when a third of its send buffer, which may be megabytes, is free: a
        // slow but steady download would look stalled.
        if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES) {
            tracing::debug!(%error, "failed to set TCP_NOTSENT_LOWAT");
        }
        let server = Arc::clone(self);
        tokio::spawn(async move {
            open.unless_ended(async {
                // Boxed, because the task would have it several times.
                let Some(stream) = Box::pin(server.begin(stream, &peer)).await else { return };
                match stream {
                    Begun::Http1(stream) => {
                        let connection = Box::pin(watcher.watch(server.connection(stream, peer)));
                        drop(server);
                        complete(connection).await;
                    }
                    Begun::Http2(stream) => {
                        let (router, shutdown) = (server.router.clone(), server.shutdown.clone());
                        let connection =
                            Box::pin(http2::serve(stream, router, peer, server.timeouts, HEAD_LIMITS, shutdown));
                        drop(server);
                        connection.await;
                        // The shutdown waits for it, as for the others.
                        drop(watcher);
                    }
                }
            })
            .await;
        });
    }

    /// Encrypts a connection if connections are, and finds out which protocol its client speaks: over TLS as agreed in the
    /// handshake, else by its first bytes. `None` if there is nothing to answer.
    async fn begin(&self, stream: TcpStream, peer: &PeerAddr) -> Option<Begun> {
        let with_timeouts = |stream| TimeoutStream::new(stream, peer.phase.clone(), self.timeouts);
        if let Some(tls) = &self.tls {
            let stream = tls.complete(stream).await?;
            let is_http2 = is_http2(&stream);
            return Some(Begun::of(with_timeouts(Either::Right(stream)), is_http2));
        }
        let mut stream = with_timeouts(Either::Left(stream));
        let is_http2 = tokio::select! {
            is_http2 = begins_with_preface(&mut stream) => is_http2,
            () = self.shutdown.cancelled() => return None,
        };
        match is_http2 {
            Ok(is_http2) => Some(Begun::of(stream, is_http2)),
            Err(error) => {
                tracing::debug!(%error, "connection failed");
                None
            }
        }
    }

    /// Returns the connection over `stream`, which answers requests when it is polled.
    fn connection(
        &self,
        stream: TimeoutStream<Stream>,
        peer: PeerAddr,
    ) -> impl GracefulConnection<Error = hyper::Error> + use<> {
        let phase = peer.phase.clone();
        let stream = TokioIo::new(stream);
        let router = self.router.clone();
        let bodies = BodyTracker::new();
        let service = service_fn(move |mut request: Request<Incoming>| {
            phase.begin_response();
            request.extensions_mut().insert(peer.clone());
            let (mut router, phase, bodies) = (router.clone(), phase.clone(), bodies.clone());
            async move {
                let mut response = router.call(bodies.track(request)).await?;
                let unread = bodies.drain_or_close(&mut response).await;
                Ok::<_, Infallible>(response.map(|body| NotifyOnDropBody::new(body, phase, unread)))
            }
        });
        self.http.serve_connection(stream, service)
    }

    /// Answers a connection over the limit, without reading its request. An encrypted one is closed without an answer: a
    /// handshake is more work than a refusal may take.
    fn refuse(&self, stream: TcpStream) {
        if self.tls.is_some() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let mut stream = TimeoutStream::new(stream, Phase::unread(), self.timeouts);
        tokio::spawn(async move {
            let _permit = permit;
            let answered = async {
                stream.write_all(too_many_connections().as_bytes()).await?;
                stream.shutdown().await
            };
            if let Err(error) = answered.await {
                tracing::debug!(%error, "failed to answer a connection over the limit");
            }
        });
    }
}

/// A connection whose protocol is known.
enum Begun {
    Http1(TimeoutStream<Stream>),
    Http2(TimeoutStream<Stream>),
}

impl Begun {
    fn of(stream: TimeoutStream<Stream>, is_http2: bool) -> Self {
        if is_http2 { Self::Http2(stream) } else { Self::Http1(stream) }
    }
}

/// Whether the client speaks HTTP/2 without having agreed on it. What was read for that is read again afterwards, so that a request
/// of HTTP/1 costs no further call of the kernel.
async fn begins_with_preface(stream: &mut TimeoutStream<Stream>) -> io::Result<bool> {
    let mut received = Vec::new();
    let is_http2 = poll_fn(|cx| {
        loop {
            let mut bytes = [0; FIRST_BYTES];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf))?;
            received.extend_from_slice(buf.filled());
            let is_at_end = buf.filled().is_empty();
            if received.starts_with(PREFACE) {
                return Poll::Ready(Ok::<_, io::Error>(true));
            }
            if is_at_end || !PREFACE.starts_with(&received) {
                return Poll::Ready(Ok(false));
            }
        }
    })
    .await?;
    stream.put_back(received);
    Ok(is_http2)
}

/// Answers the requests of a connection until it ends.
async fn complete(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        // The client disconnected, timed out, or does not speak HTTP.
        tracing::debug!(%error, "connection failed");
    }
}

/// Returns the whole response to a connection over the limit.
fn too_many_connections() -> String {
    let refusal = Refusal::new(
        Code::Unavailable,
        "too many connections",
        "Try again after a moment, and reuse connections for several requests.",
    );
    let ids = request_ids::new_ids();
    let (body, media_type) = request_ids::sync_scope(Arc::clone(&ids), || Problem::from(refusal).text());
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {media_type}\r\nretry-after: 1\r\nconnection: close\r\n\
         x-request-id: {}\r\ncontent-length: {}\r\n\r\n{body}",
        ids.request_id,
        body.len()
    )
}
