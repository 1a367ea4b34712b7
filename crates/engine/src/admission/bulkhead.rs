//! Bulkhead: permits that all runs share, of which one run gets only a part.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use model::{Code, Refusal, RunId};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::metrics;

/// One run gets at most one permit in this number, so that slow clients of one run do not block the other runs.
const RUN_SHARE: usize = 4;

/// Permits for work whose duration the client decides.
pub struct RunBulkhead {
    /// The name of the pool in the metrics.
    pool: &'static str,
    /// The kind of work, for messages.
    what: &'static str,
    all: Arc<Semaphore>,
    per_run: usize,
    runs: Runs,
}

/// The runs that hold permits or wait for one.
type Runs = Arc<Mutex<HashMap<RunId, RunPermits>>>;

struct RunPermits {
    permits: Arc<Semaphore>,
    /// Holders and waiters.
    users: usize,
}

/// A permit of a [`RunBulkhead`], released on drop.
#[derive(Debug)]
pub struct Permit {
    _shared: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _user: User,
}

/// A holder or waiter. Keeps the entry of its run.
struct User {
    run: RunId,
    runs: Runs,
}

impl RunBulkhead {
    /// Creates a bulkhead of `count` permits for `what`, which the metrics call `pool`.
    pub fn new(pool: &'static str, what: &'static str, count: usize) -> Self {
        let per_run = (count / RUN_SHARE).max(1);
        Self { pool, what, all: Arc::new(Semaphore::new(count)), per_run, runs: Arc::default() }
    }

    /// Returns the number of free permits.
    pub fn available_permits(&self) -> usize {
        self.all.available_permits()
    }

    /// Acquires a permit for `run`, and waits for it at most `timeout`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the run holds its maximum; `UNAVAILABLE` if all permits are in use.
    pub async fn acquire(&self, run: &RunId, timeout: Duration) -> Result<Permit, Refusal> {
        let started = Instant::now();
        let deadline = started + timeout;
        let (own, user) = self.user(run);
        // Neither semaphore is ever closed: an error is a timeout.
        let own = tokio::time::timeout_at(deadline, own.acquire_owned()).await;
        let Ok(Ok(own)) = own else { return Err(self.too_many()) };
        let shared = tokio::time::timeout_at(deadline, Arc::clone(&self.all).acquire_owned()).await;
        let Ok(Ok(shared)) = shared else { return Err(no_permit(self.what, timeout)) };
        metrics::permit_taken(self.pool, started.elapsed());
        Ok(Permit { _shared: shared, _own: own, _user: user })
    }

    fn user(&self, run: &RunId) -> (Arc<Semaphore>, User) {
        let mut runs = self.runs.lock();
        let new = || RunPermits { permits: Arc::new(Semaphore::new(self.per_run)), users: 0 };
        let entry = runs.entry(run.clone()).or_insert_with(new);
        entry.users += 1;
        (Arc::clone(&entry.permits), User { run: run.clone(), runs: Arc::clone(&self.runs) })
    }

    fn too_many(&self) -> Refusal {
        metrics::rate_limited();
        Refusal::new(
            Code::RateLimited,
            format!("the run has too many concurrent {}: the limit is {}", self.what, self.per_run),
            "Wait until one has finished, or retry after the time in Retry-After.",
        )
        .with_details(|details| details.limit = Some(self.per_run as u64))
    }
}

/// No permit for `what` was released within `timeout`.
pub(crate) fn no_permit(what: &str, timeout: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the service was too busy for {what} for {} seconds; nothing was changed", timeout.as_secs()),
        "Retry after the time in Retry-After.",
    )
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("User").field(&self.run).finish()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut runs = self.runs.lock();
        if let Some(entry) = runs.get_mut(&self.run) {
            entry.users -= 1;
            if entry.users == 0 {
                runs.remove(&self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn run(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn one_run_gets_a_quarter_and_the_others_the_rest() {
        let bulkhead = RunBulkhead::new("export", "exports", 8);
        let mut held =
            vec![bulkhead.acquire(&run("a"), SOON).await.unwrap(), bulkhead.acquire(&run("a"), SOON).await.unwrap()];
        let refused = bulkhead.acquire(&run("a"), SOON).await.unwrap_err();
        assert_eq!((refused.code, refused.details.limit), (Code::RateLimited, Some(2)));
        for other in ["b", "b", "c", "c", "d", "d"] {
            held.push(bulkhead.acquire(&run(other), SOON).await.unwrap());
        }
        assert_eq!(bulkhead.acquire(&run("e"), SOON).await.unwrap_err().code, Code::Unavailable);
        held.remove(0);
        held.push(bulkhead.acquire(&run("e"), SOON).await.unwrap());
        drop(held);
        assert!(bulkhead.runs.lock().is_empty(), "idle runs leave no entry");
    }

    #[tokio::test]
    async fn a_waiter_gets_the_permit_that_is_released() {
        let bulkhead = Arc::new(RunBulkhead::new("export", "exports", 1));
        let first = bulkhead.acquire(&run("a"), SOON).await.unwrap();
        let waiting = tokio::spawn({
            let bulkhead = Arc::clone(&bulkhead);
            async move { bulkhead.acquire(&run("a"), Duration::from_mins(1)).await }
        });
        tokio::time::sleep(SOON).await;
        drop(first);
        assert!(waiting.await.unwrap().is_ok());
        assert!(bulkhead.runs.lock().is_empty());
    }
}
