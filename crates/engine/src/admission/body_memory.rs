//! The memory budget for JSON bodies of all requests.

use std::sync::Arc;
use std::time::Duration;

use model::{Code, Refusal};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a small body in bytes.
const SMALL_BYTES: u64 = 64 * 1024;

/// The memory budget for bodies. A quarter is reserved for small bodies, so that they never wait for large ones.
#[derive(Debug)]
pub struct BodyMemory {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The body memory of one request, released when this and its clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct RequestMemory(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

tokio::task_local! {
    /// The memory of the request that the task serves.
    static CURRENT: RequestMemory;
}

impl BodyMemory {
    /// Creates a budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let part = |bytes: u64| {
            let permits = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        };
        Self { small: part(bytes / 4), large: part(bytes - bytes / 4) }
    }

    /// Acquires memory for a body of up to `bytes` of the current request, and waits for it at most `timeout`.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the budget is in use.
    pub async fn acquire(&self, bytes: u64, timeout: Duration) -> Result<(), Refusal> {
        let part = if bytes <= SMALL_BYTES { &self.small } else { &self.large };
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let acquired = tokio::time::timeout(timeout, Arc::clone(part).acquire_many_owned(permits)).await;
        let Ok(Ok(permit)) = acquired else { return Err(exhausted(timeout)) };
        // Outside a request, as in a test of an extractor, the memory is released at once.
        let _ = CURRENT.try_with(|memory| *memory.0.lock() = Some(permit));
        Ok(())
    }
}

impl RequestMemory {
    /// Returns the memory of the current request; empty outside a request.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Serves one request. The memory of its body is held until `work` has ended and every clone of it is dropped.
    pub async fn scope<T>(work: impl Future<Output = T>) -> T {
        CURRENT.scope(Self::default(), work).await
    }
}

/// No memory was released within `timeout`.
fn exhausted(timeout: Duration) -> Refusal {
    let message =
        format!("the memory for request bodies was in use for {} seconds; nothing was changed", timeout.as_secs());
    Refusal::new(Code::Unavailable, message, "Retry after the time in Retry-After.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LARGE: u64 = SMALL_BYTES + 1;

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_do_not_wait_for_them() {
        let memory = BodyMemory::new(4 * SMALL_BYTES);
        RequestMemory::scope(async {
            memory.acquire(LARGE, SOON).await.unwrap();
            RequestMemory::scope(async {
                memory.acquire(LARGE, SOON).await.unwrap();
                let third = RequestMemory::scope(memory.acquire(LARGE, SOON)).await;
                assert_eq!(third.unwrap_err().code, Code::Unavailable);
                RequestMemory::scope(memory.acquire(SMALL_BYTES, SOON)).await.unwrap();
            })
            .await;
            // The second request has ended.
            RequestMemory::scope(memory.acquire(LARGE, SOON)).await.unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn detached_work_keeps_the_memory_of_its_request() {
        let memory = BodyMemory::new(2 * SMALL_BYTES);
        let held = RequestMemory::scope(async {
            memory.acquire(LARGE, SOON).await.unwrap();
            RequestMemory::current()
        })
        .await;
        assert!(memory.acquire(LARGE, SOON).await.is_err());
        drop(held);
        memory.acquire(LARGE, SOON).await.unwrap();
    }
}
