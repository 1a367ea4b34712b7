//! Entries of a run's `tmp/` that are removed unless somebody takes them over.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, RenameFlags, Stat};
use rustix::io::Errno;

use crate::dir::{create_file, fresh_name, open_dir, open_file, remove_file};
use crate::guard::{GuardError, ParentHandle};
use crate::remove::remove_tree;

/// A file, a symbolic link or a folder in a run's `tmp/`. Dropping it removes it, unless it was [left](Self::leave) or moved away.
#[derive(Debug)]
pub(crate) struct TempEntry {
    tmp: Arc<OwnedFd>,
    name: String,
    is_folder: bool,
    /// Whether dropping it removes it.
    is_owned: AtomicBool,
}

impl TempEntry {
    /// Takes over the file or symbolic link `name`, which need not exist yet.
    pub(crate) fn file(tmp: &Arc<OwnedFd>, name: String) -> Self {
        Self { tmp: Arc::clone(tmp), name, is_folder: false, is_owned: AtomicBool::new(true) }
    }

    /// Creates a file with a new name that begins with `prefix`, readable and writable by the service only.
    pub(crate) fn create_file(tmp: &Arc<OwnedFd>, prefix: &str) -> Result<(Self, File), Errno> {
        let name = fresh_name(prefix);
        let file = create_file(&**tmp, &*name)?;
        Ok((Self::file(tmp, name), file))
    }

    /// Creates a folder with a new name that begins with `prefix`.
    pub(crate) fn create_folder(tmp: &Arc<OwnedFd>, prefix: &str, mode: Mode) -> Result<Self, Errno> {
        let mut folder = Self::file(tmp, fresh_name(prefix));
        folder.is_folder = true;
        rustix::fs::mkdirat(&**tmp, &*folder.name, mode)?;
        Ok(folder)
    }

    /// Returns its name in `tmp/`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens the file for reading.
    pub(crate) fn open_file(&self) -> Result<File, Errno> {
        open_file(&*self.tmp, &*self.name)
    }

    /// Opens the folder.
    pub(crate) fn open_folder(&self) -> Result<OwnedFd, Errno> {
        open_dir(&*self.tmp, &*self.name)
    }

    /// Returns its metadata, without following a link.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&*self.tmp, &*self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Leaves it to others: dropping this does not remove it.
    pub(crate) fn leave(&self) {
        self.is_owned.store(false, Ordering::Relaxed);
    }

    /// Takes it over again: dropping this removes it.
    pub(crate) fn own(&self) {
        self.is_owned.store(true, Ordering::Relaxed);
    }

    /// Moves it to `to`, where nothing may be.
    pub(crate) fn move_to(&self, to: &ParentHandle<'_>) -> Result<(), GuardError> {
        let moved = rustix::fs::renameat_with(&*self.tmp, &*self.name, &to.dir, &*to.name, RenameFlags::NOREPLACE);
        moved.map_err(rename_error)?;
        self.leave();
        Ok(())
    }

    /// Exchanges it with what is at `to`.
    pub(crate) fn exchange(&self, to: &ParentHandle<'_>) -> Result<(), GuardError> {
        rustix::fs::renameat_with(&*self.tmp, &*self.name, &to.dir, &*to.name, RenameFlags::EXCHANGE)
            .map_err(rename_error)
    }

    /// Moves what is at `from` to `tmp/`, where it becomes this entry.
    pub(crate) fn take(&self, from: &ParentHandle<'_>) -> Result<(), GuardError> {
        rustix::fs::renameat_with(&from.dir, &*from.name, &*self.tmp, &*self.name, RenameFlags::NOREPLACE)
            .map_err(rename_error)
    }
}

impl Drop for TempEntry {
    fn drop(&mut self) {
        if !*self.is_owned.get_mut() {
            return;
        }
        let removed = if self.is_folder {
            remove_tree(self.tmp.as_fd(), self.name.as_bytes())
        } else {
            remove_file(&*self.tmp, &*self.name).map_err(io::Error::from)
        };
        if let Err(error) = removed {
            // Nothing depends on it, and the folder is emptied when the run is next opened.
            tracing::warn!(%error, "a temporary file or folder of a run could not be removed");
        }
    }
}

/// Returns the error of a rename between two folders that could be opened: what the permission bits forbid is a fault of the disk.
fn rename_error(errno: Errno) -> GuardError {
    match errno {
        Errno::ACCESS | Errno::PERM => GuardError::Io(errno.into()),
        errno => errno.into(),
    }
}
