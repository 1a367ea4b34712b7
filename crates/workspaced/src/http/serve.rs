//! The accept loop: limits and times out connections, and drains them at shutdown.

mod connections;
mod handshakes;
mod request_body;
pub(crate) mod timeout_stream;
pub(crate) mod tls;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
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
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::config::http_limits::HttpLimits;
use crate::http::auth::bearer::PeerAddr;
use crate::http::conventions::request_ids;
use crate::http::problem::Problem;
use crate::http::serve::connections::Connections;
use crate::http::serve::handshakes::Handshakes;
use crate::http::serve::request_body::BodyTracker;
use crate::http::serve::timeout_stream::{NotifyOnDropBody, Phase, TimeoutStream, Timeouts};
use crate::http::serve::tls::{Certificate, TlsStream};
use crate::telemetry;

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
    // What one node accepts, the one that it forwards it to accepts as well.
    http.max_buf_size(MAX_BUFFER_BYTES + HOP_BYTES).max_headers(MAX_HEADERS + HOP_HEADERS);
    // Half of the connections: the other half stays for those that have completed their handshake.
    let max_handshakes = limits.max_connections.div_ceil(2);
    let tls = certificate
        .map(|certificate| Handshakes::new(certificate, max_handshakes, limits.header_timeout, shutdown.clone()));
    let connections = Connections::new(limits.max_connections);
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let server = Arc::new(Server { http, router, timeouts, connections, refusals, tls });
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
        if self.tls.is_none() {
            // Boxed, because the task would have it several times.
            let connection = Box::pin(watcher.watch(self.connection(Either::Left(stream), peer)));
            tokio::spawn(async move { open.unless_ended(complete(connection)).await });
            return;
        }
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let Some(tls) = &server.tls else { return };
            let Some(Some(stream)) = open.unless_ended(tls.complete(stream)).await else { return };
            let connection = Box::pin(watcher.watch(server.connection(Either::Right(stream), peer)));
            drop(server);
            open.unless_ended(complete(connection)).await;
        });
    }

    /// Returns the connection over `stream`, which answers requests when it is polled.
    fn connection(&self, stream: Stream, peer: PeerAddr) -> impl GracefulConnection<Error = hyper::Error> + use<> {
        let phase = peer.phase.clone();
        let stream = TokioIo::new(TimeoutStream::new(stream, phase.clone(), self.timeouts));
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
