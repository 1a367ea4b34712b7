//! A walk over a tree on several threads, with an outcome that does not depend on which is faster.
//!
//! Folders and files are taken about in order of path; what came of each file is told strictly in that order, and nothing
//! more is begun once that is enough. A folder's files are looked at while its handle is open.

mod folder;
mod progress;

use std::ffi::CString;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use model::{LogicalPath, Rules};
use rustix::fs::FileType;

use crate::guard::{Blocking, GuardError, Opened};
use crate::ignored::Scope;
use crate::list::is_made;
use crate::walk::WalkPath;
use crate::{Tree, WorkspaceError};
pub(crate) use folder::Candidate;
use folder::{Entering, Item, Reader};
use progress::{Node, Progress, Slot};

/// A survey takes so many threads at most, or as many as the machine has.
static THREADS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZeroUsize::get).min(4));
/// So many files of a folder are one piece of work.
const BATCH: usize = 32;
/// Below this depth folders are opened from the root again and again, since handles are few.
const MAX_HELD_DEPTH: usize = 64;

/// What a walk is for. All threads share it.
pub(crate) trait Visitor: Sync {
    /// What one thread works with.
    type Worker<'a>
    where
        Self: 'a;
    /// What comes of one file.
    type Finding: Send;
    /// What the walk comes to.
    type Outcome: Send;

    /// The rules that say what is of which kind.
    fn rules(&self) -> &Rules;

    /// What another thread works with.
    fn worker(&self) -> Self::Worker<'_>;

    /// Whether entries of that type are looked at. Folders are entered in any case.
    fn takes(&self, file_type: FileType) -> bool {
        file_type == FileType::RegularFile
    }

    /// Whether the caller asked for the file, or for what may lie in the folder, by its path.
    fn is_asked_for(&self, path: &LogicalPath, is_folder: bool) -> bool;

    /// Whether the file is looked at, or the folder entered.
    fn admits(&self, candidate: &Candidate) -> bool;

    /// Looks at a file that is, or was, in the folder `dir`; `None` where that is no folder any more.
    fn look(
        &self,
        worker: &mut Self::Worker<'_>,
        dir: Option<BorrowedFd<'_>>,
        candidate: Candidate,
    ) -> Result<Self::Finding, WorkspaceError>;

    /// Takes what came of the next file in order of path; whether that is enough.
    fn take(&self, outcome: &mut Self::Outcome, seen: Self::Finding) -> bool;
}

/// The folder that was asked for.
pub(crate) struct WalkRoot {
    dir: OwnedFd,
    at: WalkPath,
    scope: Scope,
}

impl WalkRoot {
    /// The folder that is open as `opened` and was asked for as `path`.
    pub(crate) fn of(tree: &Tree, opened: Opened, path: &LogicalPath) -> Result<Self, WorkspaceError> {
        let at = WalkPath { shown: path.clone(), real: opened.real };
        let scope = match &tree.ignored {
            Some(ignored) => ignored.scope_of(&tree.root, at.real(), Blocking::Allowed)?,
            None => Scope::default(),
        };
        Ok(Self { dir: opened.file, at, scope })
    }

    /// Whether git ignores it. Asking for such a folder is asking for what it holds.
    pub(crate) fn is_ignored(&self) -> bool {
        self.scope.excludes_folder_itself()
    }

    /// Whether all that lies in it is generated or vendored. Asking for such a folder is asking for that.
    pub(crate) fn is_made(&self, rules: &Rules) -> bool {
        is_made(rules.kind_of_dir(self.at.real()))
    }
}

/// Walks over all that lies beneath a folder, and adds to `outcome`.
pub(crate) fn survey<S: Visitor>(
    tree: &Tree,
    survey: &S,
    root: WalkRoot,
    outcome: S::Outcome,
    cancel: &AtomicBool,
) -> Result<S::Outcome, WorkspaceError> {
    let work = Work::Read { folder: root.at, scope: Entering::Asked(root.scope) };
    let tasks = vec![Task { node: Progress::<S::Finding>::TOP, dir: Handle::Open(Arc::new(root.dir)), work }];
    let state = State { tasks, busy: 0, idle: 0, progress: Progress::new(), outcome, enough: false, error: None };
    let shared = Shared { state: Mutex::new(state), wake: Condvar::new(), over: AtomicBool::new(false) };
    let hands = Hands { tree, survey, cancel, shared };
    thread::scope(|scope| {
        for _ in 1..*THREADS {
            scope.spawn(|| hands.work());
        }
        hands.work();
    });
    let state = hands.shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.error.map_or(Ok(state.outcome), Err)
}

/// What the threads of a survey share.
struct Hands<'a, S: Visitor> {
    tree: &'a Tree,
    survey: &'a S,
    cancel: &'a AtomicBool,
    shared: Shared<S>,
}

struct Shared<S: Visitor> {
    state: Mutex<State<S>>,
    wake: Condvar,
    /// Whether nothing more is needed.
    over: AtomicBool,
}

struct State<S: Visitor> {
    /// Work to do; the last comes first in order of path.
    tasks: Vec<Task>,
    /// Threads that are at work.
    busy: usize,
    /// Threads that wait for work.
    idle: usize,
    progress: Progress<S::Finding>,
    outcome: S::Outcome,
    /// Whether the outcome is complete.
    enough: bool,
    error: Option<WorkspaceError>,
}

/// A piece of work: what in a folder is read or looked at.
struct Task {
    node: Node,
    dir: Handle,
    work: Work,
}

enum Work {
    /// The folder is read, and more work found in it.
    Read { folder: WalkPath, scope: Entering },
    /// Some of its files are looked at, each with its place.
    Look(Vec<(usize, Candidate)>),
}

