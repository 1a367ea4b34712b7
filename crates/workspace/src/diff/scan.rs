//! Which files differ from the base, by their stamps alone: a walk by folder handles, in two threads.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use model::LogicalPath;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::check;
use crate::base::Loaded;
use crate::base::manifest::{FileIndex, FolderIndex, MODE_EXECUTABLE, MODE_LINK, Stamp};
use crate::guard::{self, Blocking, GuardError};
use crate::ignored::{GITIGNORE_NAME, Ignored, Scope};
use crate::walk::each_entry;
use crate::{Tree, WorkspaceError};

/// How many threads look. More only wait for one another.
const THREADS: usize = 2;

/// Where to look.
pub(super) enum Where {
    Folder(LogicalPath),
    File(LogicalPath),
}

/// A file that may differ from the base.
pub(crate) struct Candidate {
    pub(crate) path: LogicalPath,
    /// The base's file at the path.
    pub(super) base: Option<FileIndex>,
    /// What is there now.
    pub(crate) now: Option<Now>,
}

/// A file or link in the tree.
pub(crate) struct Now {
    pub(super) stamp: Stamp,
    pub(crate) is_link: bool,
    /// Its permission bits.
    pub(super) mode: u32,
    pub(super) hard_linked: bool,
}

/// A walk over a tree.
pub(super) struct Scan<'a> {
    tree: &'a Tree,
    ignored: &'a Ignored,
    loaded: &'a Loaded,
    cancel: &'a AtomicBool,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Threads that have nothing to do.
    idle: AtomicUsize,
    /// Files of the base that are there.
    seen: Vec<AtomicBool>,
}

/// Folders that are yet to be looked at.
#[derive(Default)]
struct Queue {
    folders: Vec<(LogicalPath, Scope)>,
    /// Threads that look at folders, and may add more.
    busy: usize,
    /// Whether a thread has failed, so that the others stop.
    failed: bool,
}

impl<'a> Scan<'a> {
    /// Every file at or beneath `place` whose stamp is not the base's; ignored files left out, in no order.
    pub(super) fn run(
        tree: &'a Tree,
        loaded: &'a Loaded,
        place: &Where,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<Candidate>, WorkspaceError> {
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let scan = Self::new(tree, ignored, loaded, cancel);
        let mut found: Vec<_> = match place {
            Where::File(path) => scan.file(path)?.into_iter().collect(),
            Where::Folder(path) => scan.folder(path)?,
        };
        found.retain(|candidate| scan.counts(candidate));
        Ok(found)
    }

    /// Those of `paths` whose stamp is not the base's.
    pub(super) fn run_files<'p>(
        tree: &'a Tree,
        loaded: &'a Loaded,
        paths: impl IntoIterator<Item = &'p LogicalPath>,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<Candidate>, WorkspaceError> {
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let scan = Self::new(tree, ignored, loaded, cancel);
        let mut found = Vec::new();
        for path in paths {
            check(cancel)?;
            found.extend(scan.file(path)?.filter(|candidate| scan.counts(candidate)));
        }
        Ok(found)
    }

    fn new(tree: &'a Tree, ignored: &'a Ignored, loaded: &'a Loaded, cancel: &'a AtomicBool) -> Self {
        let seen = (0..loaded.manifest.len()).map(|_| AtomicBool::new(false)).collect();
        let (queue, wake, idle) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Self { tree, ignored, loaded, cancel, queue, wake, idle, seen }
    }

    /// Whether the candidate is none that git ignores: what the run was about to change counts once it has.
    fn counts(&self, candidate: &Candidate) -> bool {
        let is_late = candidate.base.is_some_and(|file| self.loaded.manifest.is_late(file));
        !is_late || self.ignored.has_written(&candidate.path)
    }

    fn file(&self, path: &LogicalPath) -> Result<Option<Candidate>, WorkspaceError> {
        let base = self.loaded.manifest.get(path.as_str().as_bytes());
        let stat = match self.tree.root.place(path) {
            Ok(place) => place.stat()?,
            Err(GuardError::Missing | GuardError::NotADirectory) => None,
            Err(error) => return Err(error.at(path)),
        };
        if base.is_none() && self.ignored.holds_file(&self.tree.root, path, Blocking::Allowed)? {
            return Ok(None);
        }
        let now = stat.and_then(|stat| Now::of(&stat));
        Ok(self.candidate(path.clone(), base, now))
    }

    fn folder(&self, path: &LogicalPath) -> Result<Vec<Candidate>, WorkspaceError> {
        let scope = match path.parent() {
            None => Scope::default(),
            Some(parent) => self.ignored.scope_of(&self.tree.root, &parent, Blocking::Allowed)?,
        };
        self.lock().folders.push((path.clone(), scope));
        let mut found = std::thread::scope(|threads| {
            let others: Vec<_> = (1..THREADS).map(|_| threads.spawn(|| self.work())).collect();
            let mut found = self.work();
            for other in others {
                let more = other.join().unwrap_or_else(|_| Err(io::Error::other("a walk broke off").into()));
                found = found.and_then(|mut found| {
                    found.append(&mut more?);
                    Ok(found)
                });
            }
            found
        })?;
        self.add_missing(path, &mut found);
        Ok(found)
    }

