//! The trees that tools see: a run's own, and its read-only mounts.

use std::path::Path;

use model::{FileState, LogicalPath, Rules};

use crate::Fault;

/// A tree that can be read: `repo/` of a run, or a mount.
#[derive(Debug)]
pub struct Tree {}

/// A run's own tree, with its base and its place for temporary files.
#[derive(Debug)]
pub struct Workspace {}

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
    pub fn open_mount(_path: &Path) -> std::io::Result<Self> {
        unimplemented!()
    }
}

impl Workspace {
    /// The tree that tools read.
    pub fn tree(&self) -> &Tree {
        unimplemented!()
    }

    /// The commit that the run started from.
    pub fn base_commit(&self) -> &str {
        unimplemented!()
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
