//! The folder of a run while it is made.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::Mode;

use super::{FOLDERS, STAGING, Workspaces};
use crate::dir::open_dir;
use crate::remove::remove_tree;

/// The folder of a run, under a name of its own while it is made. Dropping it removes it, unless it is finished.
pub(super) struct Staging<W: Deref<Target = Workspaces>> {
    pub(super) workspaces: W,
    pub(super) name: String,
    pub(super) dir: OwnedFd,
    /// Whether it is in its place.
    pub(super) is_finished: bool,
}

impl<W: Deref<Target = Workspaces>> Staging<W> {
    /// Makes the folder with the empty folders of a run.
    pub(super) fn new(workspaces: W) -> io::Result<Self> {
        let name = workspaces.own_name(STAGING);
        rustix::fs::mkdirat(&workspaces.dir, &*name, Mode::RWXU)?;
        let dir = open_dir(&workspaces.dir, &*name)?;
        let staging = Self { workspaces, name, dir, is_finished: false };
        for folder in FOLDERS {
            rustix::fs::mkdirat(&staging.dir, folder, Mode::RWXU)?;
        }
        Ok(staging)
    }
}

impl<W: Deref<Target = Workspaces>> Drop for Staging<W> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Err(error) = remove_tree(self.workspaces.dir.as_fd(), self.name.as_bytes()) {
            // The next start removes it.
            tracing::warn!(%error, "the unfinished folder of a run could not be removed");
        }
    }
}