/// How a folder is reached.
#[derive(Clone)]
enum Handle {
    Open(Arc<OwnedFd>),
    In { above: Arc<OwnedFd>, name: CString },
    At(WalkPath),
}

/// What came of a piece of work.
enum Found<T> {
    /// The folder is none any more.
    Nothing,
    Items {
        dir: Handle,
        scope: Scope,
        items: Vec<Item>,
    },
    Findings(Vec<(usize, T)>),
}

impl<S: Visitor> Hands<'_, S> {
    fn work(&self) {
        let mut reader = Reader::new(self.tree, self.survey, self.cancel);
        let mut worker = self.survey.worker();
        let mut task = self.shared.next(self.shared.lock());
        while let Some(Task { node, dir, work }) = task {
            let done = match work {
                Work::Read { folder, scope } => self.read(&mut reader, &dir, folder, scope),
                Work::Look(places) => self.look(&mut worker, &dir, places),
            };
            task = self.shared.next(self.shared.done(self.survey, node, done));
        }
    }

    fn read(
        &self,
        reader: &mut Reader<'_, S>,
        dir: &Handle,
        folder: WalkPath,
        scope: Entering,
    ) -> Result<Found<S::Finding>, WorkspaceError> {
        let Some(dir) = self.open(dir)? else { return Ok(Found::Nothing) };
        let (scope, items) = reader.read(&dir, &folder, scope)?;
        let is_deep = folder.shown.components().count() > MAX_HELD_DEPTH;
        let dir = if is_deep { Handle::At(folder) } else { Handle::Open(dir) };
        Ok(Found::Items { dir, scope, items })
    }

    fn look(
        &self,
        worker: &mut S::Worker<'_>,
        dir: &Handle,
        places: Vec<(usize, Candidate)>,
    ) -> Result<Found<S::Finding>, WorkspaceError> {
        let mut seen = Vec::with_capacity(places.len());
        let dir = self.open(dir)?;
        for (place, candidate) in places {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(WorkspaceError::Cancelled);
            }
            if self.shared.over.load(Ordering::Relaxed) {
                break;
            }
            let dir = dir.as_ref().map(|dir| (**dir).as_fd());
            seen.push((place, self.survey.look(worker, dir, candidate)?));
        }
        Ok(Found::Findings(seen))
    }

    /// The folder's handle; `None` where it is no folder any more.
    fn open(&self, dir: &Handle) -> Result<Option<Arc<OwnedFd>>, WorkspaceError> {
        let opened = match dir {
            Handle::Open(dir) => return Ok(Some(Arc::clone(dir))),
            Handle::In { above, name } => self.tree.root.open_entry((**above).as_fd(), name).map_err(GuardError::from),
            Handle::At(at) => self.tree.root.open_unlinked(at.real()).map(|opened| opened.file),
        };
        match opened {
            Ok(dir) => Ok(Some(Arc::new(dir))),
            Err(error) => {
                error.unless_disk()?;
                Ok(None)
            }
        }
    }
}

impl<S: Visitor> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work; waits for one while others may find some.
    fn next(&self, mut state: MutexGuard<'_, State<S>>) -> Option<Task> {
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
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Takes in what came of a piece of work.
    fn done(
        &self,
        survey: &S,
        node: Node,
        found: Result<Found<S::Finding>, WorkspaceError>,
    ) -> MutexGuard<'_, State<S>> {
        let mut state = self.lock();
        state.busy -= 1;
        match found {
            Ok(Found::Nothing) => state.progress.fill(node, Vec::new()),
            Ok(Found::Items { dir, scope, items }) => state.add(node, &dir, &scope, items),
            Ok(Found::Findings(seen)) => {
                for (place, seen) in seen {
                    state.progress.finish(node, place, seen);
                }
            }
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        state.advance(survey);
        if state.error.is_some() || state.enough {
            self.over.store(true, Ordering::Relaxed);
            state.tasks.clear();
        }
        if state.idle > 0 && state.tasks.len() > 1 {
            self.wake.notify_all();
        }
        state
    }
}

impl<S: Visitor> State<S> {
    /// A folder was read: its files are looked at, then the folders in it read, in order of path.
    fn add(&mut self, node: Node, dir: &Handle, scope: &Scope, items: Vec<Item>) {
        let mut slots = Vec::with_capacity(items.len());
        let (mut places, mut folders) = (Vec::new(), Vec::new());
        for (place, item) in items.into_iter().enumerate() {
            match item {
                Item::File(candidate) => {
                    slots.push(Slot::Pending);
                    places.push((place, candidate));
                }
                Item::Inside(name, folder) => {
                    let inner = self.progress.add();
                    slots.push(Slot::Inside(inner));
                    let dir = match dir {
                        Handle::Open(dir) => Handle::In { above: Arc::clone(dir), name },
                        Handle::In { .. } | Handle::At(_) => Handle::At(folder.clone()),
                    };
                    let work = Work::Read { folder, scope: Entering::From(scope.clone()) };
                    folders.push(Task { node: inner, dir, work });
                }
            }
        }
        self.progress.fill(node, slots);
        self.tasks.extend(folders.into_iter().rev());
        while !places.is_empty() {
            let batch = places.split_off(places.len() - 1 - (places.len() - 1) % BATCH);
            self.tasks.push(Task { node, dir: dir.clone(), work: Work::Look(batch) });
        }
    }

    /// Hands on what is done without a gap.
    fn advance(&mut self, survey: &S) {
        while !self.enough {
            let Some(seen) = self.progress.pass() else { return };
            self.enough = survey.take(&mut self.outcome, seen);
        }
    }
}
