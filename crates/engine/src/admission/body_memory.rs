//! The memory budget for JSON bodies of all requests.

use std::sync::Arc;
use std::time::Duration;

use model::{Code, Refusal};
use parking_lot::Mutex;
use shared_pool::{Denied, Parties, Permit};

use crate::admission::pools::{Pools, own_share};

/// Maximum size of a small body in bytes.
const SMALL_BYTES: u64 = 64 * 1024;

/// The body memory of one request, released when this and its clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct RequestMemory(Arc<Mutex<Option<Permit>>>);

tokio::task_local! {
    /// The memory of the request that the task serves.
    static CURRENT: RequestMemory;
}

impl Pools {
    /// Acquires memory for a body of up to `bytes` of the current request, and waits for it at most `timeout`. Small bodies have
    /// memory of their own, a quarter, so that they never wait for large ones. What the request had before is given back first: two
    /// that wait for more would wait for each other.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the token or its run has its share; `UNAVAILABLE` if others use the budget.
    pub(crate) async fn acquire_body(&self, bytes: u64, timeout: Duration) -> Result<(), Refusal> {
        drop(CURRENT.try_with(|memory| memory.0.lock().take()));
        let pool = if bytes <= SMALL_BYTES { &self.small_body } else { &self.large_body };
        let permit = pool.acquire_within(Parties::current(), bytes, timeout).await;
        let permit = permit.map_err(|denied| match denied {
            Denied::OwnShare => own_share(pool, "bytes of request bodies"),
            Denied::Exhausted => exhausted(timeout),
        })?;
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
    pub fn scope<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
        // Not an `async fn`, which would be twice as large as `work`.
        CURRENT.scope(Self::default(), work)
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
    use shared_pool::Party;

    use super::*;
    use crate::limits::Limits;

    const SOON: Duration = Duration::from_millis(20);
    const LARGE: u64 = SMALL_BYTES + 1;

    fn pools(bytes: u64) -> Pools {
        Pools::new(&Limits { max_body_memory_bytes: bytes, ..Limits::for_tests() })
    }

    async fn request<T>(name: &str, work: impl Future<Output = T>) -> T {
        Box::pin(Parties::one(Party::of("token", name)).scope(RequestMemory::scope(work))).await
    }

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_do_not_wait_for_them() {
        let pools = pools(4 * SMALL_BYTES);
        request("a", async {
            pools.acquire_body(LARGE, SOON).await.unwrap();
            request("b", async {
                pools.acquire_body(LARGE, SOON).await.unwrap();
                let third = request("c", pools.acquire_body(LARGE, SOON)).await;
                assert_eq!(third.unwrap_err().code, Code::Unavailable);
                request("c", pools.acquire_body(SMALL_BYTES, SOON)).await.unwrap();
            })
            .await;
            // The second request has ended.
            request("b", pools.acquire_body(LARGE, SOON)).await.unwrap();
            let second = request("a", pools.acquire_body(LARGE, SOON)).await;
            assert_eq!(second.unwrap_err().code, Code::RateLimited, "one of a token that has its share");
        })
        .await;
    }

    #[tokio::test]
    async fn detached_work_keeps_the_memory_of_its_request() {
        let pools = pools(2 * SMALL_BYTES);
        let held = request("a", async {
            pools.acquire_body(LARGE, SOON).await.unwrap();
            RequestMemory::current()
        })
        .await;
        assert!(pools.acquire_body(LARGE, SOON).await.is_err());
        drop(held);
        pools.acquire_body(LARGE, SOON).await.unwrap();
    }
}
