//! Runs' folders: made from a source all at once or not at all, opened, removed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{LeftOut, Refusal, RunId};

use crate::Workspace;

/// The folder that holds every run's workspace.
#[derive(Debug)]
pub struct Workspaces {}

/// Where a run's tree comes from. Paths were checked against the import roots by [`Workspaces::allow`].
pub enum ImportSource<'a> {
    /// Nothing.
    Empty,
    /// A repository by `https`.
    GitRemote {
        /// The address.
        url: String,
        /// Branch, tag or commit; HEAD where missing.
        reference: Option<String>,
    },
    /// A repository on this machine.
    GitLocal {
        /// Its folder.
        path: PathBuf,
        /// Branch, tag or commit; HEAD where missing.
        reference: Option<String>,
    },
    /// A folder on this machine.
    Directory(PathBuf),
    /// A tar or tar.gz.
    Archive(&'a mut dyn Read),
}

/// Told of an import's progress, and asked whether to go on.
pub trait ImportWatch: Sync {
    /// So many files and bytes are in; `stage` is `fetching`, `writing` or `committing`.
    fn progress(&self, stage: &'static str, files: u64, bytes: u64);

    /// Whether to stop.
    fn cancelled(&self) -> bool;
}

/// What came in.
#[derive(Debug)]
pub struct Imported {
    /// The workspace, ready.
    pub workspace: Arc<Workspace>,
    /// The base commit.
    pub base_commit: String,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// What was left out, at most 1,000 entries.
    pub left_out: Vec<LeftOut>,
}

/// Why an import failed; nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportFault {
    /// The source is bad: the orchestrator can act on it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk failed.
    #[error("the file system failed")]
    Io(#[from] io::Error),
    /// The orchestrator went away.
    #[error("the import was cancelled")]
    Cancelled,
}

impl Workspaces {
    /// Opens `data_dir/workspaces`, makes it where it is missing, and checks that the guard holds on this kernel and
    /// file system: an escape is refused, a link is refused, no-replace works.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be used or a check fails.
    pub fn open(_data_dir: &Path, _import_roots: &[PathBuf]) -> io::Result<Self> {
        unimplemented!()
    }

    /// The real place of `raw` if it lies under an import root.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether the place does not exist or is not allowed.
    pub fn allow(&self, _raw: &str) -> Result<PathBuf, Refusal> {
        unimplemented!()
    }

    /// Makes `run`'s workspace from `source` in a staging folder and renames it into place at the end.
    ///
    /// # Errors
    ///
    /// See [`ImportFault`].
    pub fn import(
        &self,
        _run: &RunId,
        _source: ImportSource<'_>,
        _watch: &dyn ImportWatch,
    ) -> Result<Imported, ImportFault> {
        unimplemented!()
    }

    /// Opens `run`'s workspace.
    ///
    /// # Errors
    ///
    /// Where it is not there or cannot be used.
    pub fn get(&self, _run: &RunId) -> io::Result<Arc<Workspace>> {
        unimplemented!()
    }

    /// Removes `run`'s workspace; one that is not there is no error.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn remove(&self, _run: &RunId) -> io::Result<()> {
        unimplemented!()
    }

    /// Removes what imports and removals that were killed have left: staging folders, and folders of runs that `known`
    /// does not know. Returns how many.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn sweep(&self, _known: &dyn Fn(&RunId) -> bool) -> io::Result<u64> {
        unimplemented!()
    }
}
