//! The folder of a run while it is imported.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use model::Sha256;
use rustix::fs::Mode;

use super::base_parts::Untracked;
use super::quota::SkippedReport;
use super::{STAGING, Workspaces, bare, remove, reuse};
use crate::base::{GIT_NAME, MANIFEST_NAME};
use crate::dir::{open_dir, remove_file};

/// The result of an import.
pub(super) struct Done {
    pub(super) base_commit: String,
    pub(super) manifest_sha256: Sha256,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) skipped: SkippedReport,
    /// The number of files and folders.
    pub(super) entries: usize,
    /// The repository and the commit by which another run finds this base.
    pub(super) reusable: Option<(Sha256, String)>,
    /// The files that git ignores.
    pub(super) untracked: Untracked,
}

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

    /// Removes what an attempt has written of the tree and the base, whose repository is `git_dir`.
    pub(super) fn empty(&self, git_dir: &Path) -> io::Result<()> {
        // What an attempt left in it could make git believe that it has a commit whose objects are missing.
        remove::tree(self.dir.as_fd(), GIT_NAME)?;
        bare::make(git_dir)?;
        remove::tree(self.dir.as_fd(), "repo")?;
        rustix::fs::mkdirat(&self.dir, "repo", Mode::RWXU)?;
        for name in [MANIFEST_NAME, reuse::NAME] {
            remove_file(&self.dir, name)?;
        }
        Ok(())
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = remove::tree(self.workspaces.dir.as_fd(), self.name.as_bytes()) {
            // The next start removes it.
            tracing::warn!(%error, "the files of a failed import could not be removed");
        }
    }
}
