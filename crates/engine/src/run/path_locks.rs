//! Locks on the paths of one run.
//!
//! Mutations of different files run concurrently, so that they share a commit. Two that name the same file, or a file and
//! a folder above it, run one after the other, in order of arrival.

use std::sync::Arc;

use model::LogicalPath;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The path locks of one run.
#[derive(Debug, Default)]
pub struct PathLocks(Mutex<LockQueue>);

#[derive(Debug, Default)]
struct LockQueue {
    next_number: u64,
    /// Holders and waiters, in order of arrival.
    entries: Vec<LockEntry>,
}

#[derive(Debug)]
struct LockEntry {
    number: u64,
    paths: Vec<LogicalPath>,
    /// The number of earlier entries that overlap with this one.
    blocked_by: usize,
    /// Wakes the waiter when no entry blocks it any more.
    wake: Option<oneshot::Sender<()>>,
}

/// A lock on some paths, released on drop.
#[derive(Debug)]
pub struct PathGuard {
    locks: Arc<PathLocks>,
    number: u64,
}

impl PathLocks {
    /// Waits until no earlier call holds one of `paths`, or a path above or under one. The root covers all paths.
    ///
    /// A caller that holds a guard must not lock an overlapping path: it would wait for itself.
    pub async fn lock(self: &Arc<Self>, paths: Vec<LogicalPath>) -> PathGuard {
        let (number, woken) = self.0.lock().add(paths);
        // Created before the wait, so that a cancelled wait leaves the queue.
        let guard = PathGuard { locks: Arc::clone(self), number };
        if let Some(woken) = woken {
            // The sender is in the queue until this guard is dropped, so the receiver only ends by being woken.
            let _ = woken.await;
        }
        guard
    }
}

impl LockQueue {
    /// Adds an entry. The receiver fires when no entry blocks it; `None` if none does now.
    fn add(&mut self, paths: Vec<LogicalPath>) -> (u64, Option<oneshot::Receiver<()>>) {
        self.next_number += 1;
        let blocked_by = self.entries.iter().filter(|entry| entry.overlaps(&paths)).count();
        let (wake, woken) = if blocked_by == 0 {
            (None, None)
        } else {
            let (wake, woken) = oneshot::channel();
            (Some(wake), Some(woken))
        };
        self.entries.push(LockEntry { number: self.next_number, paths, blocked_by, wake });
        (self.next_number, woken)
    }

    /// Removes an entry and wakes those that only it blocked.
    fn remove(&mut self, number: u64) {
        let Ok(index) = self.entries.binary_search_by_key(&number, |entry| entry.number) else { return };
        let removed = self.entries.remove(index);
        for later in self.entries[index..].iter_mut().filter(|later| later.overlaps(&removed.paths)) {
            later.blocked_by -= 1;
            if later.blocked_by == 0
                && let Some(wake) = later.wake.take()
            {
                // A waiter that has stopped waiting removes its entry itself.
                let _ = wake.send(());
            }
        }
    }
}

impl LockEntry {
    fn overlaps(&self, paths: &[LogicalPath]) -> bool {
        self.paths.iter().any(|own| paths.iter().any(|path| own == path || own.is_under(path) || path.is_under(own)))
    }
}

impl Drop for PathGuard {
    fn drop(&mut self) {
        self.locks.0.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn paths(raw: &[&str]) -> Vec<LogicalPath> {
        raw.iter().map(|raw| LogicalPath::parse(raw).unwrap()).collect()
    }

    async fn waits(locks: &Arc<PathLocks>, raw: &[&str]) -> bool {
        tokio::time::timeout(Duration::from_millis(20), locks.lock(paths(raw))).await.is_err()
    }

    #[tokio::test]
    async fn only_overlapping_paths_wait() {
        let locks = Arc::<PathLocks>::default();
        let held = locks.lock(paths(&["src/a", "b"])).await;
        for (raw, want) in
            [("src/a", true), ("src", true), ("src/a/c", true), (".", true), ("src/ab", false), ("c", false)]
        {
            assert_eq!(waits(&locks, &[raw]).await, want, "{raw}");
        }
        drop(held);
        assert!(!waits(&locks, &["src/a"]).await);
    }

    #[tokio::test]
    async fn waiters_are_served_in_order_of_arrival() {
        let locks = Arc::<PathLocks>::default();
        let first = locks.lock(paths(&["a"])).await;
        let mut second = Box::pin(locks.lock(paths(&["a", "b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
        // `b` is free, but an earlier waiter needs it.
        assert!(waits(&locks, &["b"]).await);
        drop(first);
        let second = second.await;
        assert!(waits(&locks, &["b"]).await);
        drop(second);
        assert!(!waits(&locks, &["b"]).await);
    }

    #[tokio::test]
    async fn only_unblocked_waiters_are_woken() {
        const WAITERS: usize = 500;
        let locks = Arc::<PathLocks>::default();
        let first = locks.lock(paths(&["a"])).await;
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..WAITERS {
            let (locks, polls, done) = (Arc::clone(&locks), Arc::clone(&polls), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let mut locking = std::pin::pin!(locks.lock(paths(&["a"])));
                let guard = std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    locking.as_mut().poll(context)
                });
                let _guard = guard.await;
                done.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock(), (0..WAITERS).collect::<Vec<_>>());
        assert!(polls.load(Ordering::Relaxed) <= 2 * WAITERS, "{polls:?} polls of {WAITERS} waiters");
        assert!(locks.0.lock().entries.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_waiter_blocks_nobody() {
        let locks = Arc::<PathLocks>::default();
        let first = locks.lock(paths(&["a"])).await;
        let mut second = Box::pin(locks.lock(paths(&["a", "b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
        let mut third = Box::pin(locks.lock(paths(&["b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut third).await.is_err());
        drop(second);
        let third = third.await;
        drop((first, third));
        assert!(locks.0.lock().entries.is_empty());
    }
}
