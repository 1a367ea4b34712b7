//! What a run's mutations hold while they are under way.
//!
//! Mutations of different files may run at the same time, so that they can share a commit; two that touch the same
//! file, or a file and a folder above it, run one after the other in the order in which they came.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{LogicalPath, Usage};
use tokio::sync::Notify;

/// The mutations of one run that are under way or wait.
#[derive(Debug)]
pub(crate) struct Lane {
    inner: Mutex<Inner>,
    left: Notify,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    /// In the order in which they came.
    holders: Vec<Holder>,
    usage: Usage,
    /// Every path that the run has written, once somebody has asked.
    written: Option<BTreeSet<LogicalPath>>,
    unsettled: bool,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    paths: Vec<LogicalPath>,
}

/// The right to change some paths, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    lane: &'a Lane,
    number: u64,
}

impl Lane {
    /// A lane of a run that has used up `usage`; `unsettled` where the ledger may hold steps that the tree has not seen.
    pub(crate) fn new(usage: Usage, unsettled: bool) -> Self {
        let inner = Inner { next: 0, holders: Vec::new(), usage, written: None, unsettled };
        Self { inner: Mutex::new(inner), left: Notify::new() }
    }

    /// Waits until no earlier mutation holds any of `paths`, or a path above or beneath one; the root holds them all.
    pub(crate) async fn enter(&self, paths: Vec<LogicalPath>) -> Pass<'_> {
        let number = {
            let mut inner = self.lock();
            inner.next += 1;
            let number = inner.next;
            inner.holders.push(Holder { number, paths });
            number
        };
        // Made before the wait, so that a caller who gives up while waiting leaves the queue too.
        let pass = Pass { lane: self, number };
        loop {
            let left = self.left.notified();
            if self.lock().is_first(number) {
                return pass;
            }
            left.await;
        }
    }

    /// What the run has used up, with what calls under way have reserved.
    pub(crate) fn usage(&self) -> Usage {
        self.lock().usage.clone()
    }

    /// Every path that the run has written, if that is known.
    pub(crate) fn written(&self) -> Option<BTreeSet<LogicalPath>> {
        self.lock().written.clone()
    }

    /// Takes over which paths the run has written.
    pub(crate) fn set_written(&self, written: BTreeSet<LogicalPath>) {
        self.lock().written = Some(written);
    }

    /// Adds what a mutation has written.
    pub(crate) fn add_written(&self, paths: &[LogicalPath]) {
        if let Some(written) = &mut self.lock().written {
            written.extend(paths.iter().cloned());
        }
    }

    /// Reserves `more`; given back by [`release`](Self::release) where the call fails.
    pub(crate) fn reserve(&self, more: &Usage) {
        self.lock().usage.add(more);
    }

    /// Gives back what a failed call had reserved.
    pub(crate) fn release(&self, more: &Usage) {
        self.lock().usage.subtract(more);
    }

    /// Takes over what the run has used up; which paths it has written is asked for again. For whoever is alone in the lane.
    pub(crate) fn start_anew(&self, usage: Usage) {
        let mut inner = self.lock();
        inner.usage = usage;
        inner.written = None;
    }

    /// Whether the ledger may hold steps that the tree has not seen, since a call's fate is not known.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.lock().unsettled
    }

    /// Remembers whether the ledger may hold steps that the tree has not seen.
    pub(crate) fn set_unsettled(&self, unsettled: bool) {
        self.lock().unsettled = unsettled;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock, and every state in between is sound.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_first(&self, number: u64) -> bool {
        let Some(at) = self.holders.iter().position(|holder| holder.number == number) else { return true };
        let (earlier, own) = (&self.holders[..at], &self.holders[at].paths);
        !earlier.iter().any(|holder| holder.paths.iter().any(|held| own.iter().any(|path| overlap(held, path))))
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.lane.lock().holders.retain(|holder| holder.number != self.number);
        self.lane.left.notify_waiters();
    }
}

/// Whether one of two paths is the other, or lies beneath it.
pub(crate) fn overlap(a: &LogicalPath, b: &LogicalPath) -> bool {
    a == b || a.is_beneath(b) || b.is_beneath(a)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn paths(raw: &[&str]) -> Vec<LogicalPath> {
        raw.iter().map(|raw| LogicalPath::parse(raw).unwrap()).collect()
    }

    async fn waits(lane: &Lane, raw: &[&str]) -> bool {
        tokio::time::timeout(Duration::from_millis(20), lane.enter(paths(raw))).await.is_err()
    }

    #[tokio::test]
    async fn only_overlapping_paths_wait() {
        let lane = Lane::new(Usage::default(), false);
        let held = lane.enter(paths(&["src/a", "b"])).await;
        for (raw, want) in
            [("src/a", true), ("src", true), ("src/a/c", true), (".", true), ("src/ab", false), ("c", false)]
        {
            assert_eq!(waits(&lane, &[raw]).await, want, "{raw}");
        }
        drop(held);
        assert!(!waits(&lane, &["src/a"]).await);
    }

    #[tokio::test]
    async fn the_first_to_come_goes_first() {
        let lane = Lane::new(Usage::default(), false);
        let first = lane.enter(paths(&["a"])).await;
        let mut second = Box::pin(lane.enter(paths(&["a", "b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
        // `b` is free, but one who came earlier waits for it.
        assert!(waits(&lane, &["b"]).await);
        drop(first);
        let second = second.await;
        assert!(waits(&lane, &["b"]).await);
        drop(second);
        assert!(!waits(&lane, &["b"]).await);
    }
}
