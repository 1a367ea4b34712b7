//! The trees that tools access: a run's own tree, and its read-only mounts.

mod admission;
mod base_files;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::LogicalPath;
use rustix::fs::{FileType, OFlags};

use crate::base::{Base, missing_part};
use crate::byte_path::logical_path;
use crate::dir;
use crate::guard::{self, Blocking, GuardError, Root};
use crate::ignored::{Baseline, Ignored, RuleScope};
use crate::kept_files::KeptFiles;

pub(crate) use admission::Admitted;

/// A tree that can be read: a run's `repo/`, or a mount.
#[derive(Debug)]
pub struct Tree {
    pub(crate) root: Arc<Root>,
    /// `None` for a mount, where nothing is ignored.
    pub(crate) ignored: Option<Ignored>,
}

/// A run's own tree, with its base and its folder for temporary files.
#[derive(Debug)]
pub struct Workspace {
    /// `workspaces/{run}/tmp`, on the same file system as the tree.
    tmp: Arc<OwnedFd>,
    /// The files in `tmp` that exports need.
    kept: Arc<KeptFiles>,
    tree: Tree,
    base: Arc<Base>,
}

impl Tree {
    /// Opens the folder at the physical `path` as a mount. Everything in it counts as tracked, nothing as ignored.
    ///
    /// # Errors
    ///
    /// If it is not a folder or cannot be opened.
    pub fn open_mount(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Arc::new(Root::of_mount(guard::open_ambient_folder(path)?)), ignored: None })
    }

    /// Whether there is a folder at `path`, also behind a symbolic link that stays inside. Nothing is judged: what this says is for the
    /// choice of the tool that reads the path. Without `may_block`, `None` if the disk would have to be waited for.
    pub fn is_folder(&self, path: &LogicalPath, may_block: bool) -> Option<bool> {
        let blocking = if may_block { Blocking::Allowed } else { Blocking::Forbidden };
        match self.root.open(path, blocking) {
            Ok(opened) => Some(opened.file_type() == FileType::Directory),
            Err(GuardError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => Some(false),
        }
    }

    /// Returns the tree of a run with the root `dir`.
    pub(crate) fn of_run(dir: OwnedFd, baseline: Arc<dyn Baseline>) -> Self {
        Self { root: Arc::new(Root::of_run(dir)), ignored: Some(Ignored::new(baseline)) }
    }

    /// Whether the run has written the file at `path`.
    pub(crate) fn has_written(&self, path: &[u8]) -> bool {
        logical_path(path).zip(self.ignored.as_ref()).is_some_and(|(path, ignored)| ignored.has_written(&path))
    }

    /// Returns the ignore rules in force in `folder`.
    pub(crate) fn scope_of(&self, folder: &LogicalPath) -> io::Result<RuleScope> {
        match &self.ignored {
            Some(ignored) => ignored.scope_of(&self.root, folder, Blocking::Allowed),
            None => Ok(RuleScope::default()),
        }
    }

    /// Whether git ignores the entry at `path`, in a folder with the rules `scope`, and does not track it.
    pub(crate) fn hides(&self, scope: &RuleScope, path: &[u8], is_folder: bool) -> io::Result<bool> {
        self.ignored.as_ref().map_or(Ok(false), |ignored| ignored.hides(scope, path, is_folder))
    }
}

impl Workspace {
    /// Opens a run's folder, which contains `repo/` and `tmp/`.
    pub(crate) fn open(dir: &OwnedFd, base: Arc<Base>) -> io::Result<Self> {
        let folder = |name: &str| {
            let opened = dir::open_under(dir, name, OFlags::DIRECTORY);
            opened.map_err(|errno| missing_part(errno, name))
        };
        let (repo, tmp) = (folder("repo")?, folder("tmp")?);
        Ok(Self { tmp: Arc::new(tmp), kept: Arc::default(), tree: Tree::of_run(repo, base.clone()), base })
    }

    /// Returns the folder for temporary files.
    pub(crate) fn tmp(&self) -> &Arc<OwnedFd> {
        &self.tmp
    }

    /// Returns the files in `tmp/` that exports need.
    pub(crate) fn kept(&self) -> &Arc<KeptFiles> {
        &self.kept
    }

    /// Adds paths that the run has written. They are visible and readable even if the ignore rules exclude them.
    pub fn add_written(&self, paths: &[LogicalPath]) {
        if let Some(ignored) = &self.tree.ignored {
            ignored.add_written(paths);
        }
    }

    /// Whether git ignores the file at `path`, and neither the base nor the run has it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_ignored(&self, path: &LogicalPath) -> io::Result<bool> {
        self.tree.is_ignored(path, None, Blocking::Allowed)
    }

    /// Returns what the run started from.
    pub fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// Returns the run's tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the commit that the run started from.
    pub fn base_commit(&self) -> &str {
        self.base.commit()
    }
}
