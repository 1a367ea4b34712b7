//! The trees that tools access: a run's own tree, and its read-only mounts.

mod admission;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use model::{FileState, LINK_MODE, LogicalPath, Rules};
use rustix::fs::{FileType, OFlags};

use crate::base::{Base, BaseFile, DiffCache, missing_part};
use crate::base_files::manifest::FileIndex;
use crate::dir;
use crate::error::WorkspaceError;
use crate::guard::{self, Blocking, GuardError, LowerLayer, Root};
use crate::ignored::{Baseline, Ignored, RuleScope};
use crate::kept_files::KeptFiles;
use crate::opened_file::kind_of;

pub(crate) use admission::Admitted;

/// A tree that can be read: a run's `repo/`, or a mount.
#[derive(Debug)]
pub struct Tree {
    pub(crate) root: Arc<Root>,
    /// `None` for a mount, where nothing is ignored.
    pub(crate) ignored: Option<Ignored>,
}

/// A run's own tree, with its base and its folder for temporary files.
pub struct Workspace {
    /// `workspaces/{run}/tmp`, on the same file system as the run's own files.
    tmp: Arc<OwnedFd>,
    tmp_path: PathBuf,
    /// The files in `tmp` that exports need.
    kept: Arc<KeptFiles>,
    tree: Tree,
    base: Arc<Base>,
    diffs: Arc<DiffCache>,
    /// Identifies this tree in `diffs`.
    number: u64,
}

impl fmt::Debug for Workspace {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("base", &self.base).finish_non_exhaustive()
    }
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

    /// Returns the tree of a run whose own files are in `dir`.
    pub(crate) fn of_run(dir: OwnedFd, baseline: Arc<dyn Baseline>, base: Option<Arc<dyn LowerLayer>>) -> Self {
        Self { root: Arc::new(Root::of_run(dir, base)), ignored: Some(Ignored::new(baseline)) }
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
    /// Opens a run's folder, at the physical `path`, which contains `repo/` and `tmp/`.
    pub(crate) fn open(dir: &OwnedFd, path: &Path, base: Arc<Base>, diffs: Arc<DiffCache>) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = |name: &str| {
            let opened = dir::open_under(dir, name, OFlags::DIRECTORY);
            opened.map_err(|errno| missing_part(errno, name))
        };
        let (repo, tmp) = (folder("repo")?, folder("tmp")?);
        Ok(Self {
            tmp: Arc::new(tmp),
            tmp_path: path.join("tmp"),
            kept: Arc::default(),
            tree: Tree::of_run(repo, base.clone(), Some(base.clone())),
            base,
            diffs,
            number: COUNT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns the physical path of the folder for temporary files, where git makes repositories.
    pub(crate) fn tmp_path(&self) -> &Path {
        &self.tmp_path
    }

    /// Returns the cache of diffs.
    pub(crate) fn diffs(&self) -> &DiffCache {
        &self.diffs
    }

    /// Returns the key of a file of the base in the cache of diffs.
    pub(crate) fn diff_key(&self, file: FileIndex) -> (u64, FileIndex) {
        (self.number, file)
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

    /// Hides the files of the base at `paths`, which the run has removed.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn hide_removed<'p>(&self, paths: impl IntoIterator<Item = &'p LogicalPath>) -> io::Result<()> {
        let mut paths = paths.into_iter().peekable();
        // In memory until all are hidden.
        let _loaded = paths.peek().map(|_| self.base.load()).transpose()?;
        paths.try_for_each(|path| self.tree.root.hide(path).map(drop))
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

    /// Returns the file or symbolic link that the run started with at `path`, with its bytes. `None` if there was none. Not filtered by
    /// policy, as the list of them is not.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn base_file(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Result<Option<(FileState, Vec<u8>)>, WorkspaceError> {
        let Some(BaseFile { sha256, size_bytes, mode, is_link, .. }) = self.base().file(path)? else { return Ok(None) };
        let bytes = self.base().read(path, max_bytes)?.ok_or(io::ErrorKind::FileTooLarge).map_err(io::Error::from)?;
        let kind = kind_of(rules, path, &bytes);
        let mode = if is_link { LINK_MODE } else { mode };
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
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
