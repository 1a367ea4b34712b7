//! Tracks whether a request's body was read to its end. If a response leaves a part of it unread, the rest is either drained
//! first, if it is short, or the response closes the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of unread bytes that are drained before a response, to keep the connection open.
const MAX_DRAIN_BYTES: u64 = 256 * 1024;
/// Maximum time to wait for the body's reader, and to drain the body.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// State of the body of a connection's current request.
#[derive(Debug)]
enum BodyState {
    /// Read to its end, or there is none.
    Read,
    /// Being read, or not read yet.
    InUse,
    /// Dropped before its end; the client sends the rest.
    Unread(Incoming),
    /// Dropped unread; the client waits for `100 Continue` before it sends it.
    NotRequested,
}

/// Tracks the bodies of one connection's requests, one after another.
#[derive(Clone, Debug)]
pub(crate) struct BodyTracker(Arc<Tracked>);

#[derive(Debug)]
struct Tracked {
    state: Mutex<BodyState>,
    /// Notified when a body is dropped before its end.
    released: Notify,
}

impl BodyTracker {
    /// Makes the tracker of a new connection.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Tracked { state: Mutex::new(BodyState::Read), released: Notify::new() }))
    }

    /// Starts tracking the body of `request`.
    pub(crate) fn track(&self, request: Request<Incoming>) -> Request {
        if request.body().is_end_stream() {
            *self.0.state.lock() = BodyState::Read;
            return request.map(Body::new);
        }
        *self.0.state.lock() = BodyState::InUse;
        let awaits_continue = expects_continue(request.headers());
        request.map(|body| Body::new(TrackedBody { body: Some(body), awaits_continue, tracker: self.clone() }))
    }

    /// Drains what `response`, which is about to be sent, left unread of the request's body. If that fails, makes the
    /// response close the connection and returns true.
    pub(crate) async fn drain_or_close(&self, response: &mut Response) -> bool {
        let closes = has_close(response.headers());
        let read = match self.released().await {
            BodyState::Read => true,
            BodyState::Unread(body) => !closes && drain(body).await,
            BodyState::InUse | BodyState::NotRequested => false,
        };
        if !read {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        !read
    }

    /// Returns the state of the body once nobody reads it. Waits a moment for the task that receives an upload.
    async fn released(&self) -> BodyState {
        let released = async {
            loop {
                if let Some(state) = self.take() {
                    return state;
                }
                self.0.released.notified().await;
            }
        };
        if let Ok(state) = tokio::time::timeout(DRAIN_TIMEOUT, released).await {
            return state;
        }
        // The reader may continue. Its body must not be put back here later: the connection closes only without it.
        *self.0.state.lock() = BodyState::Read;
        BodyState::InUse
    }

    fn take(&self) -> Option<BodyState> {
        let mut state = self.0.state.lock();
        if matches!(*state, BodyState::InUse) { None } else { Some(std::mem::replace(&mut *state, BodyState::Read)) }
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn has_close(headers: &HeaderMap) -> bool {
    headers.get(header::CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Reads and discards the rest of `body` if it is short and arrives soon. Returns whether its end was reached.
async fn drain(mut body: Incoming) -> bool {
    if body.size_hint().lower() > MAX_DRAIN_BYTES {
        return false;
    }
    let rest = async {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if bytes > MAX_DRAIN_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DRAIN_TIMEOUT, rest).await.unwrap_or(false)
}

/// A request body that returns the unread rest to its tracker when it is dropped.
#[derive(Debug)]
struct TrackedBody {
    /// `None` after its end.
    body: Option<Incoming>,
    awaits_continue: bool,
    tracker: BodyTracker,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.awaits_continue = false;
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            this.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        let released = match self.body.take().filter(|body| !body.is_end_stream()) {
            None => BodyState::Read,
            Some(_) if self.awaits_continue => BodyState::NotRequested,
            Some(body) => BodyState::Unread(body),
        };
        let mut state = self.tracker.0.state.lock();
        if matches!(*state, BodyState::InUse) {
            *state = released;
            self.tracker.0.released.notify_one();
        }
    }
}
