//! Runs calls of one run under the same client-supplied ID one at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use model::ToolCallId;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The IDs whose calls are in progress or wait. Each ID has its own lock, so that a call that ends wakes only the next one.
#[derive(Debug)]
pub struct InFlightCalls<K: Eq + Hash = ToolCallId> {
    locks: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

/// The lock of an ID, released on drop.
#[derive(Debug)]
pub struct InFlightGuard<'a, K: Eq + Hash = ToolCallId> {
    calls: &'a InFlightCalls<K>,
    id: K,
    lock: Arc<tokio::sync::Mutex<()>>,
    /// `None` while waiting.
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash> Default for InFlightCalls<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash> InFlightCalls<K> {
    /// Waits until no earlier call under `id` is in progress.
    pub async fn lock(&self, id: &K) -> InFlightGuard<'_, K> {
        let lock = Arc::clone(self.locks.lock().entry(id.clone()).or_default());
        // Created before the wait, so that a cancelled wait also removes its entry.
        let mut guard = InFlightGuard { calls: self, id: id.clone(), lock, guard: None };
        guard.guard = Some(Arc::clone(&guard.lock).lock_owned().await);
        guard
    }
}

impl<K: Eq + Hash> Drop for InFlightGuard<'_, K> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut locks = self.calls.locks.lock();
        // Clones are made under the table's lock. If only the table and this guard have one, no other call waits.
        if Arc::strong_count(&self.lock) <= 2 {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn id(raw: &str) -> ToolCallId {
        ToolCallId::parse(raw).unwrap()
    }

    #[tokio::test]
    async fn a_call_that_ends_wakes_only_the_next_and_the_table_is_emptied() {
        let calls = Arc::new(InFlightCalls::default());
        let first = calls.lock(&id("a")).await;
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..300 {
            let (calls, polls, done) = (Arc::clone(&calls), Arc::clone(&polls), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let id = id("a");
                let mut locking = std::pin::pin!(calls.lock(&id));
                let guard = std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    locking.as_mut().poll(context)
                });
                let _guard = guard.await;
                done.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(calls.lock(&id("b")).await);
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock(), (0..300).collect::<Vec<_>>(), "in order of arrival");
        assert!(polls.load(Ordering::Relaxed) <= 2 * 300, "{polls:?} polls");
        assert!(calls.locks.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_the_queue() {
        let calls = InFlightCalls::default();
        let first = calls.lock(&id("a")).await;
        let soon = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, calls.lock(&id("a"))).await.is_err());
        drop(first);
        assert!(calls.locks.lock().is_empty());
        drop(calls.lock(&id("a")).await);
        assert!(calls.locks.lock().is_empty());
    }
}
