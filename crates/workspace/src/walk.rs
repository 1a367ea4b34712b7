//! Walking over a tree on several threads, with a result that does not depend on their timing.
//!
//! Folders and files are visited approximately in path order. The results are collected exactly in path order, and the walk
//! stops once the visitor has enough. A folder's files are visited while its handle is open.

mod entries;
mod folder;
mod progress;

use std::ffi::CString;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use model::{LogicalPath, Rules};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::FileType;

use crate::error::check_cancelled;
use crate::guard::{Opened, TreeFolder};
use crate::ignored::RuleScope;
use crate::ignored::is_machine_made;
use crate::{Tree, WorkspaceError};
pub(crate) use entries::{WalkPath, escape};
pub(crate) use folder::Candidate;
use folder::{FolderReader, FolderScope, Item};
use progress::{Progress, Slot, WalkNode};

/// The number of threads of a walk.
static THREADS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZeroUsize::get).min(4));
/// How many files of a folder are one task.
const BATCH: usize = 32;
/// Under this depth folders are opened from the root each time, since handles are scarce.
const MAX_OPEN_DEPTH: usize = 64;

/// Whether an entry is visited.
pub(crate) enum Admission<T> {
    /// The file is visited, or the folder entered.
    Visit,
    /// The entry is left out without a trace.
    Skip,
    /// The entry is left out, and this is collected in its place.
    Report(T),
}

/// What a walk does. All threads share it.
pub(crate) trait Visitor: Sync {
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

    /// Whether entries of that type are visited. Folders are always entered.
    fn wants_type(&self, file_type: FileType) -> bool {
        file_type == FileType::RegularFile
    }

    /// Whether the caller's filters select the path of a file, or of anything that may be in a folder.
    fn is_requested(&self, path: &LogicalPath, is_folder: bool) -> bool;

    /// Decides whether the file is visited, or the folder entered.
    fn admit(&self, candidate: &Candidate) -> Admission<Self::Finding>;

    /// Visits a file in the folder `dir`. `None` if that folder does not exist any more.
    fn visit(
        &self,
        worker: &mut Self::Worker<'_>,
        dir: Option<&TreeFolder>,
        candidate: Candidate,
    ) -> Result<Self::Finding, WorkspaceError>;

    /// Adds the result of the next file in path order. Returns whether the outcome is complete.
    fn collect(&self, outcome: &mut Self::Outcome, finding: Self::Finding) -> bool;
}

/// The folder at which a walk starts.
pub(crate) struct WalkRoot {
    dir: TreeFolder,
    at: WalkPath,
    scope: RuleScope,
}

