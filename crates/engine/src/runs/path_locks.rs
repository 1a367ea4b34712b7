//! What a run's mutations hold while they are under way.
//!
//! Mutations of different files may run at the same time, so that they can share a commit; two that touch the same
//! file, or a file and a folder above it, run one after the other in the order in which they came.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{LogicalPath, Usage};
use tokio::sync::oneshot;

/// The mutations of one run that are under way or wait.
#[derive(Debug)]
pub struct PathLocks {
    inner: Mutex<Inner>,
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
    /// Files in the run's `tmp/` of calls whose commits were in doubt: the journal may name them.
    doubtful: Vec<String>,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    paths: Vec<LogicalPath>,
    /// How many that came earlier hold one of the paths, or wait for it.
    earlier: usize,
    /// Wakes it when there are none any more; `None` where it need not wait.
    go: Option<oneshot::Sender<()>>,
}

/// The right to change some paths, until it is dropped.
#[derive(Debug)]
pub struct PathGuard<'a> {
    lane: &'a PathLocks,
    number: u64,
}

impl PathLocks {
    /// A lane of a run that has used up `usage`; `unsettled` where the ledger may hold steps that the tree has not seen.
    pub fn new(usage: Usage, unsettled: bool) -> Self {
        let inner = Inner { next: 0, holders: Vec::new(), usage, written: None, unsettled, doubtful: Vec::new() };
        Self { inner: Mutex::new(inner) }
    }

    /// Waits until no earlier mutation holds any of `paths`, or a path above or under one; the root holds them all.
    pub async fn enter(&self, paths: Vec<LogicalPath>) -> PathGuard<'_> {
        let (number, turn) = self.lock().queue(paths);
        // Made before the wait, so that a caller who gives up while waiting leaves the queue too.
        let pass = PathGuard { lane: self, number };
        if let Some(turn) = turn {
            // The other end is kept until this pass is dropped, and used before.
            let _ = turn.await;
        }
        pass
    }

    /// What the run has used up, with what calls under way have reserved.
    pub fn usage(&self) -> Usage {
        self.lock().usage.clone()
    }

    /// Whether it is known which paths the run has written.
    pub fn knows_written(&self) -> bool {
        self.lock().written.is_some()
    }

    /// Whether the run is known to have written `path`. For whoever holds `path`: else it may be written meanwhile.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.lock().written.as_ref().is_some_and(|written| written.contains(path))
    }

    /// Takes over which paths the run has written.
    pub fn set_written(&self, written: BTreeSet<LogicalPath>) {
        self.lock().written = Some(written);
    }

    /// Adds what a mutation has written.
    pub fn add_written(&self, paths: &[LogicalPath]) {
        if let Some(written) = &mut self.lock().written {
            written.extend(paths.iter().cloned());
        }
    }

    /// Reserves `more`; given back by [`release`](Self::release) where the call fails.
    pub fn reserve(&self, more: &Usage) {
        self.lock().usage.add(more);
    }

    /// Gives back what a failed call had reserved.
    pub fn release(&self, more: &Usage) {
        self.lock().usage.subtract(more);
    }

    /// Takes over what the run has used up; which paths it has written is asked for again. For whoever is alone in the lane.
    pub fn start_anew(&self, usage: Usage) {
        let mut inner = self.lock();
        inner.usage = usage;
        inner.written = None;
    }

    /// Whether the ledger may hold steps that the tree has not seen, since a call's fate is not known.
    pub fn is_unsettled(&self) -> bool {
        self.lock().unsettled
    }

    /// Remembers whether the ledger may hold steps that the tree has not seen.
    pub fn set_unsettled(&self, unsettled: bool) {
        self.lock().unsettled = unsettled;
    }

    /// A call's commit is in doubt, and the journal may name `files` of the run's `tmp/`.
    pub fn doubt(&self, files: Vec<String>) {
        let mut inner = self.lock();
        inner.unsettled = true;
        inner.doubtful.extend(files);
    }

    /// The files of calls whose commits were in doubt; whoever takes them knows the outcome. For whoever is alone in the lane.
    pub fn take_doubtful(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().doubtful)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock, and every state in between is sound.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds a holder of `paths`; what it has to wait for, if anything.
    fn queue(&mut self, paths: Vec<LogicalPath>) -> (u64, Option<oneshot::Receiver<()>>) {
        self.next += 1;
        let earlier = self.holders.iter().filter(|holder| holder.meets(&paths)).count();
        let (go, turn) = if earlier == 0 {
            (None, None)
        } else {
            let (go, turn) = oneshot::channel();
            (Some(go), Some(turn))
        };
        self.holders.push(Holder { number: self.next, paths, earlier, go });
        (self.next, turn)
    }

    /// Removes a holder, and wakes those that waited for it alone: nobody is woken who cannot go on.
    fn leave(&mut self, number: u64) {
        let Ok(at) = self.holders.binary_search_by_key(&number, |holder| holder.number) else { return };
        let left = self.holders.remove(at);
        for later in self.holders[at..].iter_mut().filter(|later| later.meets(&left.paths)) {
            later.earlier -= 1;
            if later.earlier == 0
                && let Some(go) = later.go.take()
            {
                // One that has given up meanwhile leaves the queue by itself.
                let _ = go.send(());
            }
        }
    }
}

