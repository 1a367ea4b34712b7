//! Files whose newest versions are journalled and answered, and come into the tree behind the answers.
//!
//! While many mutations of a run are under way, each of them would make a file beside the tree, put it in the place of the
//! last one, and free that: most of what a small write costs. The journal holds the bytes already. So a file that is
//! replaced again and again goes into the tree once in a while, in its newest version, and at the latest before the last of
//! these mutations has its answer: whoever looks while none is under way finds all of them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{FileState, LogicalPath, Sha256, Step, StepBytes, StepContent};
use tokio::sync::Notify;
use workspace::Seen;

use crate::lane::overlap;

/// So many mutations of one run have to be under way: no agent by itself makes as many at a time.
const MANY: usize = 16;
/// For so long afterwards it is likely that they will be again: those that share a commit are answered together.
const STORM: Duration = Duration::from_millis(50);
/// How long the last one waits for another, which then is the last.
const MOMENT: Duration = Duration::from_millis(3);
/// Files of one run that are behind at most.
const MAX_FILES: usize = 256;
/// No further change waits once they have as many bytes.
const MAX_BYTES: usize = 8 << 20;
/// Versions of one file that the journal keeps for it at most.
const MAX_VERSIONS: usize = 256;

/// What of one run is behind.
///
/// A file's entry is only touched by whoever holds its path in the run's [`Lane`](crate::lane::Lane).
#[derive(Debug)]
pub(crate) struct Behind {
    /// How long the tree may be behind; zero where it never is.
    lag: Duration,
    under_way: AtomicUsize,
    /// Somebody has entered while nobody was there.
    entered: Notify,
    files: Mutex<Files>,
    /// Whether what was answered was left to the journal to bring in.
    owed: AtomicBool,
}

#[derive(Debug, Default)]
struct Files {
    by_path: BTreeMap<LogicalPath, Newest>,
    bytes: usize,
    /// Until when many mutations are likely to be under way.
    storm: Option<Instant>,
    /// Whether somebody sees to it that no file is behind for longer than it may.
    watched: bool,
}

/// The newest version of one file.
#[derive(Debug)]
struct Newest {
    /// What the tree holds.
    found: Sha256,
    /// The version that it was read from.
    seen: Option<Seen>,
    state: FileState,
    bytes: Vec<u8>,
    /// The records that led there from `found`.
    seqs: Vec<u64>,
    /// Until when the tree may be behind.
    due: Instant,
}

/// A version of a file that was journalled.
#[derive(Debug)]
pub(crate) struct Version {
    /// Where it is.
    pub(crate) path: LogicalPath,
    /// The version that it replaces.
    pub(crate) before: Sha256,
    /// What that was read from, where it was read from the tree.
    pub(crate) seen: Option<Seen>,
    /// What it is.
    pub(crate) state: FileState,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// A step of the tree that brings a file up to its newest version.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// The step.
    pub(crate) step: Step,
    /// The version that it starts from.
    pub(crate) seen: Option<Seen>,
    /// The records whose steps it stands for.
    pub(crate) seqs: Vec<u64>,
}

/// A mutation that is under way.
pub(crate) struct UnderWay<'a>(&'a Behind);

