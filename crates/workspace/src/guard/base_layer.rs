//! The lower layer of a run's tree: its base, as far as the run has not removed it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use model::LogicalPath;
use parking_lot::RwLock;
use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Blocking, OPEN_FLAGS, open_under};

/// What a run started from, as a layer of its tree. Nobody changes it.
pub(crate) trait LowerLayer: fmt::Debug + Send + Sync {
    /// The folder of its files.
    fn dir(&self) -> BorrowedFd<'_>;

    /// Whether it has a file or a symbolic link at `path`.
    fn has_file(&self, path: &str) -> io::Result<bool>;

    /// Returns the numbers of files and symbolic links under the folders at `paths`.
    fn files_under(&self, paths: &[&str]) -> io::Result<Vec<u64>>;
}

pub(super) struct BaseLayer {
    base: Arc<dyn LowerLayer>,
    removed: RwLock<Removed>,
}

/// What a run has removed of its base.
#[derive(Default)]
struct Removed {
    files: HashSet<Vec<u8>>,
    /// The number of removed files under each folder.
    under: HashMap<Vec<u8>, u64>,
    /// The folders without any file that is left. As in git, they are gone.
    folders: HashSet<Vec<u8>>,
}

impl BaseLayer {
    pub(super) fn new(base: Arc<dyn LowerLayer>) -> Self {
        Self { base, removed: RwLock::default() }
    }

    /// Opens `path` if the run has not removed it. `LOOP` if something on the path is no folder in the base: whether that is
    /// shown depends on the run's own layer.
    pub(super) fn open(&self, path: &[u8], flags: OFlags, blocking: Blocking) -> Result<OwnedFd, Errno> {
        if !self.is_shown(path) {
            return Err(Errno::NOENT);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | blocking.resolve();
        open_under(self.base.dir(), path, flags, resolve).map_err(|errno| match errno {
            Errno::NOTDIR => Errno::LOOP,
            errno => errno,
        })
    }

    /// Opens the folder at `path`, which the run's own layer has too; `None` if the base does not show one there.
    pub(super) fn open_folder(&self, path: &[u8], blocking: Blocking) -> Result<Option<OwnedFd>, Errno> {
        match self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OPEN_FLAGS, blocking) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Whether the file, link or folder at `path` is shown, if the base has one.
    fn is_shown(&self, path: &[u8]) -> bool {
        let removed = self.removed.read();
        removed.files.is_empty() || !removed.files.contains(path) && !removed.folders.contains(path)
    }

    /// Hides the file at `path`. Returns whether the base has one that was shown.
    pub(super) fn hide(&self, path: &str) -> io::Result<bool> {
        if !self.base.has_file(path)? {
            return Ok(false);
        }
        let folders: Vec<_> = folders_above(path).collect();
        let counts = self.base.files_under(&folders)?;
        let mut removed = self.removed.write();
        if !removed.files.insert(path.as_bytes().to_vec()) {
            return Ok(false);
        }
        for (folder, count) in folders.into_iter().zip(counts) {
            let under = removed.under.entry(folder.as_bytes().to_vec()).or_default();
            *under += 1;
            if *under == count {
                removed.folders.insert(folder.as_bytes().to_vec());
            }
        }
        Ok(true)
    }

    /// Shows the file at `path` again.
    pub(super) fn show(&self, path: &str) {
        let mut removed = self.removed.write();
        if !removed.files.remove(path.as_bytes()) {
            return;
        }
        for folder in folders_above(path) {
            if let Some(under) = removed.under.get_mut(folder.as_bytes()) {
                *under -= 1;
            }
            removed.folders.remove(folder.as_bytes());
        }
    }

    /// Returns every file that is hidden.
    pub(super) fn hidden(&self) -> Vec<LogicalPath> {
        let removed = self.removed.read();
        removed.files.iter().filter_map(|path| crate::byte_path::logical_path(path)).collect()
    }

    /// Whether the entry `name` of `folder`, of the type `file_type`, is shown. `folder` is the path of a folder, empty for the root.
    pub(super) fn shows_entry(&self, folder: &str, name: &[u8], file_type: FileType) -> bool {
        let removed = self.removed.read();
        if removed.files.is_empty() {
            return true;
        }
        let path = if folder.is_empty() { name.to_vec() } else { [folder.as_bytes(), b"/", name].concat() };
        if file_type.is_dir() { !removed.folders.contains(&path) } else { !removed.files.contains(&path) }
    }
}

fn folders_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}
