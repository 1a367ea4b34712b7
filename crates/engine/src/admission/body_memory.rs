//! How many bytes of JSON bodies are in memory at a time, over all requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{Code, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body of at most so many bytes is a small one.
pub const SMALL_BYTES: u64 = 64 * 1024;

/// The memory for bodies. A quarter of it is for small ones, so that they never wait for large ones.
#[derive(Debug)]
pub struct BodyMemory {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// What the body of one request holds of the memory, until this and its clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct HeldMemory(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

tokio::task_local! {
    /// Of the request that the task works on.
    static HELD: HeldMemory;
}

impl BodyMemory {
    /// Memory for `bytes` of bodies.
    pub fn new(bytes: u64) -> Self {
        let part = |bytes: u64| {
            let permits = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        };
        Self { small: part(bytes / 4), large: part(bytes - bytes / 4) }
    }

    /// Takes memory for a body of up to `bytes` on behalf of the request that this task works on; waits for it no longer
    /// than `patience`.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` where others hold it all that long.
    pub async fn take(&self, bytes: u64, patience: Duration) -> Result<(), Refusal> {
        let part = if bytes <= SMALL_BYTES { &self.small } else { &self.large };
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let taking = Arc::clone(part).acquire_many_owned(permits);
        let Ok(Ok(permit)) = tokio::time::timeout(patience, taking).await else { return Err(exhausted(patience)) };
        // Without a request to hold it for, such as in a test of an extractor, it is free again at once.
        let _ = HELD.try_with(|held| held.hold(permit));
        Ok(())
    }
}

impl HeldMemory {
    /// What the request that this task works on holds; nothing where there is none.
    pub fn of_task() -> Self {
        HELD.try_with(Clone::clone).unwrap_or_default()
    }

    /// Works on one request: what its body takes is held until `work` is done, and for as long as a clone of
    /// [`of_task`](Self::of_task) is kept.
    pub async fn during<T>(work: impl Future<Output = T>) -> T {
        HELD.scope(Self::default(), work).await
    }

    /// Holds `permit` instead of what was held before.
    fn hold(&self, permit: OwnedSemaphorePermit) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
    }
}

/// Nothing became free within `patience`.
fn exhausted(patience: Duration) -> Refusal {
    let message =
        format!("the memory for bodies of requests was in use for {} seconds; nothing was changed", patience.as_secs());
    Refusal::new(Code::Unavailable, message, "Try again after the seconds that Retry-After says.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LARGE: u64 = SMALL_BYTES + 1;

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_none_of_them() {
        let memory = BodyMemory::new(4 * SMALL_BYTES);
        HeldMemory::during(async {
            memory.take(LARGE, SOON).await.unwrap();
            HeldMemory::during(async {
                memory.take(LARGE, SOON).await.unwrap();
                let third = HeldMemory::during(memory.take(LARGE, SOON)).await;
                assert_eq!(third.unwrap_err().code, Code::Unavailable);
                HeldMemory::during(memory.take(SMALL_BYTES, SOON)).await.unwrap();
            })
            .await;
            // The second has ended.
            HeldMemory::during(memory.take(LARGE, SOON)).await.unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn what_goes_on_without_its_request_holds_its_memory() {
        let memory = BodyMemory::new(2 * SMALL_BYTES);
        let held = HeldMemory::during(async {
            memory.take(LARGE, SOON).await.unwrap();
            HeldMemory::of_task()
        })
        .await;
        assert!(memory.take(LARGE, SOON).await.is_err());
        drop(held);
        memory.take(LARGE, SOON).await.unwrap();
    }
}
