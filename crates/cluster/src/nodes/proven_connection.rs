//! Connections to other nodes, each of which has shown that its other end is the process that is meant.
//!
//! The address of a node comes from the database, and may be that of an ended process which another one has now. So a new connection
//! first carries a challenge alone. Only when the answer shows the cluster secret is it used for requests, whose answers then come
//! from that process too.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Request, Uri, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use tower::{BoxError, Layer, Service};

use crate::nodes::peers::{CHALLENGE, HOP_PROOF, new_challenge};
use crate::nodes::proofs::{Peer, Proofs};

/// The time within which a node accepts a connection and shows that it is one.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time within which it accepts the connection.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a connector that connects to one process alone.
#[derive(Clone)]
pub struct ProveConnections {
    peer: Arc<Peer>,
    proofs: Arc<Proofs>,
}

/// The connector.
#[derive(Clone)]
pub struct ProvingConnector<S> {
    connector: S,
    peer: Arc<Peer>,
    proofs: Arc<Proofs>,
}

/// What answers at the address of a node is not that node.
#[derive(Debug, thiserror::Error)]
#[error("another process has the address of the node, or another cluster secret")]
struct Stranger;

impl ProveConnections {
    /// Connects to `peer` alone.
    pub fn new(peer: Peer, proofs: Arc<Proofs>) -> Self {
        Self { peer: Arc::new(peer), proofs }
    }
}

impl<S> Layer<S> for ProveConnections {
    type Service = ProvingConnector<S>;

    fn layer(&self, connector: S) -> Self::Service {
        ProvingConnector { connector, peer: Arc::clone(&self.peer), proofs: Arc::clone(&self.proofs) }
    }
}

impl<S, T> Service<T> for ProvingConnector<S>
where
    S: Service<T, Error = BoxError>,
    S::Response: Read + Write + Unpin + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, to: T) -> Self::Future {
        let connecting = self.connector.call(to);
        let (peer, proofs) = (Arc::clone(&self.peer), Arc::clone(&self.proofs));
        Box::pin(async move {
            let proven = async {
                let connection = tokio::time::timeout(ACCEPT_TIMEOUT, connecting).await.map_err(timed_out)??;
                prove(connection, &peer, &proofs).await
            };
            let proven = tokio::time::timeout(CONNECT_TIMEOUT, proven).await.map_err(timed_out)?;
            proven.inspect_err(|error| {
                let (node_id, error) = (&peer.node.node_id, error.as_ref() as &dyn Error);
                tracing::warn!(node.id = node_id, error, "there is no connection to a node");
            })
        })
    }
}

fn timed_out(_: tokio::time::error::Elapsed) -> BoxError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Returns the connection once its other end has shown that it is `peer`.
async fn prove<C>(connection: C, peer: &Peer, proofs: &Proofs) -> Result<C, BoxError>
where
    C: Read + Write + Unpin + Send + 'static,
{
    let challenge = new_challenge();
    let host = peer.url.parse::<Uri>()?.authority().map(ToString::to_string).unwrap_or_default();
    let request = Request::get("/healthz").header(header::HOST, host).header(&CHALLENGE, &challenge);
    let (mut sender, mut exchange) = http1::handshake(connection).await?;
    let asked = sender.send_request(request.body(Empty::<Bytes>::new())?);
    let answer = tokio::select! {
        answer = asked => answer?,
        ended = std::future::poll_fn(|cx| exchange.poll_without_shutdown(cx)) => {
            ended?;
            return Err(Stranger.into());
        }
    };
    let proof = answer.headers().get(&HOP_PROOF).and_then(|proof| proof.to_str().ok()).unwrap_or_default();
    if !proofs.is_of(peer, challenge.as_bytes(), proof) {
        return Err(Stranger.into());
    }
    // The answer has no body, so that the next bytes are those of the next answer.
    let parts = exchange.into_parts();
    if parts.read_buf.is_empty() { Ok(parts.io) } else { Err(Stranger.into()) }
}
