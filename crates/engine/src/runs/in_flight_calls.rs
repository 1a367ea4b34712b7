//! Calls of one run under an ID of the caller's, one at a time.

use std::collections::HashMap;
use std::sync::Arc;

use model::ToolCallId;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The IDs whose calls are under way or wait. Each has a lock of its own, so that who ends wakes the next in line alone.
#[derive(Debug, Default)]
pub struct InFlightCalls {
    held: Mutex<HashMap<ToolCallId, Arc<tokio::sync::Mutex<()>>>>,
}

/// The right to run the call under an ID, until it is dropped.
#[derive(Debug)]
pub struct InFlightGuard<'a> {
    claims: &'a InFlightCalls,
    id: ToolCallId,
    lock: Arc<tokio::sync::Mutex<()>>,
    /// `None` while it waits.
    guard: Option<OwnedMutexGuard<()>>,
}

impl InFlightCalls {
    /// Waits until no call under `id` that came earlier is under way.
    pub async fn lock(&self, id: &ToolCallId) -> InFlightGuard<'_> {
        let lock = Arc::clone(self.held.lock().entry(id.clone()).or_default());
        // Made before the wait, so that a caller who gives up while waiting leaves nothing either.
        let mut claim = InFlightGuard { claims: self, id: id.clone(), lock, guard: None };
        claim.guard = Some(Arc::clone(&claim.lock).lock_owned().await);
        claim
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut held = self.claims.held.lock();
        // The table's and this one: copies are made under the table's lock, so that nobody else waits for it.
        if Arc::strong_count(&self.lock) <= 2 {
            held.remove(&self.id);
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
    async fn who_ends_wakes_the_next_alone_and_nothing_is_kept() {
        let claims = Arc::new(InFlightCalls::default());
        let first = claims.lock(&id("a")).await;
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..300 {
            let (claims, polls, done) = (Arc::clone(&claims), Arc::clone(&polls), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let id = id("a");
                let mut entering = std::pin::pin!(claims.lock(&id));
                let claim = std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    entering.as_mut().poll(context)
                });
                let _claim = claim.await;
                done.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(claims.lock(&id("b")).await);
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock(), (0..300).collect::<Vec<_>>(), "in the order in which they came");
        assert!(polls.load(Ordering::Relaxed) <= 2 * 300, "{polls:?} polls");
        assert!(claims.held.lock().is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_line() {
        let claims = InFlightCalls::default();
        let first = claims.lock(&id("a")).await;
        let soon = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, claims.lock(&id("a"))).await.is_err());
        drop(first);
        assert!(claims.held.lock().is_empty());
        drop(claims.lock(&id("a")).await);
        assert!(claims.held.lock().is_empty());
    }
}
