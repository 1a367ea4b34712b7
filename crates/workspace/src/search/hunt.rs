//! A search under way on several threads, with an answer that does not depend on which is faster.
//!
//! Folders and files are taken about in order of path, and nothing more is begun once what is done without a gap is
//! enough. A folder's files are searched while its handle is open.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use model::Rules;

use super::folder::{Candidate, Entering, Item, Reader};
use super::globs::Globs;
use super::pattern::Pattern;
use super::progress::{Node, Progress, Slot};
use super::scan::{Scanned, Scanner};
use super::{SearchQuery, SearchReport};
use crate::guard::{GuardFault, Opened};
use crate::ignored::Scope;
use crate::walk::Whereabouts;
use crate::{Fault, Tree};

/// So many files of a folder are one piece of work.
const BATCH: usize = 32;
/// Below this depth folders are opened from the root again and again, since handles are few.
const MAX_HELD_DEPTH: usize = 64;
/// A search takes files up to so many times `maxFileBytes`.
const RANGED_FACTOR: u64 = 16;

/// What a search works with.
pub(super) struct Hunt<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rules: &'a Rules,
    pub(super) query: &'a SearchQuery,
    pub(super) pattern: &'a Pattern,
    pub(super) globs: &'a Globs,
    pub(super) cancel: &'a AtomicBool,
}

/// What its threads share.
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Whether nothing more is needed.
    over: AtomicBool,
}

struct State {
    /// Work to do; the last comes first in order of path.
    tasks: Vec<Task>,
    /// Threads that are at work.
    busy: usize,
    /// Threads that wait for work.
    idle: usize,
    progress: Progress,
    fault: Option<Fault>,
}

/// A piece of work: what in a folder is read or searched.
struct Task {
    node: Node,
    dir: Handle,
    work: Work,
}

enum Work {
    /// The folder is read, and more work found in it.
    Read { folder: Whereabouts, scope: Entering },
    /// Some of its files are searched, each with its place.
    Search(Vec<Place>),
}

struct Place {
    index: usize,
    name: CString,
    candidate: Candidate,
}

/// How a folder is reached.
#[derive(Clone)]
enum Handle {
    Open(Arc<OwnedFd>),
    In { above: Arc<OwnedFd>, name: CString },
    At(Whereabouts),
}

/// What came of a piece of work.
enum Found {
    /// The folder is none any more.
    Nothing,
    Items {
        dir: Handle,
        scope: Scope,
        items: Vec<Item>,
    },
    Scanned(Vec<(usize, Scanned)>),
}

