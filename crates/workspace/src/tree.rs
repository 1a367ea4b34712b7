//! The trees that tools see: a run's own, and its read-only mounts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use model::{FileState, LogicalPath, Rules};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::Fault;
use crate::guard::{self, Root};
use crate::ignored::Baseline;

/// A tree that can be read: `repo/` of a run, or a mount.
#[derive(Debug)]
pub struct Tree {
    pub(crate) root: Root,
    /// `None` for a mount, in which nothing is ignored.
    pub(crate) baseline: Option<Arc<dyn Baseline>>,
}

/// A run's own tree, with its base and its place for temporary files.
#[derive(Debug)]
pub struct Workspace {
    /// `workspaces/{run}`.
    dir: OwnedFd,
    /// `workspaces/{run}/tmp`, on the same file system as the tree.
    tmp: OwnedFd,
    tree: Tree,
    base_commit: String,
}

/// What a mutation finds at a path, after the guard and the path's judgement.
#[derive(Debug)]
pub struct Target {
    /// The path.
    pub path: LogicalPath,
    /// The file that is there; `None` where nothing is.
    pub before: Option<(FileState, Vec<u8>)>,
}

impl Tree {
    /// Opens `path` as a mount: everything in it counts as tracked, nothing as ignored.
    ///
    /// # Errors
    ///
    /// Where it is no folder or cannot be opened.
    pub fn open_mount(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Root::of_mount(guard::open_ambient_folder(path)?), baseline: None })
    }

    /// The tree of a run, whose root `dir` is.
    pub(crate) fn of_run(dir: OwnedFd, baseline: Arc<dyn Baseline>) -> Self {
        Self { root: Root::of_run(dir), baseline: Some(baseline) }
    }
}

impl Workspace {
    /// Takes a run's folder, which holds `repo/` and `tmp/`.
    pub(crate) fn open(dir: OwnedFd, base_commit: String, baseline: Arc<dyn Baseline>) -> io::Result<Self> {
        let folder = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            rustix::fs::openat2(&dir, name, flags, Mode::empty(), resolve)
        };
        let (repo, tmp) = (folder("repo")?, folder("tmp")?);
        Ok(Self { dir, tmp, tree: Tree::of_run(repo, baseline), base_commit })
    }

    /// The run's folder, beside whose `repo/` the base lies.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The place for temporary files.
    pub(crate) fn tmp(&self) -> BorrowedFd<'_> {
        self.tmp.as_fd()
    }

    /// The tree that tools read.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The commit that the run started from.
    pub fn base_commit(&self) -> &str {
        &self.base_commit
    }

    /// Looks at every path that a mutation wants to change: guard (no symbolic link on the way), judgement, existence,
    /// type, then the bytes. The answers stand in the order of `paths`.
    ///
    /// # Errors
    ///
    /// The refusal that comes first in the order of refusal, over all paths: `PATH_REJECTED`, `POLICY_DENIED_SECRET`,
    /// `POLICY_DENIED`, `NOT_A_FILE`, `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY`. A missing file is an answer, not an error.
    pub fn targets(&self, _rules: &Rules, _paths: &[LogicalPath]) -> Result<Vec<Target>, Fault> {
        unimplemented!()
    }
}
