//! The folder of a run while it is imported.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::Mode;

use super::{FOLDERS, STAGING, Workspaces, run_base, run_folders, tree_note};
use crate::dir::open_dir;
use crate::remove::remove_tree;

/// A run's folder while it is imported. Dropping it removes it, unless it was kept.
pub(super) struct Staging<'a> {
    pub(super) workspaces: &'a Workspaces,
    pub(super) name: String,
    pub(super) dir: OwnedFd,
    pub(super) kept: bool,
}

impl<'a> Staging<'a> {
    pub(super) fn new(workspaces: &'a Workspaces) -> io::Result<Self> {
        let name = workspaces.own_name(STAGING);
        rustix::fs::mkdirat(&workspaces.dir, &*name, Mode::RWXU)?;
        let dir = open_dir(&workspaces.dir, &*name)?;
        Ok(Self { workspaces, name, dir, kept: false })
    }

    /// Makes the folders of the run, which starts from `base`, and the notes that it has until the ledger has the run.
    pub(super) fn make_folders(&self, base: &str) -> io::Result<()> {
        for folder in FOLDERS {
            rustix::fs::mkdirat(&self.dir, folder, Mode::RWXU)?;
        }
        run_base::write(&self.dir, base)?;
        run_folders::mark_unfinished(&self.dir)?;
        tree_note::reserve(&self.dir)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = remove_tree(self.workspaces.dir.as_fd(), self.name.as_bytes()) {
            // The next start removes it.
            tracing::warn!(%error, "the files of a failed import could not be removed");
        }
    }
}