impl Hunt<'_> {
    /// Searches the file that is open.
    pub(super) fn file(&self, opened: &Opened, candidate: &Candidate) -> Result<SearchReport, Fault> {
        let mut progress = Progress::new(self.query);
        let scanned = self.scanner().scan(opened, candidate)?;
        progress.fill(Progress::TOP, vec![Slot::Done(scanned)]);
        progress.advance();
        Ok(progress.into_report())
    }

    /// Searches the folder that is open as `dir`, in which the rules of `scope` are in force, with `threads` threads,
    /// the caller's among them.
    pub(super) fn folder(
        &self,
        dir: OwnedFd,
        at: Whereabouts,
        scope: Scope,
        threads: usize,
    ) -> Result<SearchReport, Fault> {
        let work = Work::Read { folder: at, scope: Entering::Asked(scope) };
        let tasks = vec![Task { node: Progress::TOP, dir: Handle::Open(Arc::new(dir)), work }];
        let state = State { tasks, busy: 0, idle: 0, progress: Progress::new(self.query), fault: None };
        let shared = Shared { state: Mutex::new(state), wake: Condvar::new(), over: AtomicBool::new(false) };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| self.work(&shared));
            }
            self.work(&shared);
        });
        let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.fault.map_or_else(|| Ok(state.progress.into_report()), Err)
    }

    fn scanner(&self) -> Scanner<'_> {
        let max_bytes = self.rules.policy().max_file_bytes.saturating_mul(RANGED_FACTOR);
        // One more than is shown tells whether some are missing.
        Scanner::new(self.pattern, self.query.context_lines, self.query.max_matches + 1, max_bytes)
    }

    fn work(&self, shared: &Shared) {
        let mut reader = Reader::new(self.tree, self.rules, self.globs, self.cancel);
        let mut scanner = self.scanner();
        let mut task = shared.next(shared.lock());
        while let Some(Task { node, dir, work }) = task {
            let done = match work {
                Work::Read { folder, scope } => self.read(&mut reader, &dir, folder, scope),
                Work::Search(places) => self.search(&mut scanner, &shared.over, &dir, places),
            };
            task = shared.next(shared.done(node, done));
        }
    }

    fn read(&self, reader: &mut Reader<'_>, dir: &Handle, at: Whereabouts, scope: Entering) -> Result<Found, Fault> {
        let Some(dir) = self.open(dir)? else { return Ok(Found::Nothing) };
        let (scope, items) = reader.read(&dir, &at, scope)?;
        let dir = if at.shown.names().count() > MAX_HELD_DEPTH { Handle::At(at) } else { Handle::Open(dir) };
        Ok(Found::Items { dir, scope, items })
    }

    fn search(
        &self,
        scanner: &mut Scanner<'_>,
        over: &AtomicBool,
        dir: &Handle,
        places: Vec<Place>,
    ) -> Result<Found, Fault> {
        let mut found = Vec::with_capacity(places.len());
        let dir = self.open(dir)?;
        for Place { index, name, candidate } in places {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Fault::Cancelled);
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
            let opened = match &dir {
                Some(dir) => self.tree.root.open_entry((**dir).as_fd(), &name).map_err(GuardFault::from),
                None => Err(GuardFault::Missing),
            };
            let done = match opened.and_then(Opened::of) {
                Ok(opened) => scanner.scan(&opened, &candidate)?,
                Err(GuardFault::Io(error)) => return Err(error.into()),
                // It was a file a moment ago.
                Err(_) => Scanned::Passed,
            };
            found.push((index, done));
        }
        Ok(Found::Scanned(found))
    }

    /// The folder's handle; `None` where it is no folder any more.
    fn open(&self, dir: &Handle) -> Result<Option<Arc<OwnedFd>>, Fault> {
        let opened = match dir {
            Handle::Open(dir) => return Ok(Some(Arc::clone(dir))),
            Handle::In { above, name } => self.tree.root.open_entry((**above).as_fd(), name).map_err(GuardFault::from),
            Handle::At(at) => self.tree.root.open_unlinked(at.real()).map(|opened| opened.file),
        };
        match opened {
            Ok(dir) => Ok(Some(Arc::new(dir))),
            Err(GuardFault::Io(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work; waits for one while others may find some.
    fn next(&self, mut state: MutexGuard<'_, State>) -> Option<Task> {
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
    fn done(&self, node: Node, found: Result<Found, Fault>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.busy -= 1;
        match found {
            Ok(Found::Nothing) => state.progress.fill(node, Vec::new()),
            Ok(Found::Items { dir, scope, items }) => state.add(node, &dir, &scope, items),
            Ok(Found::Scanned(scanned)) => {
                for (place, scanned) in scanned {
                    state.progress.finish(node, place, scanned);
                }
            }
            Err(fault) => {
                state.fault.get_or_insert(fault);
            }
        }
        state.progress.advance();
        if state.fault.is_some() || state.progress.is_enough() {
            self.over.store(true, Ordering::Relaxed);
            state.tasks.clear();
        }
        if state.idle > 0 && state.tasks.len() > 1 {
            self.wake.notify_all();
        }
        state
    }
}

impl State {
    /// A folder was read: its files are searched, then the folders in it read, in order of path.
    fn add(&mut self, node: Node, dir: &Handle, scope: &Scope, items: Vec<Item>) {
        let mut slots = Vec::with_capacity(items.len());
        let (mut places, mut folders) = (Vec::new(), Vec::new());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Item::File(name, candidate) => {
                    slots.push(Slot::Pending);
                    places.push(Place { index, name, candidate });
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
            self.tasks.push(Task { node, dir: dir.clone(), work: Work::Search(batch) });
        }
    }
}
