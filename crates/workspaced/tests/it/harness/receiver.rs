//! A receiver of webhooks on loopback.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::Value;

use super::until;

/// What the receiver does with a message.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Status(u16),
    /// Answers 307 with this URL.
    Redirect(String),
    /// Never answers.
    Hang,
    /// Answers 200 with a body that never ends.
    Endless,
}

/// A message as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Shared {
    messages: Mutex<Vec<Message>>,
    /// The replies to the next messages.
    next: Mutex<VecDeque<Reply>>,
    /// The reply to all others; `None` is 204.
    others: Mutex<Option<Reply>>,
}

/// A receiver, which runs until the test ends.
pub(crate) struct Receiver {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let router = Router::new().fallback(receive).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared }
    }

    /// Sets the reply to the next message that has none yet.
    pub(crate) fn reply(&self, reply: Reply) {
        self.shared.next.lock().push_back(reply);
    }

    /// Sets the reply to all other messages; `None` is 204.
    pub(crate) fn reply_always(&self, reply: Option<Reply>) {
        *self.shared.others.lock() = reply;
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.shared.messages.lock().clone()
    }

    /// Returns the messages once `count` have arrived.
    pub(crate) async fn until(&self, count: usize) -> Vec<Message> {
        until(&format!("{count} messages have arrived"), async || {
            let messages = self.messages();
            let types = || format!("{:?}", messages.iter().map(Message::event).collect::<Vec<_>>());
            if messages.len() >= count { Ok(messages) } else { Err(types()) }
        })
        .await
    }
}

impl Message {
    pub(crate) fn event(&self) -> &str {
        self.body["type"].as_str().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let body = serde_json::from_str(&text).unwrap();
    shared.messages.lock().push(Message { headers, text, body });
    let next = shared.next.lock().pop_front();
    let reply = next.or_else(|| shared.others.lock().clone()).unwrap_or(Reply::Status(204));
    match reply {
        Reply::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reply::Redirect(url) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url)]).into_response(),
        Reply::Hang => std::future::pending().await,
        Reply::Endless => {
            let chunks =
                futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1024])));
            axum::body::Body::from_stream(chunks).into_response()
        }
    }
}
