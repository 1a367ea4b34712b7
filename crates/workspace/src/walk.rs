//! Walking over a tree in path order.
//!
//! One thread at a time reads folders, and several visit the files in them. The results are collected in path order whatever the
//! timing of the threads, and the walk stops once the visitor has enough.

mod entries;
mod walker;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use model::{Access, Code, FileKind, LogicalPath, PathFacts, Rules};
use parking_lot::{Condvar, Mutex};
use rustix::fs::FileType;

use crate::error::check_cancelled;
use crate::guard::{GuardError, Opened, TreeFolder};
use crate::ignored::{RuleScope, is_machine_made};
use crate::{Tree, WorkspaceError};
pub(crate) use entries::{WalkPath, escape};
use walker::{WalkBatch, WalkStep, Walker};

/// The number of threads that visit files.
static THREADS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZeroUsize::get).min(4));

/// The folders and files that a walk reads: those of the present tree, or of a snapshot.
pub(crate) trait FolderSource: Sync {
    /// An open folder.
    type Folder: Send + Sync;

    /// Returns the present tree, whose ignore rules apply.
    fn tree(&self) -> &Tree;

    /// Calls `visit` for every entry of `folder` with its type, in no particular order.
    fn each_entry(
        &self,
        folder: &Self::Folder,
        buffer: &mut Vec<u8>,
        visit: &mut dyn FnMut(&CStr, FileType) -> Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError>;

    /// Opens the folder at `path`, which is the entry `name` of `parent`, if that is open. `None` if it does not exist any more.
    fn open(
        &self,
        parent: Option<(&Self::Folder, &CStr)>,
        path: &LogicalPath,
    ) -> Result<Option<Self::Folder>, WorkspaceError>;

    /// Returns the ignore rules in force in `folder` at `path`. `above` are those of its parent.
    fn scope(
        &self,
        above: &RuleScope,
        folder: &Self::Folder,
        path: &LogicalPath,
        has_gitignore: bool,
    ) -> Result<RuleScope, WorkspaceError>;
}

/// An entry that a walk may visit, described by its name.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Its path, as answers show it.
    pub(crate) at: WalkPath,
    /// Its name in its folder.
    pub(crate) name: CString,
    /// Whether its path names it. Otherwise its name is not UTF-8, and no call can name it.
    pub(crate) is_nameable: bool,
    pub(crate) file_type: FileType,
    /// Its kind; `Directory` for a folder.
    pub(crate) kind: FileKind,
    /// Whether git ignores it and does not track it.
    pub(crate) ignored: bool,
    /// Its depth under the folder at which the walk starts: 1 in that folder.
    pub(crate) depth: usize,
}

impl Candidate {
    /// Returns the facts by which policy judges it as an entry of this kind.
    pub(crate) fn facts(&self, kind: FileKind, hard_linked: bool) -> PathFacts<'_> {
        PathFacts { path: &self.at.shown, real_path: self.at.real.as_ref(), kind, ignored: self.ignored, hard_linked }
    }

    /// Returns the code that reading it would be refused with, as an entry of this kind.
    pub(crate) fn refusal(&self, rules: &Rules, kind: FileKind, hard_linked: bool) -> Option<Code> {
        let judged = model::judge_path(rules, Access::Read, &self.facts(kind, hard_linked));
        judged.err().map(|refusal| refusal.code)
    }
}

/// Whether an entry is visited.
pub(crate) enum Admission<T> {
    /// The file is visited, or the folder entered.
    Visit,
    /// The file or folder itself is visited. Then the folder is entered, if that is wanted.
    VisitEntry {
        /// Whether the walk enters the folder.
        enters: bool,
    },
    /// The entry is left out without a trace.
    Skip,
    /// The entry is left out, and this is collected in its place.
    Report(T),
}

/// What a walk does. All threads share it.
pub(crate) trait Visitor<F = TreeFolder>: Sync {
    /// Whether entries are wanted that no call can name.
    const WANTS_UNNAMEABLE: bool = false;

