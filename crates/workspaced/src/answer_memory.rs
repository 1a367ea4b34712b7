//! How many bytes of answers are in memory at a time, over all requests: an answer is held until its caller has taken it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use model::{Code, Refusal, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::CallError;

/// Answers of at most so many bytes wait for nothing. Larger ones are handed over in pieces of so many.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// The memory for answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    bytes: usize,
    free: Arc<Semaphore>,
    /// For those that are made and wait: a quarter as much.
    waiting: Semaphore,
    /// What the answers to each token hold: a quarter at most, unless it is one answer.
    by_token: Arc<Mutex<HashMap<Sha256, usize>>>,
}

/// What an answer counts for its token, until this is dropped.
struct Share {
    by_token: Arc<Mutex<HashMap<Sha256, usize>>>,
    token: Sha256,
    bytes: usize,
}

/// What one answer holds of the memory, until the last clone of this is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldAnswer(Vec<Arc<OwnedSemaphorePermit>>);

impl AnswerMemory {
    /// Memory for `bytes` of answers.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Self {
            bytes,
            free: Arc::new(Semaphore::new(bytes)),
            waiting: Semaphore::new(bytes / 4),
            by_token: Arc::default(),
        }
    }

    /// Holds memory for an answer that has grown to `bytes`; false where there is none.
    pub(crate) fn grow(&self, held: &mut HeldAnswer, bytes: usize) -> bool {
        let wanted = self.wanted(held, bytes);
        if wanted == 0 {
            return true;
        }
        let permit = Arc::clone(&self.free).try_acquire_many_owned(wanted);
        permit.map(|permit| held.0.push(Arc::new(permit))).is_ok()
    }

    /// Makes `response` hold memory until it is sent, if it is large and complete. Waits for the memory at most `patience`,
    /// and not at all if many responses wait, or if those to the same `token` hold their share.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` where there is none.
    pub(crate) async fn hold(
        &self,
        mut response: Response,
        token: Option<Sha256>,
        patience: Duration,
    ) -> Result<Response, CallError> {
        // What is sent while it is made does not know its size.
        let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let mut held = response.extensions_mut().remove::<HeldAnswer>().unwrap_or_default();
        let Some(size) = size.filter(|size| *size > SMALL_BYTES) else { return Ok(response) };
        let share = token.map(|token| self.share(token, size)).transpose()?;
        if !self.grow(&mut held, size) {
            let wanted = self.wanted(&held, size);
            let _waiting = self.waiting.try_acquire_many(wanted).map_err(|_| exhausted())?;
            let taking = Arc::clone(&self.free).acquire_many_owned(wanted);
            let Ok(Ok(permit)) = tokio::time::timeout(patience, taking).await else { return Err(exhausted().into()) };
            held.0.push(Arc::new(permit));
        }
        let (parts, body) = response.into_parts();
        let rest = body.collect().await.map_err(|error| CallError::Internal(Box::new(error)))?.to_bytes();
        Ok(Response::from_parts(parts, Body::new(Portions { rest, _held: held, _share: share })))
    }

    fn share(&self, token: Sha256, bytes: usize) -> Result<Share, Refusal> {
        let mut by_token = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        let held = by_token.entry(token).or_default();
        if *held > 0 && held.saturating_add(bytes) > self.bytes / 4 {
            return Err(exhausted());
        }
        *held = held.saturating_add(bytes);
        Ok(Share { by_token: Arc::clone(&self.by_token), token, bytes })
    }

    /// How much an answer of `bytes` lacks. One that is larger than all of the memory takes all of it.
    fn wanted(&self, held: &HeldAnswer, bytes: usize) -> u32 {
        let has: usize = held.0.iter().map(|permit| permit.num_permits()).sum();
        u32::try_from(bytes.min(self.bytes).saturating_sub(has)).unwrap_or(u32::MAX)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut by_token = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = by_token.get_mut(&self.token) {
            *held = held.saturating_sub(self.bytes);
            if *held == 0 {
                by_token.remove(&self.token);
            }
        }
    }
}

/// A large answer in portions, so that the connection has little of it at a time.
struct Portions {
    rest: Bytes,
    _held: HeldAnswer,
    _share: Option<Share>,
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
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    async fn hold(memory: &AnswerMemory, bytes: usize) -> Option<Response> {
        memory.hold(Response::new(Body::from(vec![7; bytes])), None, SOON).await.ok()
    }

    #[tokio::test]
    async fn large_answers_hold_memory_until_they_are_dropped_and_small_ones_none() {
        let memory = AnswerMemory::new(400_000);
        let first = hold(&memory, 200_000).await.unwrap();
        let second = hold(&memory, 200_000).await.unwrap();
        assert!(hold(&memory, 70_000).await.is_none());
        assert!(hold(&memory, SMALL_BYTES).await.is_some());
        drop(first);
        assert!(hold(&memory, 200_000).await.is_some());
        drop(second);
        // One that is larger than all of it is alone.
        let third = hold(&memory, 1_000_000).await.unwrap();
        assert!(hold(&memory, 70_000).await.is_none());
        assert_eq!(third.into_body().collect().await.unwrap().to_bytes(), vec![7; 1_000_000]);
        assert!(hold(&memory, 400_000).await.is_some());
    }

    #[tokio::test]
    async fn what_an_answer_held_while_it_grew_is_its_own() {
        let memory = AnswerMemory::new(400_000);
        let mut held = HeldAnswer::default();
        assert!(memory.grow(&mut held, 200_000) && memory.grow(&mut held, 300_000));
        assert!(!memory.grow(&mut HeldAnswer::default(), 200_000));
        let mut response = Response::new(Body::from(vec![7; 400_000]));
        response.extensions_mut().insert(held);
        let response = memory.hold(response, None, SOON).await.unwrap();
        assert!(hold(&memory, 70_000).await.is_none());
        drop(response);
        assert!(hold(&memory, 400_000).await.is_some());
    }

    #[tokio::test]
    async fn the_answers_to_one_token_leave_the_others_theirs() {
        let memory = AnswerMemory::new(1_000_000);
        let ask = async |token: &str, bytes: usize| {
            let response = Response::new(Body::from(vec![7; bytes]));
            memory.hold(response, Some(Sha256::of(token.as_bytes())), SOON).await.ok()
        };
        // One answer may be larger than the share.
        let large = ask("a", 400_000).await.unwrap();
        assert!(ask("a", 70_000).await.is_none());
        assert!(ask("a", SMALL_BYTES).await.is_some());
        let held = [ask("b", 120_000).await.unwrap(), ask("b", 120_000).await.unwrap()];
        assert!(ask("b", 70_000).await.is_none());
        drop(large);
        assert!(ask("a", 70_000).await.is_some());
        drop(held);
        assert!(memory.by_token.lock().unwrap().is_empty());
    }
}
