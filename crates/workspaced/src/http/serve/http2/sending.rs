//! Responses over HTTP/2: each is sent in pieces, of which one is under way at a time, so that a client that does not receive a
//! response holds one piece of it, and no longer than the timeouts allow.
//!
//! On a connection of HTTP/1 the socket shows whether the client receives. Here a client may receive one response and leave another.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::http::serve::timeout_stream::Phase;
use crate::http::transfer::{MinRate, RateMeter};

/// Maximum size of a piece in bytes: that of a frame. At the minimum rate, one is sent well within the stall timeout.
const PIECE_BYTES: usize = 16 * 1024;
/// Nobody waits for a last piece of at most this size: the frame that has it ends the response.
const SMALL_BYTES: usize = 2 * 1024;

/// How a response is received, shared by its body, the piece under way, and the task that answers the request.
#[derive(Debug)]
pub(crate) struct Sending(Mutex<SendingState>);

#[derive(Debug)]
struct SendingState {
    /// Since when a piece is under way.
    since: Option<Instant>,
    min_rate: MinRate,
    rate: RateMeter,
    is_too_slow: bool,
    /// The task that answers the request.
    task: Option<Waker>,
}

impl Sending {
    /// Begins to observe a response.
    pub(crate) fn new(min_rate: MinRate) -> Arc<Self> {
        let rate = RateMeter::new(min_rate);
        Arc::new(Self(Mutex::new(SendingState { since: None, min_rate, rate, is_too_slow: false, task: None })))
    }

    fn is_under_way(&self) -> bool {
        self.0.lock().since.is_some()
    }

    fn is_too_slow(&self) -> bool {
        self.0.lock().is_too_slow
    }

    fn hand_over(self: &Arc<Self>, piece: Bytes) -> Bytes {
        self.0.lock().since = Some(Instant::now());
        Bytes::from_owner(Piece { bytes: piece, sending: Arc::clone(self) })
    }

    fn sent(&self, bytes: usize) {
        let mut state = self.0.lock();
        if let Some(since) = state.since.take()
            && !state.rate.record(since.elapsed(), bytes as u64)
        {
            state.is_too_slow = true;
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes the task of `cx` when the piece under way is sent.
    fn register(&self, cx: &Context<'_>) {
        let mut state = self.0.lock();
        match &mut state.task {
            Some(task) => task.clone_from(cx.waker()),
            None => state.task = Some(cx.waker().clone()),
        }
    }

    /// Returns when the response fails unless the piece under way is sent before; `None` if none is under way.
    fn deadline(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.since.map(|since| since + state.min_rate.stall_timeout)
    }
}

/// A piece of a response. It is sent, or never will be, when the connection drops it.
struct Piece {
    bytes: Bytes,
    sending: Arc<Sending>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.sending.sent(self.bytes.len());
    }
}

/// A request in progress on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(Phase);

impl OpenRequest {
    /// Counts a request whose head is complete.
    pub(crate) fn begin(phase: &Phase) -> Self {
        phase.begin_stream();
        Self(phase.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.end_stream();
    }
}

/// The body of a response in pieces.
#[derive(Debug)]
pub(crate) struct PacedBody {
    body: Body,
    /// What is left of the frame that the body has returned.
    rest: Bytes,
    last_piece_bytes: usize,
    has_ended: bool,
    sending: Arc<Sending>,
    _request: OpenRequest,
}

impl PacedBody {
    /// Paces `body`, the response to `request`.
    pub(crate) fn new(body: Body, sending: Arc<Sending>, request: OpenRequest) -> Self {
        Self { body, rest: Bytes::new(), last_piece_bytes: 0, has_ended: false, sending, _request: request }
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.sending.is_too_slow() {
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
        }
        if this.sending.is_under_way() {
            // `while_received` has registered the task.
            return Poll::Pending;
        }
        while this.rest.is_empty() && !this.has_ended {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose()? {
                Some(frame) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                None => this.has_ended = true,
            }
        }
        if this.rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        this.last_piece_bytes = piece.len();
        Poll::Ready(Some(Ok(Frame::data(this.sending.hand_over(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
            && (self.has_ended || self.body.is_end_stream())
            && (self.last_piece_bytes <= SMALL_BYTES || !self.sending.is_under_way())
    }

    fn size_hint(&self) -> SizeHint {
        // Asked for before the first frame.
        self.body.size_hint()
    }
}

/// Runs `answer`, the task that answers one request. Ends it, which resets the request's stream, if the client does not receive the
/// response.
pub(crate) async fn while_received(answer: impl Future<Output = ()>, sending: Arc<Sending>) {
    let mut answer = pin!(answer);
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let is_done = poll_fn(|cx| {
        // Before the answer is polled, which may find that a piece is under way that is sent right after.
        sending.register(cx);
        if answer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        while let Some(deadline) = sending.deadline() {
            if deadline <= Instant::now() {
                return Poll::Ready(false);
            }
            let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Pending
    });
    if !is_done.await {
        tracing::debug!("the client does not receive its response");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use super::*;

    const RATE: MinRate = MinRate { stall_timeout: Duration::from_millis(200), bytes_per_second: 0 };

    fn paced(bytes: usize) -> (PacedBody, Arc<Sending>) {
        let sending = Sending::new(RATE);
        let request = OpenRequest::begin(&Phase::new());
        (PacedBody::new(Body::from(vec![7; bytes]), Arc::clone(&sending), request), sending)
    }

    #[tokio::test]
    async fn a_response_is_sent_piece_by_piece() {
        let (mut body, sending) = paced(2 * PIECE_BYTES + 3000);
        let (sent, answer) = (Arc::new(Mutex::new(0)), Arc::clone(&sending));
        let taken = Arc::clone(&sent);
        while_received(
            async move {
                while let Some(frame) = body.frame().await {
                    let piece = frame.unwrap().into_data().unwrap();
                    assert!(piece.len() <= PIECE_BYTES && !body.is_end_stream());
                    *taken.lock() += piece.len();
                    tokio::spawn(async move {
                        tokio::time::sleep(RATE.stall_timeout / 8).await;
                        drop(piece);
                    });
                }
                assert!(body.is_end_stream());
            },
            answer,
        )
        .await;
        assert_eq!(*sent.lock(), 2 * PIECE_BYTES + 3000);
        assert!(!sending.is_under_way());
    }

    #[tokio::test]
    async fn a_response_of_which_a_piece_stays_under_way_ends() {
        let (mut body, sending) = paced(PIECE_BYTES + 1);
        let piece = body.frame().await.unwrap().unwrap();
        let started = Instant::now();
        while_received(async move { drop(body.frame().await) }, sending).await;
        assert!(started.elapsed() >= RATE.stall_timeout / 2);
        drop(piece);
    }

    #[tokio::test]
    async fn a_small_response_ends_with_its_only_piece_and_counts_until_it_is_dropped() {
        let phase = Phase::new();
        let body = PacedBody::new(Body::from("a"), Sending::new(RATE), OpenRequest::begin(&phase));
        let mut body = body;
        let piece = body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream() && !phase.is_idle());
        drop((body, piece));
        assert!(phase.is_idle());
    }
}
