//! Finding files that may differ from the base, by their stamps only: a walk by folder handles, on two threads.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use model::{LINK_MODE, LogicalPath, git_mode, is_link_mode};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::base::LoadedBase;
use crate::base::manifest::{FileIndex, FolderIndex};
use crate::error::check_cancelled;
use crate::guard::{self, Blocking, GuardError};
use crate::ignored::{GITIGNORE_NAME, Ignored, RuleScope};
use crate::stamp::FileStamp;
use crate::walk::each_entry;
use crate::{Tree, WorkspaceError};

/// The number of threads. More only wait for one another.
const THREADS: usize = 2;

/// What to compare.
pub(super) enum Area {
    Folder(LogicalPath),
    File(LogicalPath),
}

/// A file that may differ from the base.
pub(crate) struct DiffCandidate {
    pub(crate) path: LogicalPath,
    /// The base's file at the path.
    pub(super) base: Option<FileIndex>,
    /// What is in the tree now.
    pub(crate) now: Option<PresentFile>,
}

/// A file or link in the tree.
pub(crate) struct PresentFile {
    pub(super) stamp: FileStamp,
    /// Its permission bits, or [`LINK_MODE`].
    pub(super) mode: u32,
    pub(super) hard_linked: bool,
}

/// A walk over a tree.
pub(super) struct Scan<'a> {
    tree: &'a Tree,
    ignored: &'a Ignored,
    loaded: &'a LoadedBase,
    cancel: &'a AtomicBool,
    queue: Mutex<FolderQueue>,
    wake: Condvar,
    /// The number of threads that wait for work.
    idle: AtomicUsize,
    /// Which files of the base exist.
    seen: Vec<AtomicBool>,
}

/// Folders that remain to be read.
#[derive(Default)]
struct FolderQueue {
    folders: Vec<(LogicalPath, RuleScope)>,
    /// The number of threads that read folders, and may add more.
    busy: usize,
    /// Whether a thread has failed, so that the others stop.
    failed: bool,
}

impl<'a> Scan<'a> {
    /// Returns every file in `area` whose stamp is not the base's, except ignored ones, in no particular order.
    pub(super) fn run(
        tree: &'a Tree,
        loaded: &'a LoadedBase,
        area: &Area,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let scan = Self::new(tree, ignored, loaded, cancel);
        let mut found: Vec<_> = match area {
            Area::File(path) => scan.file(path)?.into_iter().collect(),
            Area::Folder(path) => scan.folder(path)?,
        };
        found.retain(|candidate| scan.counts(candidate));
        Ok(found)
    }

