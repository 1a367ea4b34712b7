//! Folders that contain nothing but folders. As in git, a folder exists as long as a file is in it, so a file may replace
//! such a folder.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use model::LogicalPath;
use rustix::fs::{Access, AtFlags, FileType};
use rustix::io::Errno;

use super::{GuardError, ParentHandle, Root, TreeFolder};
use crate::dir::{entries, open_dir, remove_dir};

/// How many entries are inspected. A folder with more counts as not empty.
const MAX_ENTRIES: usize = 1000;
/// How many nested folders are inspected. No path that the service creates is deeper.
const MAX_DEPTH: usize = 64;

/// The files that the same change removes.
pub(crate) type RemovedPaths<'a> = BTreeSet<&'a LogicalPath>;

impl Root {
    /// Whether a file can be created at `path` once the removed files are gone: the path is missing, or is a folder that
    /// contains only folders and removed files, or a removed file lies above it. Follows no link.
    pub(crate) fn is_free(&self, path: &LogicalPath, removed: &RemovedPaths<'_>) -> io::Result<bool> {
        let free = match self.find(path) {
            Ok(None) => Ok(true),
            Ok(Some(found)) if found.file_type().is_dir() => self.open_unlinked(path).and_then(|opened| {
                let mut left = MAX_ENTRIES;
                self.is_empty(&opened.into_folder(path), path, removed, MAX_DEPTH, &mut left)
            }),
            Ok(Some(_)) => Ok(false),
            Err(error) if error.is_no_folder() => Ok(self.is_removed_above(path, removed)),
            Err(error) => Err(error),
        };
        free.or_else(|error| error.unless_disk().map(|()| false))
    }

    /// Whether the file or link that `path` leads through is removed.
    fn is_removed_above(&self, path: &LogicalPath, removed: &RemovedPaths<'_>) -> bool {
        let mut above = path.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            if removed.contains(&folder)
                && let Ok(found) = self.find(&folder)
            {
                return found.is_some_and(|found| is_file_or_link(found.file_type()));
            }
            above = folder.parent();
        }
        false
    }

    fn is_empty(
        &self,
        folder: &TreeFolder,
        path: &LogicalPath,
        removed: &RemovedPaths<'_>,
        depth: usize,
        left: &mut usize,
    ) -> Result<bool, GuardError> {
        if let Some(own) = Self::own_part(folder) {
            // A folder that is not writable could not be emptied later, after the change was promised.
            rustix::fs::accessat(own, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
        }
        let mut found = Vec::new();
        let read = self.each_entry(folder, &mut Vec::new(), |name, file_type| {
            found.push((name.to_owned(), file_type));
            if found.len() > *left { Err(None) } else { Ok(()) }
        });
        match read {
            Ok(()) => {}
            Err(Some(errno)) => return Err(GuardError::from(errno)),
            Err(None) => return Ok(false),
        }
        *left -= found.len();
        let Some(depth) = depth.checked_sub(1) else { return Ok(found.is_empty()) };
        for (name, file_type) in found {
            // A name that no logical path can have is not for the service to remove.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { return Ok(false) };
            let is_empty = match file_type {
                FileType::Directory => {
                    let inner = self.open_subfolder(folder, &name)?;
                    self.is_empty(&inner, &path, removed, depth, left)?
                }
                file_type => is_file_or_link(file_type) && removed.contains(&path),
            };
            if !is_empty {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the run's own folder at `path` if it is empty, and returns whether it is gone. A folder that cannot be removed stays,
    /// which is no error.
    pub(crate) fn remove_empty(&self, path: &LogicalPath) -> bool {
        // No other mutation has the folder open to put something into it.
        let _alone = self.folders.write();
        let removed = match self.open_own_parent(path) {
            Ok(parent) => rustix::fs::unlinkat(parent, path.file_name(), AtFlags::REMOVEDIR),
            Err(GuardError::Missing) => Err(Errno::NOENT),
            Err(_) => return false,
        };
        if removed.is_ok() {
            failpoint::hit("apply.left");
        }
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the run's own folder at `parent` and the folders in it, by `rmdir` only: it fails if anything else is created there
    /// meanwhile. A missing folder is no error.
    pub(crate) fn remove_empty_tree(parent: &ParentHandle<'_>) -> Result<(), Errno> {
        let name = CString::new(parent.name.as_str()).map_err(|_| Errno::INVAL)?;
        remove_folders(parent.dir.as_fd(), &name, MAX_DEPTH)
    }
}

fn remove_folders(dir: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
    match remove_dir(dir, name) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if depth > 0 => {}
        done => return done,
    }
    let folder = open_dir(dir, name)?;
    for (name, _) in entries(&folder, MAX_ENTRIES)? {
        remove_folders(folder.as_fd(), &name, depth - 1)?;
    }
    remove_dir(dir, name)
}

fn is_file_or_link(file_type: FileType) -> bool {
    matches!(file_type, FileType::RegularFile | FileType::Symlink)
}
