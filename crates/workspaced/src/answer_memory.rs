//! How many bytes of answers are in memory at a time, over all requests: an answer is held until its caller has taken it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use model::{Code, Refusal};
use parking_lot::Mutex;
use shared_pool::{Denied, Parties, Permit, SharedPool};

use crate::CallError;

/// Answers of at most so many bytes wait for nothing. Larger ones are handed over in pieces of so many.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// The memory for answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    pool: SharedPool,
    /// For those that are made and wait: a quarter as much.
    waiting: SharedPool,
}

/// What one answer holds of the memory, until the last clone of this is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldAnswer(Arc<Mutex<Option<Permit>>>);

impl AnswerMemory {
    /// Memory for `bytes` of answers to callers with a token.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { pool: SharedPool::new("answer", bytes), waiting: SharedPool::new("waiting_answer", bytes / 4) }
    }

    /// Memory for `bytes` of answers to callers without a token.
    pub(crate) fn open(bytes: u64) -> Self {
        Self { pool: SharedPool::new("open_answer", bytes), waiting: SharedPool::new("open_waiting_answer", bytes / 4) }
    }

    /// Returns its pools.
    pub(crate) fn pools(&self) -> [&SharedPool; 2] {
        [&self.pool, &self.waiting]
    }

    /// Holds memory for an answer that has grown to `bytes`. One that is larger than all of the memory takes all of it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn grow(&self, held: &HeldAnswer, bytes: usize) -> Result<(), Denied> {
        let mut permit = held.0.lock();
        match &mut *permit {
            Some(permit) => permit.try_grow(bytes as u64),
            None => self.pool.try_acquire(Parties::current(), bytes as u64).map(|first| *permit = Some(first)),
        }
    }

    /// Makes `response` hold memory until it is sent, if it is large and complete. Waits for the memory at most `patience`,
    /// and not at all if many responses wait, or if those to the same token or run hold their share.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` where there is none.
    pub(crate) async fn hold(&self, mut response: Response, patience: Duration) -> Result<Response, CallError> {
        // What is sent while it is made does not know its size.
        let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let held = response.extensions_mut().remove::<HeldAnswer>().unwrap_or_default();
        let Some(size) = size.filter(|size| *size > SMALL_BYTES) else { return Ok(response) };
        match self.grow(&held, size) {
            Ok(()) => {}
            Err(Denied::OwnShare) => return Err(exhausted().into()),
            Err(Denied::Exhausted) => {
                let (parties, bytes) = (Parties::current(), size as u64);
                let _waiting = self.waiting.try_acquire(parties, bytes).map_err(|_| exhausted())?;
                // What it held while it grew would count as another answer.
                drop(held.0.lock().take());
                let permit = self.pool.acquire_within(parties, bytes, patience).await.map_err(|_| exhausted())?;
                *held.0.lock() = Some(permit);
            }
        }
        let (parts, body) = response.into_parts();
        let rest = body.collect().await.map_err(|error| CallError::Internal(Box::new(error)))?.to_bytes();
        Ok(Response::from_parts(parts, Body::new(Portions { rest, _held: held })))
    }
}

/// A large answer in portions, so that the connection has little of it at a time.
struct Portions {
    rest: Bytes,
    _held: HeldAnswer,
}

impl HttpBody for Portions {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let length = self.rest.len().min(SMALL_BYTES);
        Poll::Ready((length > 0).then(|| Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Others hold it all.
fn exhausted() -> Refusal {
    let message = "the memory for answers is in use; what was asked for is done, and its answer dropped";
    Refusal::new(
        Code::Unavailable,
        message,
        "Try again after the seconds that Retry-After says; repeat a change only under its toolCallId.",
    )
}

#[cfg(test)]
mod tests {
    use shared_pool::Party;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// Answers a request of the caller `name`.
    async fn hold(memory: &AnswerMemory, name: &str, bytes: usize) -> Option<Response> {
        let held = memory.hold(Response::new(Body::from(vec![7; bytes])), SOON);
        Parties::one(Party::of("token", name)).scope(held).await.ok()
    }

    #[tokio::test]
    async fn large_answers_hold_memory_until_they_are_dropped_and_small_ones_none() {
        let memory = AnswerMemory::new(400_000);
        let first = hold(&memory, "a", 200_000).await.unwrap();
        let second = hold(&memory, "b", 200_000).await.unwrap();
        assert!(hold(&memory, "c", 70_000).await.is_none());
        assert!(hold(&memory, "c", SMALL_BYTES).await.is_some());
        drop(first);
        assert!(hold(&memory, "c", 200_000).await.is_some());
        drop(second);
        // One that is larger than all of it is alone.
        let third = hold(&memory, "a", 1_000_000).await.unwrap();
        assert!(hold(&memory, "b", 70_000).await.is_none());
        assert_eq!(third.into_body().collect().await.unwrap().to_bytes(), vec![7; 1_000_000]);
        assert!(hold(&memory, "b", 400_000).await.is_some());
    }

    #[tokio::test]
    async fn what_an_answer_held_while_it_grew_is_its_own() {
        let memory = AnswerMemory::new(4_000_000);
        let held = HeldAnswer::default();
        assert!(memory.grow(&held, 200_000).is_ok() && memory.grow(&held, 300_000).is_ok());
        let mut response = Response::new(Body::from(vec![7; 400_000]));
        response.extensions_mut().insert(held);
        let response = memory.hold(response, SOON).await.unwrap();
        assert_eq!(memory.pool.free(), 3_600_000);
        drop(response);
        assert_eq!(memory.pool.free(), 4_000_000);
    }

    #[tokio::test]
    async fn the_answers_to_one_token_leave_the_others_theirs() {
        let memory = AnswerMemory::new(1_000_000);
        // One answer may be larger than the share.
        let large = hold(&memory, "a", 400_000).await.unwrap();
        assert!(hold(&memory, "a", 70_000).await.is_none());
        assert!(hold(&memory, "a", SMALL_BYTES).await.is_some());
        let held = hold(&memory, "b", 120_000).await.unwrap();
        assert!(hold(&memory, "b", 70_000).await.is_none());
        drop(large);
        assert!(hold(&memory, "a", 70_000).await.is_some());
        drop(held);
        assert_eq!(memory.pool.free(), 1_000_000);
    }
}
