//! A client that costs little: HTTP/1.1 on one kept connection, requests made once and sent many times.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;

/// A request that can be sent any number of times.
pub(crate) type Prepared = Request<Full<Bytes>>;

/// Makes a request; `token` may be empty where none is needed.
///
/// # Errors
///
/// When `path` or `token` cannot stand in a request.
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

/// One kept connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            tokio::net::TcpStream::connect(address).await.with_context(|| format!("no server at {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender; what went wrong is told to the request that met it.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends `request` and reads the whole answer.
    pub(crate) async fn send(&mut self, request: &Prepared) -> anyhow::Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.clone()).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }

    /// Sends `request` and reads the answer without keeping it; it has to be a success.
    ///
    /// # Errors
    ///
    /// Where it is none: what the server said.
    pub(crate) async fn send_lightly(&mut self, request: &Prepared) -> anyhow::Result<()> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.clone()).await?;
        let status = answer.status();
        let mut body = answer.into_body();
        if !status.is_success() || status == StatusCode::ACCEPTED {
            let said = body.collect().await?.to_bytes();
            anyhow::bail!("{} answered {status}: {}", request.uri(), String::from_utf8_lossy(&said));
        }
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    }
}
