//! The files that a search looks into: found by several threads, told in order of path.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use model::{Access, FileKind, LogicalPath, PathFacts, Refusal, Rules};
use rustix::fs::FileType;

use crate::guard::{GuardFault, Wait};
use crate::ignored::{RULES_NAME, Scope};
use crate::walk::{Whereabouts, each_entry};
use crate::{Fault, Tree};

/// A file that may be searched, as far as its name tells.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) at: Whereabouts,
    pub(super) kind: FileKind,
}

/// Which files a caller wants.
pub(super) struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

/// Finds every candidate in the folder `dir`, which is at `at`.
pub(super) fn collect(
    tree: &Tree,
    rules: &Rules,
    globs: &Globs,
    cancel: &AtomicBool,
    dir: OwnedFd,
    at: Whereabouts,
    threads: usize,
) -> Result<Vec<Candidate>, Fault> {
    let scope = match &tree.ignored {
        Some(ignored) => ignored.scope_of(&tree.root, at.real(), Wait::Allowed)?,
        None => Scope::default(),
    };
    let root = Task { node: 0, folder: Folder::Open(dir), at, scope };
    let state = State { tasks: vec![root], busy: 0, nodes: vec![Vec::new()], fault: None };
    let walk = Walk { tree, rules, globs, cancel, state: Mutex::new(state), wake: Condvar::new() };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    let state = walk.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.fault {
        Some(fault) => Err(fault),
        None => Ok(flatten(state.nodes)),
    }
}

struct Walk<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    globs: &'a Globs,
    cancel: &'a AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// Folders to read; the last first, so that few handles are open at a time.
    tasks: Vec<Task>,
    /// Threads that are reading one.
    busy: usize,
    /// What each folder holds, in order of path.
    nodes: Vec<Vec<Item>>,
    fault: Option<Fault>,
}

/// A folder to read.
struct Task {
    node: usize,
    folder: Folder,
    at: Whereabouts,
    /// Rules in force in it where it is open, else in the folder above.
    scope: Scope,
}

enum Folder {
    Open(OwnedFd),
    Entry { above: Arc<OwnedFd>, name: CString },
}

enum Item {
    File(Candidate),
    /// All that lies in a folder: its name, and its node.
    Inside(LogicalPath, usize),
}

/// What one folder holds, before its node is known.
#[derive(Default)]
struct Contents {
    files: Vec<Candidate>,
    folders: Vec<(CString, Whereabouts)>,
}

impl Walk<'_> {
    fn work(&self) {
        let mut buffers = Buffers::default();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(task) = state.tasks.pop() else {
                if state.busy == 0 {
                    self.wake.notify_all();
                    return;
                }
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            let node = task.node;
            let done = self.read(task, &mut buffers);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            match done {
                Ok(Some((dir, scope, contents))) => state.take_in(node, dir, &scope, contents),
                Ok(None) => {}
                Err(fault) => {
                    state.fault.get_or_insert(fault);
                    state.tasks.clear();
                }
            }
            self.wake.notify_all();
        }
    }

    /// Reads one folder; `None` where it is no folder any more.
    fn read(&self, task: Task, buffers: &mut Buffers) -> Result<Option<(OwnedFd, Scope, Contents)>, Fault> {
        let Task { folder, at, scope, .. } = task;
        let (dir, above) = match folder {
            Folder::Open(dir) => (dir, None),
            Folder::Entry { above, name } => match self.tree.root.open_entry((*above).as_fd(), &name) {
                Ok(dir) => (dir, Some(scope.clone())),
                Err(errno) => match GuardFault::from(errno) {
                    GuardFault::Io(error) => return Err(error.into()),
                    _ => return Ok(None),
                },
            },
        };
        if !buffers.gather(&dir, self.cancel)? {
            return Ok(None);
        }
        let scope = match (&self.tree.ignored, above) {
            (Some(ignored), Some(above)) => {
                let path = at.real().as_str().as_bytes();
                if buffers.has_rules {
                    ignored.enter(&self.tree.root, &above, path, dir.as_fd())?
                } else {
                    ignored.enter_without_rules(&above, path)?
                }
            }
            (Some(_), None) | (None, _) => scope,
        };
        let mut contents = Contents::default();
        for (name, file_type) in &buffers.entries {
            self.sort_out(&at, &scope, name, *file_type, &mut contents)?;
        }
        Ok(Some((dir, scope, contents)))
    }

    fn sort_out(
        &self,
        folder: &Whereabouts,
        scope: &Scope,
        name: &CStr,
        file_type: FileType,
        contents: &mut Contents,
    ) -> Result<(), Fault> {
        let is_folder = file_type == FileType::Directory;
        // A name that is not UTF-8 cannot be told, nor one in git's own.
        let Ok(Ok(at)) = name.to_str().map(|name| folder.child(name)) else { return Ok(()) };
        if self.globs.leave_out(&at.shown, is_folder) {
            return Ok(());
        }
        let real = at.real();
        let ignored = match &self.tree.ignored {
            Some(ignored) => ignored.hides(scope, real.as_str().as_bytes(), is_folder)?,
            None => false,
        };
        let kind = if is_folder { FileKind::Directory } else { FileKind::of_path(real) };
        let (path, real_path) = (&at.shown, at.real.as_ref());
        // Further names are looked for once the file is open.
        let facts = PathFacts { path, real_path, kind, ignored, hard_linked: false };
        if model::judge_path(self.rules, Access::Search, &facts).is_err() {
            return Ok(());
        }
        match file_type {
            FileType::Directory => contents.folders.push((name.to_owned(), at)),
            _ => contents.files.push(Candidate { at, kind }),
        }
        Ok(())
    }
}

