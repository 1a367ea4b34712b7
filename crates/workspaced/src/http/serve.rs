//! The accept loop: connections counted, slow ones cut, the rest let finish at the end.

mod body;
mod wire;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use model::{Code, Refusal};
use socket2::SockRef;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::http::auth::Peer;
use crate::http::problem::Problem;
use crate::http::serve::body::BodyTracker;
use crate::http::serve::wire::{Patience, Phase, Told, Wire};
use crate::telemetry;
use engine::limits::Limits;

/// How long accepting rests when the system has no handles left.
const REST: Duration = Duration::from_millis(100);
/// The most that is read ahead of a connection, in bytes; a head has to fit.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// The system asks for more to send when less than this is unsent: at the least rate of a download well within a standstill.
const UNSENT_BYTES: u32 = 16 * 1024;
/// Connections that the system keeps until they are taken; it keeps no more than it likes itself. Of more than these, each
/// waits for a second and longer until it asks again.
const BACKLOG: u32 = 4096;
/// Connections too many that are being refused at the same time; more are closed without an answer.
const MAX_REFUSALS: usize = 64;
/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// What every connection is served with.
struct Server {
    http: http1::Builder,
    router: Router,
    patience: Patience,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// Listens on `address`.
///
/// # Errors
///
/// Where the address cannot be had.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A service that starts anew takes its address back from connections that are not quite over.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `router` until `shutdown`, then lets requests under way finish within the bound of the settings.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: &Limits, shutdown: CancellationToken) {
    let patience = Patience::of(limits);
    let mut http = http1::Builder::new();
    // The wire has the clocks; this one makes hyper look at it again when a request has been answered.
    http.timer(TokioTimer::new()).header_read_timeout(patience.longest_read());
    http.max_buf_size(MAX_BUFFER_BYTES).max_headers(MAX_HEADERS);
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let server = Server { http, router, patience, places, refusals: Arc::new(Semaphore::new(MAX_REFUSALS)) };
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, address)) => server.take(stream, Peer(address.ip()), graceful.watcher()),
            // Of a connection that went away before it was taken: nothing to do. Of the process: it has to rest.
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "connections cannot be taken");
                tokio::time::sleep(REST).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests still under way are broken off");
    }
}

fn is_of_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Server {
    fn take(&self, stream: TcpStream, peer: Peer, watcher: Watcher) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            telemetry::connection_refused();
            self.refuse(stream);
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection stays with its delay");
        }
        // Otherwise the system reports progress only when a third of its buffer, megabytes, has been taken: a download at
        // a slow and steady rate would look like one that stands still.
        if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES) {
            tracing::debug!(%error, "a connection stays with its buffer");
        }
        let phase = Phase::fresh();
        let wire = TokioIo::new(Wire::new(stream, phase.clone(), self.patience));
        let router = self.router.clone();
        let bodies = BodyTracker::new();
        let service = service_fn(move |mut request: Request<Incoming>| {
            phase.begin();
            request.extensions_mut().insert(peer);
            let (mut router, phase, bodies) = (router.clone(), phase.clone(), bodies.clone());
            async move {
                let mut response = router.call(bodies.track(request)).await?;
                let unread = bodies.settle(&mut response).await;
                Ok::<_, Infallible>(response.map(|body| Told::new(body, phase, unread)))
            }
        });
        let connection = watcher.watch(self.http.serve_connection(wire, service));
        tokio::spawn(async move {
            let _counted = Counted::new(place);
            if let Err(error) = connection.await {
                // Clients that go away, are slow or speak something else: their own affair.
                tracing::debug!(%error, "a connection ended");
            }
        });
    }

    /// Answers a connection too many that there are as many as the service takes. The request is not looked at.
    fn refuse(&self, stream: TcpStream) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let mut wire = Wire::new(stream, Phase::unread(), self.patience);
        tokio::spawn(async move {
            let _permit = permit;
            let answered = async {
                wire.write_all(too_many_connections().as_bytes()).await?;
                wire.shutdown().await
            };
            if let Err(error) = answered.await {
                tracing::debug!(%error, "a connection was refused without an answer");
            }
        });
    }
}

/// A connection that has its place, for as long as this is held.
struct Counted(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Counted {
    fn new(place: OwnedSemaphorePermit) -> Self {
        telemetry::connections(1.0);
        Self(place)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        telemetry::connections(-1.0);
    }
}

/// The whole answer to a connection too many.
fn too_many_connections() -> String {
    let refusal = Refusal::new(
        Code::Unavailable,
        "the service has as many connections as it takes",
        "Try again in a moment, and keep connections for several requests.",
    );
    let (body, media_type) = Problem::from(refusal).text();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {media_type}\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
