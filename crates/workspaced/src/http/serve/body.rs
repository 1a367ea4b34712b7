//! Whether a request's body was read, known to the connection: an answer that leaves a part of it unread either takes in the
//! rest first, where that is short, or announces that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::sync::Notify;

/// The most of an unread body that is taken in before the answer, so that the connection can go on.
const MAX_REST_BYTES: u64 = 256 * 1024;
/// How long that may take.
const REST_TIMEOUT: Duration = Duration::from_millis(500);

/// What has become of the body of a connection's current request.
#[derive(Debug)]
enum State {
    /// Read to its end, or there was none.
    Read,
    /// Being read, or about to be.
    Held,
    /// Nobody reads it; the client sends it without being asked.
    Unread(Incoming),
    /// Nobody reads it, and the client still waits for `100 Continue` before it sends it.
    Unasked,
}

/// Follows the bodies of one connection's requests, one after another.
#[derive(Clone, Debug)]
pub(super) struct BodyTracker(Arc<Tracked>);

#[derive(Debug)]
struct Tracked {
    state: Mutex<State>,
    /// Notified when a body is no longer held.
    released: Notify,
}

impl BodyTracker {
    /// Of a connection that was just made.
    pub(super) fn new() -> Self {
        Self(Arc::new(Tracked { state: Mutex::new(State::Read), released: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the body of `request`.
    pub(super) fn track(&self, request: Request<Incoming>) -> Request {
        if request.body().is_end_stream() {
            *self.state() = State::Read;
            return request.map(Body::new);
        }
        *self.state() = State::Held;
        let unasked = expects_continue(request.headers());
        request.map(|body| Body::new(TrackedBody { body: Some(body), unasked, tracker: self.clone() }))
    }

    /// Looks after what `response`, which is about to be sent, leaves of the request's body, and returns whether a part of
    /// it stays unread: then the response announces the end of the connection.
    pub(super) async fn settle(&self, response: &mut Response) -> bool {
        let closes = announces_close(response.headers());
        let read = match self.released().await {
            State::Read => true,
            State::Unread(body) => !closes && drain(body).await,
            State::Held | State::Unasked => false,
        };
        if !read {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        !read
    }

    /// What has become of the body once nobody holds it. The task that received an upload is given a moment to end.
    async fn released(&self) -> State {
        let released = async {
            loop {
                if let Some(state) = self.take() {
                    return state;
                }
                self.0.released.notified().await;
            }
        };
        if let Ok(state) = tokio::time::timeout(REST_TIMEOUT, released).await {
            return state;
        }
        // Its holder may read on. The body is not kept when it is released: the connection ends only without it.
        *self.state() = State::Read;
        State::Held
    }

    fn take(&self) -> Option<State> {
        let mut state = self.state();
        if matches!(*state, State::Held) { None } else { Some(std::mem::replace(&mut *state, State::Read)) }
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn announces_close(headers: &HeaderMap) -> bool {
    headers.get(header::CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Takes in the rest of `body` where it is short and comes soon, and returns whether it reached its end.
async fn drain(mut body: Incoming) -> bool {
    if body.size_hint().lower() > MAX_REST_BYTES {
        return false;
    }
    let rest = async {
        let mut taken = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            taken += frame.data_ref().map_or(0, Bytes::len) as u64;
            if taken > MAX_REST_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(REST_TIMEOUT, rest).await.unwrap_or(false)
}

/// A request's body that reports to its connection where it is dropped before its end.
#[derive(Debug)]
struct TrackedBody {
    /// `None` after its end.
    body: Option<Incoming>,
    unasked: bool,
    tracker: BodyTracker,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.unasked = false;
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
            None => State::Read,
            Some(_) if self.unasked => State::Unasked,
            Some(body) => State::Unread(body),
        };
        let mut state = self.tracker.state();
        if matches!(*state, State::Held) {
            *state = released;
            self.tracker.0.released.notify_one();
        }
    }
}