    /// Looks at folders until none is left. A thread keeps what it finds to itself, the last first, whose handles are the
    /// warmest; it gives the rest away where the other has nothing to do.
    fn work(&self) -> Result<Vec<Candidate>, WorkspaceError> {
        let (mut found, mut buffer, mut mine) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let Some((path, scope)) = mine.pop().or_else(|| self.next()) else { return Ok(found) };
            match self.enter(&path, &scope, &mut buffer, &mut found) {
                Ok(mut folders) => mine.append(&mut folders),
                Err(error) => {
                    self.lock().failed = true;
                    self.wake.notify_all();
                    return Err(error);
                }
            }
            if mine.is_empty() {
                self.lock().busy -= 1;
                self.wake.notify_all();
            } else if mine.len() > 1 && self.idle.load(Ordering::Relaxed) > 0 {
                // The first are nearest to the root, and have the most beneath them.
                self.lock().folders.extend(mine.drain(..mine.len() / 2));
                self.wake.notify_all();
            }
        }
    }

    fn next(&self) -> Option<(LogicalPath, Scope)> {
        let mut queue = self.lock();
        self.idle.fetch_add(1, Ordering::Relaxed);
        let next = loop {
            if queue.failed {
                break None;
            }
            if let Some(next) = queue.folders.pop() {
                queue.busy += 1;
                break Some(next);
            }
            if queue.busy == 0 {
                break None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        self.idle.fetch_sub(1, Ordering::Relaxed);
        next
    }

    /// Looks at one folder, and returns those in it.
    fn enter(
        &self,
        path: &LogicalPath,
        above: &Scope,
        buffer: &mut Vec<u8>,
        found: &mut Vec<Candidate>,
    ) -> Result<Vec<(LogicalPath, Scope)>, WorkspaceError> {
        check(self.cancel)?;
        let opened = match self.tree.root.open_unlinked(path) {
            Ok(opened) => opened,
            Err(error) => {
                // It went away, or is unreadable: what the base has in it is missing.
                error.unless_disk()?;
                return Ok(Vec::new());
            }
        };
        let dir = opened.file.as_fd();
        let raw: &[u8] = if path.is_root() { b"" } else { path.as_str().as_bytes() };
        let known = self.loaded.manifest.folder(raw);
        let stamp = Stamp::of(&opened.stat);
        match known.filter(|known| self.loaded.manifest.has_same_entries(*known, &stamp)) {
            Some(known) => self.enter_known(dir, path, above, known, found),
            None => self.enter_changed(dir, path, above, known, buffer, found),
        }
    }

    /// A folder that has the entries that it had: what the base does not have of them is ignored.
    fn enter_known(
        &self,
        dir: BorrowedFd<'_>,
        path: &LogicalPath,
        above: &Scope,
        known: FolderIndex,
        found: &mut Vec<Candidate>,
    ) -> Result<Vec<(LogicalPath, Scope)>, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        for file in manifest.files_in(known).map(FileIndex) {
            self.look(dir, path, manifest.name(file), Some(file), found)?;
        }
        let scope = self.scope(dir, path, above, manifest.has_rules(known))?;
        let mut folders = Vec::new();
        for name in manifest.folders_in(known) {
            folders.extend(self.child(path, name, &scope)?);
        }
        Ok(folders)
    }

    fn enter_changed(
        &self,
        dir: BorrowedFd<'_>,
        path: &LogicalPath,
        above: &Scope,
        known: Option<FolderIndex>,
        buffer: &mut Vec<u8>,
        found: &mut Vec<Candidate>,
    ) -> Result<Vec<(LogicalPath, Scope)>, WorkspaceError> {
        let mut names = Names::default();
        each_entry(dir, buffer, self.cancel, |name, file_type| {
            names.add(name, file_type);
            Ok(())
        })?;
        let scope = self.scope(dir, path, above, names.has_rules)?;
        let manifest = &self.loaded.manifest;
        let files = known.map_or(0..0, |known| manifest.files_in(known));
        for name in names.files() {
            let base = manifest.find(files.clone(), name);
            if base.is_none() && self.is_ignored(path, name, &scope)? {
                continue;
            }
            self.look(dir, path, name, base, found)?;
        }
        let mut folders = Vec::new();
        for name in names.folders() {
            folders.extend(self.child(path, name, &scope)?);
        }
        Ok(folders)
    }

    fn scope(
        &self,
        dir: BorrowedFd<'_>,
        path: &LogicalPath,
        above: &Scope,
        has_rules: bool,
    ) -> Result<Scope, WorkspaceError> {
        let path = path.as_str().as_bytes();
        Ok(if has_rules {
            self.ignored.enter(&self.tree.root, above, path, dir)?
        } else {
            self.ignored.enter_without_rules(above, path)?
        })
    }

    /// Whether the file `name` in `folder`, which the base does not have, is ignored, or in reach of no tool.
    fn is_ignored(&self, folder: &LogicalPath, name: &[u8], scope: &Scope) -> Result<bool, WorkspaceError> {
        let Some(path) = place(folder, name) else { return Ok(true) };
        Ok(self.ignored.hides(scope, path.as_str().as_bytes(), false)?)
    }

    /// The folder `name` in `folder`, unless it is ignored, or in reach of no tool.
    fn child(
        &self,
        folder: &LogicalPath,
        name: &[u8],
        scope: &Scope,
    ) -> Result<Option<(LogicalPath, Scope)>, WorkspaceError> {
        let Some(path) = place(folder, name) else { return Ok(None) };
        let hidden = self.ignored.hides(scope, path.as_str().as_bytes(), true)?;
        Ok((!hidden).then(|| (path, scope.clone())))
    }

    fn look(
        &self,
        dir: BorrowedFd<'_>,
        folder: &LogicalPath,
        name: &[u8],
        base: Option<FileIndex>,
        found: &mut Vec<Candidate>,
    ) -> Result<(), WorkspaceError> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let Some(now) = Now::of(&stat) else { return Ok(()) };
        if let Some(file) = base {
            self.seen[file.0 as usize].store(true, Ordering::Relaxed);
            if self.is_same(file, &now) {
                return Ok(());
            }
        }
        found.extend(place(folder, name).and_then(|path| self.candidate(path, base, Some(now))));
        Ok(())
    }

    fn candidate(&self, path: LogicalPath, base: Option<FileIndex>, now: Option<Now>) -> Option<Candidate> {
        let same = match (base, &now) {
            (Some(file), Some(now)) => self.is_same(file, now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        (!same).then_some(Candidate { path, base, now })
    }

    fn is_same(&self, file: FileIndex, now: &Now) -> bool {
        now.git_mode() == self.loaded.manifest.mode(file) && self.loaded.is_same(file, &now.stamp)
    }

    /// Adds the base's files at or beneath `path` that were not seen.
    fn add_missing(&self, path: &LogicalPath, found: &mut Vec<Candidate>) {
        let beneath = |folder: &[u8]| {
            path.is_root()
                || folder
                    .strip_prefix(path.as_str().as_bytes())
                    .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let manifest = &self.loaded.manifest;
        for (folder, files) in manifest.folders().filter(|(folder, _)| beneath(folder)) {
            for file in files.map(FileIndex).filter(|file| !self.seen[file.0 as usize].load(Ordering::Relaxed)) {
                let name = manifest.name(file);
                let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
                let path = String::from_utf8(path).ok().and_then(|path| LogicalPath::parse(&path).ok());
                found.extend(path.map(|path| Candidate { path, base: Some(file), now: None }));
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    /// What is there, if it is a file or a link.
    fn of(stat: &rustix::fs::Stat) -> Option<Self> {
        let is_link = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::Symlink => true,
            _ => return None,
        };
        let hard_linked = guard::is_hard_linked(stat);
        Some(Self { stamp: Stamp::of(stat), is_link, mode: stat.st_mode & 0o7777, hard_linked })
    }

    /// Its mode in git's words.
    pub(crate) fn git_mode(&self) -> u32 {
        if self.is_link {
            MODE_LINK
        } else if self.mode & 0o111 == 0 {
            crate::base::manifest::MODE_FILE
        } else {
            MODE_EXECUTABLE
        }
    }
}

/// The path `name` in `folder`; `None` for names that are not UTF-8 or git's own, which are in reach of no tool.
fn place(folder: &LogicalPath, name: &[u8]) -> Option<LogicalPath> {
    folder.child(std::str::from_utf8(name).ok()?).ok()
}

/// The entries of one folder, in one piece of memory.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    files: Vec<usize>,
    folders: Vec<usize>,
    has_rules: bool,
}

impl Names {
    fn add(&mut self, name: &CStr, file_type: FileType) {
        let start = self.bytes.len();
        match file_type {
            FileType::Directory => self.folders.push(start),
            FileType::RegularFile | FileType::Symlink => self.files.push(start),
            _ => return,
        }
        self.has_rules |= name.to_bytes() == GITIGNORE_NAME.as_bytes();
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
    }

    fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.at(&self.files)
    }

    fn folders(&self) -> impl Iterator<Item = &[u8]> {
        self.at(&self.folders)
    }

    fn at<'a>(&'a self, starts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        starts.iter().filter_map(|start| Some(CStr::from_bytes_until_nul(&self.bytes[*start..]).ok()?.to_bytes()))
    }
}