    /// Returns those of `paths` whose stamp is not the base's.
    pub(super) fn run_files<'p>(
        tree: &'a Tree,
        loaded: &'a LoadedBase,
        paths: impl IntoIterator<Item = &'p LogicalPath>,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let scan = Self::new(tree, ignored, loaded, cancel);
        let mut found = Vec::new();
        for path in paths {
            check_cancelled(cancel)?;
            found.extend(scan.file(path)?.filter(|candidate| scan.counts(candidate)));
        }
        Ok(found)
    }

    fn new(tree: &'a Tree, ignored: &'a Ignored, loaded: &'a LoadedBase, cancel: &'a AtomicBool) -> Self {
        let seen = (0..loaded.manifest.len()).map(|_| AtomicBool::new(false)).collect();
        let (queue, wake, idle) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Self { tree, ignored, loaded, cancel, queue, wake, idle, seen }
    }

    /// Whether the candidate belongs in a diff. A file that git ignores does once the run has written it.
    fn counts(&self, candidate: &DiffCandidate) -> bool {
        let is_ignored = candidate.base.is_some_and(|file| self.loaded.manifest.is_ignored(file));
        !is_ignored || self.ignored.has_written(&candidate.path)
    }

    fn file(&self, path: &LogicalPath) -> Result<Option<DiffCandidate>, WorkspaceError> {
        let base = self.loaded.manifest.get(path.as_str().as_bytes());
        let stat = match self.tree.root.open_parent(path) {
            Ok(parent) => parent.stat()?,
            Err(GuardError::Missing | GuardError::NotADirectory) => None,
            Err(error) => return Err(error.at(path)),
        };
        if base.is_none() && self.ignored.is_file_ignored(&self.tree.root, path, Blocking::Allowed)? {
            return Ok(None);
        }
        let now = stat.and_then(|stat| PresentFile::of(&stat));
        Ok(self.candidate(path.clone(), base, now))
    }

    fn folder(&self, path: &LogicalPath) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let scope = match path.parent() {
            None => RuleScope::default(),
            Some(parent) => self.ignored.scope_of(&self.tree.root, &parent, Blocking::Allowed)?,
        };
        self.queue.lock().folders.push((path.clone(), scope));
        let mut found = std::thread::scope(|threads| {
            let others: Vec<_> = (1..THREADS).map(|_| threads.spawn(|| self.work())).collect();
            let mut found = self.work();
            for other in others {
                let more =
                    other.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the walk panicked").into()));
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

    /// Reads folders until none remains. A thread keeps the folders it finds and reads the last first, whose entries are most
    /// likely still cached; it shares some when the other thread is idle.
    fn work(&self) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let (mut found, mut buffer, mut own) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let Some((path, scope)) = own.pop().or_else(|| self.next()) else { return Ok(found) };
            match self.enter(&path, &scope, &mut buffer, &mut found) {
                Ok(mut folders) => own.append(&mut folders),
                Err(error) => {
                    self.queue.lock().failed = true;
                    self.wake.notify_all();
                    return Err(error);
                }
            }
            if own.is_empty() {
                self.queue.lock().busy -= 1;
                self.wake.notify_all();
            } else if own.len() > 1 && self.idle.load(Ordering::Relaxed) > 0 {
                // The first are nearest to the root, and have the most under them.
                self.queue.lock().folders.extend(own.drain(..own.len() / 2));
                self.wake.notify_all();
            }
        }
    }

    fn next(&self) -> Option<(LogicalPath, RuleScope)> {
        let mut queue = self.queue.lock();
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
            self.wake.wait(&mut queue);
        };
        self.idle.fetch_sub(1, Ordering::Relaxed);
        next
    }

    /// Reads one folder, and returns the folders in it.
    fn enter(
        &self,
        path: &LogicalPath,
        above: &RuleScope,
        buffer: &mut Vec<u8>,
        found: &mut Vec<DiffCandidate>,
    ) -> Result<Vec<(LogicalPath, RuleScope)>, WorkspaceError> {
        check_cancelled(self.cancel)?;
        let opened = match self.tree.root.open_unlinked(path) {
            Ok(opened) => opened,
            Err(error) => {
                // It was removed or is not readable: the base's files in it count as deleted.
                error.unless_disk()?;
                return Ok(Vec::new());
            }
        };
        let dir = opened.file.as_fd();
        let raw: &[u8] = if path.is_root() { b"" } else { path.as_str().as_bytes() };
        let known = self.loaded.manifest.folder(raw);
        let stamp = FileStamp::of(&opened.stat);
        match known.filter(|known| self.loaded.manifest.has_same_entries(*known, &stamp)) {
            Some(known) => self.enter_known(dir, path, above, known, found),
            None => self.enter_changed(dir, path, above, known, buffer, found),
        }
    }

    /// Reads a folder with the same entries as in the base. Entries that the base does not have are ignored files.
    fn enter_known(
        &self,
        dir: BorrowedFd<'_>,
        path: &LogicalPath,
        above: &RuleScope,
        known: FolderIndex,
        found: &mut Vec<DiffCandidate>,
    ) -> Result<Vec<(LogicalPath, RuleScope)>, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        for file in manifest.files_in(known).map(FileIndex) {
            self.check(dir, path, manifest.name(file), Some(file), found)?;
        }
        let scope = self.scope(dir, path, above, manifest.has_gitignore(known))?;
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
        above: &RuleScope,
        known: Option<FolderIndex>,
        buffer: &mut Vec<u8>,
        found: &mut Vec<DiffCandidate>,
    ) -> Result<Vec<(LogicalPath, RuleScope)>, WorkspaceError> {
        let mut names = Names::default();
        each_entry(dir, buffer, self.cancel, |name, file_type| {
            names.add(name, file_type);
            Ok(())
        })?;
        let scope = self.scope(dir, path, above, names.has_gitignore)?;
        let manifest = &self.loaded.manifest;
        let files = known.map_or(0..0, |known| manifest.files_in(known));
        for name in names.files() {
            let base = manifest.find(files.clone(), name);
            if base.is_none() && self.is_ignored(path, name, &scope)? {
                continue;
            }
            self.check(dir, path, name, base, found)?;
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
        above: &RuleScope,
        has_gitignore: bool,
    ) -> Result<RuleScope, WorkspaceError> {
        let path = path.as_str().as_bytes();
        Ok(if has_gitignore {
            self.ignored.enter(&self.tree.root, above, path, dir)?
        } else {
            self.ignored.enter_without_gitignore(above, path)?
        })
    }

    /// Whether the file `name` in `folder`, which the base does not have, is ignored or cannot be named by any tool.
    fn is_ignored(&self, folder: &LogicalPath, name: &[u8], scope: &RuleScope) -> Result<bool, WorkspaceError> {
        let Some(path) = child_path(folder, name) else { return Ok(true) };
        Ok(self.ignored.hides(scope, path.as_str().as_bytes(), false)?)
    }

    /// Returns the folder `name` in `folder`, unless it is ignored or cannot be named by any tool.
    fn child(
        &self,
        folder: &LogicalPath,
        name: &[u8],
        scope: &RuleScope,
    ) -> Result<Option<(LogicalPath, RuleScope)>, WorkspaceError> {
        let Some(path) = child_path(folder, name) else { return Ok(None) };
        let hidden = self.ignored.hides(scope, path.as_str().as_bytes(), true)?;
        Ok((!hidden).then(|| (path, scope.clone())))
    }

    fn check(
        &self,
        dir: BorrowedFd<'_>,
        folder: &LogicalPath,
        name: &[u8],
        base: Option<FileIndex>,
        found: &mut Vec<DiffCandidate>,
    ) -> Result<(), WorkspaceError> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let Some(now) = PresentFile::of(&stat) else { return Ok(()) };
        if let Some(file) = base {
            self.seen[file.0 as usize].store(true, Ordering::Relaxed);
            if self.is_same(file, &now) {
                return Ok(());
            }
        }
        found.extend(child_path(folder, name).and_then(|path| self.candidate(path, base, Some(now))));
        Ok(())
    }

    fn candidate(&self, path: LogicalPath, base: Option<FileIndex>, now: Option<PresentFile>) -> Option<DiffCandidate> {
        let same = match (base, &now) {
            (Some(file), Some(now)) => self.is_same(file, now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        (!same).then_some(DiffCandidate { path, base, now })
    }

    fn is_same(&self, file: FileIndex, now: &PresentFile) -> bool {
        now.git_mode() == self.loaded.manifest.mode(file) && self.loaded.is_same(file, &now.stamp)
    }

    /// Adds the base's files in or under `path` that do not exist.
    fn add_missing(&self, path: &LogicalPath, found: &mut Vec<DiffCandidate>) {
        let is_under = |folder: &[u8]| {
            path.is_root()
                || folder
                    .strip_prefix(path.as_str().as_bytes())
                    .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let manifest = &self.loaded.manifest;
        for (folder, files) in manifest.folders().filter(|(folder, _)| is_under(folder)) {
            for file in files.map(FileIndex).filter(|file| !self.seen[file.0 as usize].load(Ordering::Relaxed)) {
                let path = manifest.logical_path(folder, file);
                found.extend(path.map(|path| DiffCandidate { path, base: Some(file), now: None }));
            }
        }
    }
}

impl PresentFile {
    /// Returns the file or link that `stat` describes; `None` for anything else.
    pub(super) fn of(stat: &rustix::fs::Stat) -> Option<Self> {
        let mode = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => stat.st_mode & 0o7777,
            FileType::Symlink => LINK_MODE,
            _ => return None,
        };
        let hard_linked = guard::is_hard_linked(stat);
        Some(Self { stamp: FileStamp::of(stat), mode, hard_linked })
    }

    pub(crate) fn is_link(&self) -> bool {
        is_link_mode(self.mode)
    }

    pub(crate) fn git_mode(&self) -> u32 {
        git_mode(self.mode)
    }
}

/// Returns the path of `name` in `folder`. `None` for names that no tool can use: not UTF-8, or Git-internal.
fn child_path(folder: &LogicalPath, name: &[u8]) -> Option<LogicalPath> {
    folder.child(std::str::from_utf8(name).ok()?).ok()
}

/// The entries of one folder, in one allocation.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    files: Vec<usize>,
    folders: Vec<usize>,
    has_gitignore: bool,
}

impl Names {
    fn add(&mut self, name: &CStr, file_type: FileType) {
        let start = self.bytes.len();
        match file_type {
            FileType::Directory => self.folders.push(start),
            FileType::RegularFile | FileType::Symlink => self.files.push(start),
            _ => return,
        }
        self.has_gitignore |= name.to_bytes() == GITIGNORE_NAME.as_bytes();
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