impl WalkRoot {
    /// Creates the root from the folder `opened`, which the caller named `path`.
    pub(crate) fn of(tree: &Tree, opened: Opened, path: &LogicalPath) -> Result<Self, WorkspaceError> {
        let at = WalkPath { shown: path.clone(), real: opened.real.clone() };
        let scope = tree.scope_of(at.real())?;
        Ok(Self { dir: opened.into_folder(at.real()), at, scope })
    }

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
pub(crate) fn walk<V: Visitor>(
    tree: &Tree,
    visitor: &V,
    root: WalkRoot,
    outcome: V::Outcome,
    cancel: &AtomicBool,
) -> Result<V::Outcome, WorkspaceError> {
    let work = Work::Read { folder: root.at, scope: FolderScope::Own(root.scope) };
    let tasks = vec![Task { node: Progress::<V::Finding>::ROOT, dir: Handle::Open(Arc::new(root.dir)), work }];
    let state = WalkState { tasks, busy: 0, idle: 0, progress: Progress::new(), outcome, complete: false, error: None };
    let walk =
        Walk { tree, visitor, cancel, state: Mutex::new(state), wake: Condvar::new(), stopped: AtomicBool::new(false) };
    thread::scope(|scope| {
        for _ in 1..*THREADS {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    let state = walk.state.into_inner();
    state.error.map_or(Ok(state.outcome), Err)
}

/// A walk in progress.
struct Walk<'a, V: Visitor> {
    tree: &'a Tree,
    visitor: &'a V,
    cancel: &'a AtomicBool,
    state: Mutex<WalkState<V>>,
    wake: Condvar,
    /// Whether no more results are needed.
    stopped: AtomicBool,
}

struct WalkState<V: Visitor> {
    /// The tasks that remain; the last is the first in path order.
    tasks: Vec<Task>,
    /// The number of threads that run a task.
    busy: usize,
    /// The number of threads that wait for a task.
    idle: usize,
    progress: Progress<V::Finding>,
    outcome: V::Outcome,
    /// Whether the visitor has enough.
    complete: bool,
    error: Option<WorkspaceError>,
}

/// A piece of work in one folder.
struct Task {
    node: WalkNode,
    dir: Handle,
    work: Work,
}

enum Work {
    /// Read the folder, and create tasks for its entries.
    Read { folder: WalkPath, scope: FolderScope },
    /// Visit some of its files, each with its slot.
    Visit(Vec<(usize, Candidate)>),
}

/// How a folder is opened.
#[derive(Clone)]
enum Handle {
    Open(Arc<TreeFolder>),
    In { parent: Arc<TreeFolder>, name: CString },
    At(WalkPath),
}

/// The result of a task.
enum WalkedTask<T> {
    /// The folder does not exist any more.
    Nothing,
    Items {
        dir: Handle,
        scope: RuleScope,
        items: Vec<Item<T>>,
    },
    Findings(Vec<(usize, T)>),
}

impl<V: Visitor> Walk<'_, V> {
    fn work(&self) {
        let mut reader = FolderReader::new(self.tree, self.visitor, self.cancel);
        let mut worker = self.visitor.worker();
        let mut task = self.next(self.state.lock());
        while let Some(Task { node, dir, work }) = task {
            let done = match work {
                Work::Read { folder, scope } => self.read(&mut reader, &dir, folder, scope),
                Work::Visit(files) => self.visit(&mut worker, &dir, files),
            };
            task = self.next(self.finish(node, done));
        }
    }

    fn read(
        &self,
        reader: &mut FolderReader<'_, V>,
        dir: &Handle,
        folder: WalkPath,
        scope: FolderScope,
    ) -> Result<WalkedTask<V::Finding>, WorkspaceError> {
        let Some(dir) = self.open(dir)? else { return Ok(WalkedTask::Nothing) };
        let (scope, items) = reader.read(&dir, &folder, scope)?;
        let is_deep = folder.shown.components().count() > MAX_OPEN_DEPTH;
        let dir = if is_deep { Handle::At(folder) } else { Handle::Open(dir) };
        Ok(WalkedTask::Items { dir, scope, items })
    }

    fn visit(
        &self,
        worker: &mut V::Worker<'_>,
        dir: &Handle,
        files: Vec<(usize, Candidate)>,
    ) -> Result<WalkedTask<V::Finding>, WorkspaceError> {
        let mut findings = Vec::with_capacity(files.len());
        let dir = self.open(dir)?;
        for (slot, candidate) in files {
            check_cancelled(self.cancel)?;
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            findings.push((slot, self.visitor.visit(worker, dir.as_deref(), candidate)?));
        }
        Ok(WalkedTask::Findings(findings))
    }

    /// Returns the folder's handle; `None` if the folder does not exist any more.
    fn open(&self, dir: &Handle) -> Result<Option<Arc<TreeFolder>>, WorkspaceError> {
        let opened = match dir {
            Handle::Open(dir) => return Ok(Some(Arc::clone(dir))),
            Handle::In { parent, name } => self.tree.root.open_subfolder(parent, name),
            Handle::At(at) => self.tree.root.open_unlinked(at.real()).map(|opened| opened.into_folder(at.real())),
        };
        match opened {
            Ok(dir) => Ok(Some(Arc::new(dir))),
            Err(error) => {
                error.unless_disk()?;
                Ok(None)
            }
        }
    }

    /// Takes the next task. Waits for one while other threads may create some.
    fn next(&self, mut state: MutexGuard<'_, WalkState<V>>) -> Option<Task> {
        loop {
            if let Some(task) = state.tasks.pop() {
                state.busy += 1;
                return Some(task);
            }
            if state.busy == 0 {
                self.wake.notify_all();
                return None;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Adds the result of a task.
    fn finish(
        &self,
        node: WalkNode,
        done: Result<WalkedTask<V::Finding>, WorkspaceError>,
    ) -> MutexGuard<'_, WalkState<V>> {
        let mut state = self.state.lock();
        state.busy -= 1;
        match done {
            Ok(WalkedTask::Nothing) => state.progress.set_slots(node, Vec::new()),
            Ok(WalkedTask::Items { dir, scope, items }) => state.add_items(node, &dir, &scope, items),
            Ok(WalkedTask::Findings(findings)) => {
                for (slot, finding) in findings {
                    state.progress.finish(node, slot, finding);
                }
            }
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        state.collect(self.visitor);
        if state.error.is_some() || state.complete {
            self.stopped.store(true, Ordering::Relaxed);
            state.tasks.clear();
        }
        if state.idle > 0 && state.tasks.len() > 1 {
            self.wake.notify_all();
        }
        state
    }
}

impl<V: Visitor> WalkState<V> {
    /// Adds tasks for the entries of a folder: its files are visited, then its subfolders read, in path order.
    fn add_items(&mut self, node: WalkNode, dir: &Handle, scope: &RuleScope, items: Vec<Item<V::Finding>>) {
        let mut slots = Vec::with_capacity(items.len());
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for (slot, item) in items.into_iter().enumerate() {
            match item {
                Item::File(candidate) => {
                    slots.push(Slot::Pending);
                    files.push((slot, candidate));
                }
                Item::Reported(_, finding) => slots.push(Slot::Done(finding)),
                Item::Contents(name, folder) => {
                    let child = self.progress.add();
                    slots.push(Slot::Contents(child));
                    let dir = match dir {
                        Handle::Open(dir) => Handle::In { parent: Arc::clone(dir), name },
                        Handle::In { .. } | Handle::At(_) => Handle::At(folder.clone()),
                    };
                    let work = Work::Read { folder, scope: FolderScope::Parent(scope.clone()) };
                    folders.push(Task { node: child, dir, work });
                }
            }
        }
        self.progress.set_slots(node, slots);
        self.tasks.extend(folders.into_iter().rev());
        while !files.is_empty() {
            let batch = files.split_off(files.len() - 1 - (files.len() - 1) % BATCH);
            self.tasks.push(Task { node, dir: dir.clone(), work: Work::Visit(batch) });
        }
    }

    /// Collects the findings that are next in path order.
    fn collect(&mut self, visitor: &V) {
        while !self.complete {
            let Some(finding) = self.progress.next() else { return };
            self.complete = visitor.collect(&mut self.outcome, finding);
        }
    }
}