    /// The state of one thread.
    type Worker<'a>
    where
        Self: 'a;
    /// The result of one file.
    type Finding: Send;
    /// The result of the walk.
    type Outcome: Send;

    /// Returns the rules that determine the kind of a file.
    fn rules(&self) -> &Rules;

    /// Creates the state of a thread.
    fn worker(&self) -> Self::Worker<'_>;

    /// The number of threads that visit files.
    fn threads(&self) -> usize {
        *THREADS
    }

    /// Whether entries of that type are visited. Folders are always entered.
    fn wants_type(&self, file_type: FileType) -> bool {
        file_type == FileType::RegularFile
    }

    /// Whether the caller's filters select the path of a file, or of anything that may be in a folder.
    fn is_requested(&self, path: &LogicalPath, is_folder: bool) -> bool;

    /// Decides whether the file is visited, or the folder entered.
    fn admit(&self, candidate: &Candidate) -> Admission<Self::Finding>;

    /// Returns the result of an entry whose path is longer than a call can name.
    fn too_long(&self) -> Self::Finding;

    /// Visits a file in the folder `dir`. `None` if that folder does not exist any more.
    fn visit(
        &self,
        worker: &mut Self::Worker<'_>,
        dir: Option<&F>,
        candidate: Candidate,
    ) -> Result<Self::Finding, WorkspaceError>;

    /// Returns the finding that ends the walk, if it has to end before it has visited everything.
    fn interruption(&self) -> Option<Self::Finding> {
        None
    }

    /// Adds the result of the next file in path order. Returns whether the outcome is complete.
    fn collect(&self, outcome: &mut Self::Outcome, finding: Self::Finding) -> bool;
}

/// The folder at which a walk starts.
pub(crate) struct WalkRoot<F = TreeFolder> {
    pub(crate) dir: F,
    pub(crate) at: WalkPath,
    pub(crate) scope: RuleScope,
}

impl WalkRoot {
    /// Creates the root from the folder `opened`, which the caller named `path`.
    pub(crate) fn of(tree: &Tree, opened: Opened, path: &LogicalPath) -> Result<Self, WorkspaceError> {
        let at = WalkPath { shown: path.clone(), real: opened.real.clone() };
        let scope = tree.scope_of(at.real())?;
        Ok(Self { dir: opened.into_folder(at.real()), at, scope })
    }
}

impl<F> WalkRoot<F> {
    /// Whether git ignores the folder. Its contents are requested then.
    pub(crate) fn is_ignored(&self) -> bool {
        self.scope.excludes_folder_itself()
    }

    /// Whether everything in the folder is generated or vendored. Its contents are requested then.
    pub(crate) fn is_machine_made(&self, rules: &Rules) -> bool {
        is_machine_made(rules.kind_of_dir(self.at.real()))
    }
}