impl Holder {
    /// Whether one of its paths is one of `paths`, or lies above or below one.
    fn meets(&self, paths: &[LogicalPath]) -> bool {
        self.paths.iter().any(|held| paths.iter().any(|path| overlap(held, path)))
    }
}

impl Drop for PathGuard<'_> {
    fn drop(&mut self) {
        self.lane.lock().leave(self.number);
    }
}

/// Whether one of two paths is the other, or lies beneath it.
pub fn overlap(a: &LogicalPath, b: &LogicalPath) -> bool {
    a == b || a.is_under(b) || b.is_under(a)
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

    async fn waits(lane: &PathLocks, raw: &[&str]) -> bool {
        tokio::time::timeout(Duration::from_millis(20), lane.enter(paths(raw))).await.is_err()
    }

    #[tokio::test]
    async fn only_overlapping_paths_wait() {
        let lane = PathLocks::new(Usage::default(), false);
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
        let lane = PathLocks::new(Usage::default(), false);
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

    #[tokio::test]
    async fn only_who_can_go_on_is_woken() {
        const WAITERS: usize = 500;
        let lane = Arc::new(PathLocks::new(Usage::default(), false));
        let first = lane.enter(paths(&["a"])).await;
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..WAITERS {
            let (lane, polls, done) = (Arc::clone(&lane), Arc::clone(&polls), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let mut entering = std::pin::pin!(lane.enter(paths(&["a"])));
                let pass = std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    entering.as_mut().poll(context)
                });
                let _pass = pass.await;
                done.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
        assert!(polls.load(Ordering::Relaxed) <= 2 * WAITERS, "{polls:?} polls of {WAITERS} waiters");
        assert!(lane.lock().holders.is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_keeps_nobody_waiting() {
        let lane = PathLocks::new(Usage::default(), false);
        let first = lane.enter(paths(&["a"])).await;
        let mut second = Box::pin(lane.enter(paths(&["a", "b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
        let mut third = Box::pin(lane.enter(paths(&["b"])));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut third).await.is_err());
        drop(second);
        let third = third.await;
        drop((first, third));
        assert!(lane.lock().holders.is_empty());
    }

    #[test]
    fn what_the_run_has_written_is_asked_for_path_by_path() {
        let lane = PathLocks::new(Usage::default(), false);
        let all = paths(&["a", "b/c"]);
        lane.add_written(&all);
        assert!(!lane.knows_written() && !lane.has_written(&all[0]), "nobody has said what was written before");
        lane.set_written(BTreeSet::new());
        lane.add_written(&all);
        assert!(lane.knows_written() && all.iter().all(|path| lane.has_written(path)));
        assert!(!lane.has_written(&paths(&["b"])[0]));
        lane.start_anew(Usage::default());
        assert!(!lane.knows_written() && !lane.has_written(&all[0]));
    }
}