impl UnderWay<'_> {
    /// Ends it; whether it was the last one.
    pub(crate) fn leave(self) -> bool {
        std::mem::ManuallyDrop::new(self).0.leave()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Behind {
    /// Nothing is behind, and nothing will be for longer than `lag`.
    pub(crate) fn new(lag: Duration) -> Self {
        Self {
            lag,
            under_way: AtomicUsize::new(0),
            entered: Notify::new(),
            files: Mutex::default(),
            owed: AtomicBool::new(false),
        }
    }

    /// How often it is looked whether a file is due.
    pub(crate) fn tick(&self) -> Duration {
        self.lag / 8
    }

    /// Counts a mutation of the run as under way.
    pub(crate) fn enter(&self) -> UnderWay<'_> {
        if self.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            self.entered.notify_waiters();
        }
        UnderWay(self)
    }

    /// Waits for a moment whether another mutation enters; whether none has. For whoever was the last one.
    pub(crate) async fn stays_empty(&self) -> bool {
        let mut entered = pin!(self.entered.notified());
        entered.as_mut().enable();
        self.under_way.load(Ordering::Acquire) == 0 && tokio::time::timeout(MOMENT, entered).await.is_err()
    }

    fn leave(&self) -> bool {
        self.under_way.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether a change of the file at `path` may be answered before the tree has it.
    pub(crate) fn may_wait(&self, path: &LogicalPath) -> bool {
        if self.lag.is_zero() || path.file_name() == workspace::RULES_NAME {
            return false;
        }
        let many = self.under_way.load(Ordering::Acquire) >= MANY;
        let mut files = self.lock();
        if many {
            files.storm = Some(Instant::now() + STORM);
        } else if files.storm.is_none_or(|until| Instant::now() >= until) {
            return false;
        }
        match files.by_path.get(path) {
            None => files.by_path.len() < MAX_FILES && files.bytes < MAX_BYTES,
            Some(newest) => Instant::now() < newest.due && newest.seqs.len() < MAX_VERSIONS && files.bytes < MAX_BYTES,
        }
    }

    /// Whether any file is behind.
    pub(crate) fn is_any(&self) -> bool {
        !self.lock().by_path.is_empty()
    }

    /// Whether the file at `path` is behind.
    pub(crate) fn is_at(&self, path: &LogicalPath) -> bool {
        self.lock().by_path.contains_key(path)
    }

    /// The files that are behind.
    pub(crate) fn paths(&self) -> Vec<LogicalPath> {
        self.lock().by_path.keys().cloned().collect()
    }

    /// The files that are due; where none is behind at all, nobody watches any more.
    pub(crate) fn late(&self) -> Option<Vec<LogicalPath>> {
        let now = Instant::now();
        let mut files = self.lock();
        files.watched = !files.by_path.is_empty();
        let late = files.by_path.iter().filter(|(_, newest)| newest.due <= now);
        files.watched.then(|| late.map(|(path, _)| path.clone()).collect())
    }

    /// The files that are behind at, above or beneath one of `held`.
    pub(crate) fn at(&self, held: &[LogicalPath]) -> Vec<LogicalPath> {
        let files = self.lock();
        let touches = |path: &&LogicalPath| held.iter().any(|held| overlap(held, path));
        files.by_path.keys().filter(touches).cloned().collect()
    }

    /// The newest version of the file at `path`, where the tree is behind.
    pub(crate) fn newest(&self, path: &LogicalPath) -> Option<(FileState, Vec<u8>)> {
        self.lock().by_path.get(path).map(|newest| (newest.state.clone(), newest.bytes.clone()))
    }

    /// Puts a version behind the file's last, journalled by the record `seq`. Whether somebody has to watch over it.
    pub(crate) fn put(&self, version: Version, seq: u64) -> bool {
        let Version { path, before, seen, state, bytes } = version;
        let mut files = self.lock();
        files.bytes += bytes.len();
        if let Some(newest) = files.by_path.get_mut(&path) {
            newest.seqs.push(seq);
            newest.state = state;
            let replaced = std::mem::replace(&mut newest.bytes, bytes).len();
            files.bytes -= replaced;
        } else {
            // Not all at once, where all began at once: by any number that differs from file to file.
            let part = u32::from(state.sha256.as_bytes()[0]);
            let due = Instant::now() + self.lag * (192 + part) / 512;
            files.by_path.insert(path, Newest { found: before, seen, state, bytes, seqs: vec![seq], due });
        }
        !std::mem::replace(&mut files.watched, true)
    }

    /// Whoever watched does so no more, and not because nothing is behind.
    pub(crate) fn stop_watching(&self) {
        self.lock().watched = false;
    }

    /// What brings the file at `path` up to its newest version, where the tree is behind.
    pub(crate) fn catch_up(&self, path: &LogicalPath) -> Option<CatchUp> {
        let files = self.lock();
        let newest = files.by_path.get(path)?;
        let bytes = StepBytes::Inline(newest.bytes.clone());
        let after = StepContent { sha256: newest.state.sha256, mode: newest.state.mode, bytes };
        let step = Step { path: path.clone(), before: Some(newest.found), after: Some(after) };
        Some(CatchUp { step, seen: newest.seen, seqs: newest.seqs.clone() })
    }

    /// The tree holds the newest version of the file at `path`, or it is known that it cannot.
    pub(crate) fn remove(&self, path: &LogicalPath) {
        let mut files = self.lock();
        if let Some(newest) = files.by_path.remove(path) {
            files.bytes -= newest.bytes.len();
        }
    }

    /// Leaves all that is behind to the journal, from which the run is settled. The caller is alone in the lane.
    pub(crate) fn leave_to_journal(&self) {
        let mut files = self.lock();
        if !files.by_path.is_empty() {
            self.owed.store(true, Ordering::Release);
        }
        files.by_path.clear();
        files.bytes = 0;
    }

    /// Whether something that was answered is neither in the tree nor here.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire)
    }

    /// The run was settled.
    pub(crate) fn settled(&self) {
        self.owed.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        // Nothing panics while it holds the lock.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use model::FileKind;

    use super::*;

    fn path(raw: &str) -> LogicalPath {
        LogicalPath::parse(raw).unwrap()
    }

    fn version(raw: &str, before: &str, text: &str) -> Version {
        let bytes = text.as_bytes().to_vec();
        let (sha256, size_bytes) = (Sha256::of(&bytes), bytes.len() as u64);
        let state = FileState { sha256, size_bytes, mode: 0o644, kind: FileKind::TextDoc };
        Version { path: path(raw), before: Sha256::of(before.as_bytes()), seen: None, state, bytes }
    }

    #[test]
    fn all_versions_of_a_file_are_one_step_from_what_the_tree_holds() {
        let behind = Behind::new(Duration::from_secs(1));
        assert!(behind.put(version("d/a.md", "0", "1"), 7), "somebody has to watch");
        assert!(!behind.put(version("d/a.md", "1", "22"), 9), "somebody does");
        assert_eq!(behind.newest(&path("d/a.md")).unwrap().1, b"22");
        assert_eq!(behind.lock().bytes, 2);
        let CatchUp { step, seqs, .. } = behind.catch_up(&path("d/a.md")).unwrap();
        assert_eq!((step.before, seqs), (Some(Sha256::of(b"0")), vec![7, 9]));
        assert_eq!(step.after.unwrap().sha256, Sha256::of(b"22"));
        for held in ["d", "d/a.md", "d/a.md/b", "."] {
            assert_eq!(behind.at(&[path("x"), path(held)]), [path("d/a.md")], "{held}");
        }
        assert!(behind.at(&[path("d/a.mdx"), path("d/b")]).is_empty());
        behind.remove(&path("d/a.md"));
        assert_eq!((behind.is_any(), behind.lock().bytes), (false, 0));
        assert_eq!(behind.late(), None, "nobody has to watch any more");
        assert!(behind.put(version("b", "0", "1"), 11));
    }

    #[tokio::test]
    async fn a_change_waits_while_many_are_under_way_and_the_file_is_not_due() {
        let behind = Behind::new(Duration::from_millis(80));
        let few: Vec<_> = (1..MANY).map(|_| behind.enter()).collect();
        assert!(!behind.may_wait(&path("a")));
        let last = behind.enter();
        assert!(behind.may_wait(&path("a")) && !behind.may_wait(&path("d/.gitignore")));
        drop(few);
        assert!(behind.may_wait(&path("a")), "they come and go together");
        behind.put(version("a", "0", "1"), 1);
        assert!(behind.late().is_some_and(|late| late.is_empty()));
        tokio::time::sleep(Duration::from_millis(80)).await;
        assert_eq!(behind.late(), Some(vec![path("a")]));
        assert!(!behind.may_wait(&path("a")) && last.leave());
        let never = Behind::new(Duration::ZERO);
        let _many: Vec<_> = (0..MANY).map(|_| never.enter()).collect();
        assert!(!never.may_wait(&path("a")));
    }

    #[test]
    fn what_is_left_to_the_journal_is_owed_until_the_run_is_settled() {
        let behind = Behind::new(Duration::from_secs(1));
        behind.leave_to_journal();
        assert!(!behind.is_owed(), "nothing was behind");
        behind.put(version("a", "0", "1"), 1);
        behind.leave_to_journal();
        assert!(behind.is_owed() && !behind.is_any());
        behind.settled();
        assert!(!behind.is_owed());
    }

    #[tokio::test]
    async fn the_last_one_waits_a_moment_for_another() {
        let behind = Behind::new(Duration::from_secs(1));
        assert!(behind.stays_empty().await);
        let (stayed, _entered) = tokio::join!(behind.stays_empty(), async { behind.enter() });
        assert!(!stayed);
        assert!(!behind.stays_empty().await, "one is there");
    }
}
