//! Folders that contain nothing but folders. As in git, a folder exists as long as a file is in it, so a file may replace
//! such a folder.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use model::LogicalPath;
use rustix::fs::{Access, AtFlags, FileType};
use rustix::io::Errno;

use super::{GuardError, ParentHandle, Root};
use crate::dir::{entries, remove_dir};

/// How many entries are inspected. A folder with more counts as not empty.
const MAX_ENTRIES: usize = 1000;
/// How many nested folders are inspected. No path that the service creates is deeper.
const MAX_DEPTH: usize = 64;

/// Whether the file at a path is removed by the same change.
pub(crate) type IsRemoved<'a> = &'a dyn Fn(&LogicalPath) -> bool;

impl Root {
    /// Whether a file can be created at `path` once the removed files are gone: the path is missing, or is a folder that
    /// contains only folders and removed files, or a removed file lies above it. Follows no link.
    pub(crate) fn is_free(&self, path: &LogicalPath, is_removed: IsRemoved<'_>) -> io::Result<bool> {
        let free = match self.open_parent(path) {
            Ok(parent) => self.is_entry_free(&parent, path, is_removed),
            Err(error) if error.is_no_folder() => self.is_removed_above(path, is_removed),
            Err(error) => Err(error),
        };
        free.or_else(|error| error.unless_disk().map(|()| false))
    }

    fn is_entry_free(
        &self,
        parent: &ParentHandle,
        path: &LogicalPath,
        is_removed: IsRemoved<'_>,
    ) -> Result<bool, GuardError> {
        let Some(stat) = parent.stat().map_err(GuardError::Io)? else { return Ok(true) };
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(false);
        }
        let mut left = MAX_ENTRIES;
        Ok(self.is_empty_dir((parent.dir.as_fd(), &c_name(parent)?), path, is_removed, MAX_DEPTH, &mut left)?)
    }

    /// Whether the file or link that `path` leads through is removed.
    fn is_removed_above(&self, path: &LogicalPath, is_removed: IsRemoved<'_>) -> Result<bool, GuardError> {
        let mut above = path.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            if is_removed(&folder)
                && let Ok(parent) = self.open_parent(&folder)
            {
                let stat = parent.stat().map_err(GuardError::Io)?;
                return Ok(stat.is_some_and(|stat| is_file_or_link(FileType::from_raw_mode(stat.st_mode))));
            }
            above = folder.parent();
        }
        Ok(false)
    }

    fn is_empty_dir(
        &self,
        (dir, name): (BorrowedFd<'_>, &CStr),
        path: &LogicalPath,
        is_removed: IsRemoved<'_>,
        depth: usize,
        left: &mut usize,
    ) -> Result<bool, Errno> {
        let folder = self.open_entry(dir, name)?;
        // A folder that is not writable could not be emptied later, after the change was promised.
        rustix::fs::accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
        for (name, file_type) in entries(&folder, MAX_ENTRIES)? {
            // A name that no logical path can have is not for the service to remove.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { return Ok(false) };
            let (Some(fewer), Some(depth)) = (left.checked_sub(1), depth.checked_sub(1)) else { return Ok(false) };
            *left = fewer;
            let is_empty = match file_type {
                FileType::Directory => self.is_empty_dir((folder.as_fd(), &name), &path, is_removed, depth, left)?,
                file_type => is_file_or_link(file_type) && is_removed(&path),
            };
            if !is_empty {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the folder at `path` if it is empty, and returns whether it is gone. A folder that cannot be removed stays,
    /// which is no error.
    pub(crate) fn remove_empty(&self, path: &LogicalPath) -> bool {
        let removed = match self.open_parent(path) {
            Ok(parent) => rustix::fs::unlinkat(&parent.dir, &*parent.name, AtFlags::REMOVEDIR),
            Err(GuardError::Missing) => Err(Errno::NOENT),
            Err(_) => return false,
        };
        if removed.is_ok() {
            failpoint::hit("apply.left");
        }
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the folder at `parent` and the folders in it, by `rmdir` only: it fails if anything else is created there
    /// meanwhile. A missing folder is no error.
    pub(crate) fn remove_empty_tree(&self, parent: &ParentHandle) -> Result<(), Errno> {
        self.remove_folders(parent.dir.as_fd(), &c_name(parent)?, MAX_DEPTH)
    }

    fn remove_folders(&self, dir: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
        match remove_dir(dir, name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if depth > 0 => {}
            done => return done,
        }
        let folder = self.open_entry(dir, name)?;
        for (name, _) in entries(&folder, MAX_ENTRIES)? {
            self.remove_folders(folder.as_fd(), &name, depth - 1)?;
        }
        remove_dir(dir, name)
    }
}

fn is_file_or_link(file_type: FileType) -> bool {
    matches!(file_type, FileType::RegularFile | FileType::Symlink)
}

fn c_name(parent: &ParentHandle) -> Result<CString, Errno> {
    CString::new(parent.name.as_str()).map_err(|_| Errno::INVAL)
}