impl State {
    fn take_in(&mut self, node: usize, dir: OwnedFd, scope: &Scope, contents: Contents) {
        let mut items: Vec<Item> = contents.files.into_iter().map(Item::File).collect();
        let above = Arc::new(dir);
        let first = self.tasks.len();
        for (name, at) in contents.folders {
            let inner = self.nodes.len();
            self.nodes.push(Vec::new());
            items.push(Item::Inside(at.shown.clone(), inner));
            let folder = Folder::Entry { above: Arc::clone(&above), name };
            self.tasks.push(Task { node: inner, folder, at, scope: scope.clone() });
        }
        debug_assert!(self.tasks.len() >= first);
        items.sort_unstable_by(Item::order);
        self.nodes[node] = items;
    }
}

impl Item {
    /// By path: what lies in a folder comes as if its name ended in `/`.
    fn order(&self, other: &Self) -> Ordering {
        fn key(item: &Item) -> impl Iterator<Item = u8> + '_ {
            let (path, slash): (_, &[u8]) = match item {
                Item::File(file) => (&file.at.shown, b""),
                Item::Inside(path, _) => (path, b"/"),
            };
            path.as_str().bytes().chain(slash.iter().copied())
        }
        key(self).cmp(key(other))
    }
}

/// The files of all nodes, in order.
fn flatten(mut nodes: Vec<Vec<Item>>) -> Vec<Candidate> {
    let mut files = Vec::new();
    let mut open = vec![std::mem::take(&mut nodes[0]).into_iter()];
    while let Some(items) = open.last_mut() {
        match items.next() {
            Some(Item::File(file)) => files.push(file),
            Some(Item::Inside(_, node)) => open.push(std::mem::take(&mut nodes[node]).into_iter()),
            None => drop(open.pop()),
        }
    }
    files
}

/// One folder's entries, gathered before they are looked at, since a `.gitignore` among them decides over the others.
#[derive(Default)]
struct Buffers {
    raw: Vec<u8>,
    entries: Vec<(CString, FileType)>,
    has_rules: bool,
}

impl Buffers {
    /// Gathers files and folders, and leaves links and special files out. `false` where `dir` is no folder.
    fn gather(&mut self, dir: &OwnedFd, cancel: &AtomicBool) -> Result<bool, Fault> {
        self.entries.clear();
        self.has_rules = false;
        let (entries, has_rules) = (&mut self.entries, &mut self.has_rules);
        let gathered = each_entry(dir.as_fd(), &mut self.raw, cancel, |name, file_type| {
            *has_rules |= name.to_bytes() == RULES_NAME.as_bytes();
            if matches!(file_type, FileType::RegularFile | FileType::Directory) {
                entries.push((name.to_owned(), file_type));
            }
            Ok(())
        });
        match gathered {
            Ok(()) => Ok(true),
            Err(Fault::Io(error)) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(false),
            Err(fault) => Err(fault),
        }
    }
}

impl Globs {
    /// Compiles globs: `*` stays within a name, and a glob without `/` is for names at any depth.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the glob that is bad.
    pub(super) fn compile(include: &[String], exclude: &[String]) -> Result<Self, Refusal> {
        let include = if include.is_empty() { None } else { Some(compile(include)?) };
        Ok(Self { include, exclude: compile(exclude)? })
    }

    fn leave_out(&self, path: &LogicalPath, is_folder: bool) -> bool {
        if !self.exclude.is_empty() && self.exclude.is_match(path.as_str()) {
            return true;
        }
        match &self.include {
            Some(include) => !is_folder && !include.is_match(path.as_str()),
            None => false,
        }
    }
}

fn compile(globs: &[String]) -> Result<GlobSet, Refusal> {
    let bad = |glob: &str, error: &globset::Error| {
        Refusal::invalid(
            format!("`{glob}` is no glob: {error}"),
            "Use globs such as `*.rs`, `src/**` or `**/test_*.py`.",
        )
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let trimmed = glob.strip_prefix("./").unwrap_or(glob);
        let trimmed = trimmed.strip_prefix('/').unwrap_or(trimmed);
        let (body, all) = match trimmed.strip_suffix('/') {
            Some(folder) => (folder, true),
            None => (trimmed, false),
        };
        let anywhere = if body.contains('/') || trimmed.len() < glob.len() { "" } else { "**/" };
        let tails: &[&str] = if all { &["", "/**"] } else { &[""] };
        for tail in tails {
            let whole = format!("{anywhere}{body}{tail}");
            let compiled = GlobBuilder::new(&whole).literal_separator(true).build();
            set.add(compiled.map_err(|error| bad(glob, &error))?);
        }
    }
    set.build().map_err(|error| bad(&globs.join(", "), &error))
}
