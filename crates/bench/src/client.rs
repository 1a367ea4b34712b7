//! A client with little overhead: HTTP/1.1 on one persistent connection, with requests that are built once and sent repeatedly.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;

/// A request that can be sent repeatedly.
pub(crate) type Prepared = Request<Full<Bytes>>;

/// Builds a request. An empty `token` sends no authorization.
///
/// # Errors
///
/// When `path` or `token` contains characters that a request cannot have.
pub(crate) fn prepare(method: Method, path: &str, token: &str, body: impl Into<Bytes>) -> anyhow::Result<Prepared> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, HeaderValue::from_static("localhost"))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    Ok(request.body(Full::new(body.into()))?)
}

/// A persistent connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects to `address`.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            tokio::net::TcpStream::connect(address).await.with_context(|| format!("no server at {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender. Errors are returned to the request that caused them.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends `request` and returns the status and the body.
    pub(crate) async fn send(&mut self, request: &Prepared) -> anyhow::Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.clone()).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }

    /// Sends `request` and discards the body of its response.
    ///
    /// # Errors
    ///
    /// When the status is not a success; with the body.
    pub(crate) async fn send_and_discard(&mut self, request: &Prepared) -> anyhow::Result<()> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.clone()).await?;
        let status = answer.status();
        let mut body = answer.into_body();
        if !status.is_success() || status == StatusCode::ACCEPTED {
            let text = body.collect().await?.to_bytes();
            anyhow::bail!("{} answered {status}: {}", request.uri(), String::from_utf8_lossy(&text));
        }
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    }
}