/// Walks over everything under a folder, and adds the results to `outcome`.
pub(crate) fn walk<S: FolderSource, V: Visitor<S::Folder>>(
    source: &S,
    visitor: &V,
    root: WalkRoot<S::Folder>,
    outcome: V::Outcome,
    cancel: &AtomicBool,
) -> Result<V::Outcome, WorkspaceError> {
    let results = Results { outcome, next: 1, early: BTreeMap::new(), error: None };
    let walk = Walk {
        visitor,
        cancel,
        walker: Mutex::new(Walker::new(source, visitor, root, cancel)?),
        results: Mutex::new(results),
        progress: Condvar::new(),
        stopped: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        for _ in 1..visitor.threads() {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    let Results { outcome, error, .. } = walk.results.into_inner();
    error.map_or(Ok(outcome), Err)
}

/// How many batches may be visited before the one that is collected next.
const MAX_BATCHES_AHEAD: usize = 32;
/// The longest time until a waiting thread notices that the walk has ended.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// A walk in progress.
struct Walk<'a, S: FolderSource, V: Visitor<S::Folder>> {
    visitor: &'a V,
    cancel: &'a AtomicBool,
    walker: Mutex<Walker<'a, S, V>>,
    results: Mutex<Results<V::Finding, V::Outcome>>,
    /// Notified when results were collected.
    progress: Condvar,
    /// Whether no more results are needed.
    stopped: AtomicBool,
}

struct Results<T, O> {
    outcome: O,
    /// The number of the batch that is collected next.
    next: usize,
    /// The results of later batches.
    early: BTreeMap<usize, Vec<T>>,
    error: Option<WorkspaceError>,
}

impl<S: FolderSource, V: Visitor<S::Folder>> Walk<'_, S, V> {
    fn work(&self) {
        if let Err(error) = self.visit_batches() {
            self.stopped.store(true, Ordering::Relaxed);
            self.results.lock().error.get_or_insert(error);
        }
    }

    fn visit_batches(&self) -> Result<(), WorkspaceError> {
        let mut worker = self.visitor.worker();
        loop {
            let batch = self.walker.lock().next_batch(&self.stopped)?;
            let Some(WalkBatch { number, steps }) = batch else { return Ok(()) };
            self.wait_for_turn(number);
            let mut findings = Vec::with_capacity(steps.len());
            for step in steps {
                check_cancelled(self.cancel)?;
                if self.stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                findings.push(match step {
                    WalkStep::Found(finding) => finding,
                    WalkStep::Visit(dir, candidate) => self.visitor.visit(&mut worker, dir.as_deref(), candidate)?,
                });
            }
            self.collect(number, findings);
        }
    }

    /// Waits while the batch is too far ahead of the one that is collected next: what one slow file holds up is bounded.
    fn wait_for_turn(&self, number: usize) {
        let mut results = self.results.lock();
        while number > results.next + MAX_BATCHES_AHEAD && !self.stopped.load(Ordering::Relaxed) {
            self.progress.wait_for(&mut results, STOP_INTERVAL);
        }
    }

    /// Adds the results of a batch, and collects those that are next in path order.
    fn collect(&self, number: usize, findings: Vec<V::Finding>) {
        let mut results = self.results.lock();
        let Results { outcome, next, early, .. } = &mut *results;
        early.insert(number, findings);
        while let Some(findings) = early.remove(next) {
            *next += 1;
            for finding in findings {
                if self.stopped.load(Ordering::Relaxed) {
                    return;
                }
                if self.visitor.collect(outcome, finding) {
                    self.stopped.store(true, Ordering::Relaxed);
                }
            }
        }
        self.progress.notify_all();
    }
}

impl FolderSource for Tree {
    type Folder = TreeFolder;

    fn tree(&self) -> &Tree {
        self
    }

    fn each_entry(
        &self,
        folder: &TreeFolder,
        buffer: &mut Vec<u8>,
        visit: &mut dyn FnMut(&CStr, FileType) -> Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        self.root.each_entry(folder, buffer, visit)
    }

    fn open(
        &self,
        parent: Option<(&TreeFolder, &CStr)>,
        path: &LogicalPath,
    ) -> Result<Option<TreeFolder>, WorkspaceError> {
        let opened = match parent {
            Some((parent, name)) => self.root.open_subfolder(parent, name),
            None => match self.root.open_unlinked(path) {
                Ok(opened) if opened.file_type() == FileType::Directory => Ok(opened.into_folder(path)),
                Ok(_) => Err(GuardError::NotADirectory),
                Err(error) => Err(error),
            },
        };
        Ok(opened.map(Some).or_else(|error| error.unless_disk().map(|()| None))?)
    }

    fn scope(
        &self,
        above: &RuleScope,
        folder: &TreeFolder,
        path: &LogicalPath,
        has_gitignore: bool,
    ) -> Result<RuleScope, WorkspaceError> {
        let path = path.as_str().as_bytes();
        Ok(match &self.ignored {
            None => RuleScope::default(),
            Some(ignored) if has_gitignore => ignored.enter(&self.root, above, path, folder)?,
            Some(ignored) => ignored.enter_without_gitignore(above, path)?,
        })
    }
}
