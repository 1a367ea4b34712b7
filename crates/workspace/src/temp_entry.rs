//! Entries of a folder that are removed unless somebody takes them over.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, RenameFlags, Stat};
use rustix::io::Errno;

use crate::dir::{create_file, fresh_name, open_dir, open_file, remove_file};
use crate::remove::remove_tree;

/// A file, a symbolic link or a folder for temporary use, such as in a run's `tmp/`. Dropping it removes it, unless it was
/// [left](Self::leave) or moved away.
#[derive(Debug)]
pub(crate) struct TempEntry {
    dir: Arc<OwnedFd>,
    name: String,
    is_folder: bool,
    /// Whether dropping it removes it.
    is_owned: AtomicBool,
}

impl TempEntry {
    /// Takes over the file or symbolic link `name`, which need not exist yet.
    pub(crate) fn file(dir: &Arc<OwnedFd>, name: String) -> Self {
        Self { dir: Arc::clone(dir), name, is_folder: false, is_owned: AtomicBool::new(true) }
    }

    /// Creates a file with a new name that begins with `prefix`, readable and writable by the service only.
    pub(crate) fn create_file(dir: &Arc<OwnedFd>, prefix: &str) -> Result<(Self, File), Errno> {
        let name = fresh_name(prefix);
        let file = create_file(&**dir, &*name)?;
        Ok((Self::file(dir, name), file))
    }

    /// Creates a folder with a new name that begins with `prefix`.
    pub(crate) fn create_folder(dir: &Arc<OwnedFd>, prefix: &str, mode: Mode) -> Result<Self, Errno> {
        let mut folder = Self::file(dir, fresh_name(prefix));
        folder.is_folder = true;
        rustix::fs::mkdirat(&**dir, &*folder.name, mode)?;
        Ok(folder)
    }

    /// Returns its name in its folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens the file for reading.
    pub(crate) fn open_file(&self) -> Result<File, Errno> {
        open_file(&*self.dir, &*self.name)
    }

    /// Opens the folder.
    pub(crate) fn open_folder(&self) -> Result<OwnedFd, Errno> {
        open_dir(&*self.dir, &*self.name)
    }

    /// Returns its metadata, without following a link.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&*self.dir, &*self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Leaves it to others: dropping this does not remove it.
    pub(crate) fn leave(&self) {
        self.is_owned.store(false, Ordering::Relaxed);
    }

    /// Takes it over again: dropping this removes it.
    pub(crate) fn own(&self) {
        self.is_owned.store(true, Ordering::Relaxed);
    }

    /// Moves it to `name` in `to`, where nothing may be.
    pub(crate) fn move_to(&self, to: &OwnedFd, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat_with(&*self.dir, &*self.name, to, name, RenameFlags::NOREPLACE)?;
        self.leave();
        Ok(())
    }

    /// Exchanges it with what is at `name` in `with`.
    pub(crate) fn exchange(&self, with: &OwnedFd, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat_with(&*self.dir, &*self.name, with, name, RenameFlags::EXCHANGE)
    }

    /// Moves what is at `name` in `from` here.
    pub(crate) fn take(&self, from: &OwnedFd, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat_with(from, name, &*self.dir, &*self.name, RenameFlags::NOREPLACE)
    }
}

impl Drop for TempEntry {
    fn drop(&mut self) {
        if !*self.is_owned.get_mut() {
            return;
        }
        let removed = if self.is_folder {
            remove_tree(self.dir.as_fd(), self.name.as_bytes())
        } else {
            remove_file(&*self.dir, &*self.name).map_err(io::Error::from)
        };
        if let Err(error) = removed {
            // Nothing depends on it, and what remains is removed at the next start or when the run is next opened.
            tracing::warn!(%error, "a temporary file or folder could not be removed");
        }
    }
}
