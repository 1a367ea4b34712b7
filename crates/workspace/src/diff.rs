//! The diff of the whole tree against its base.

use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Rules, Sha256};
use serde::{Deserialize, Serialize};

use crate::{Fault, Workspace};

/// What to diff.
#[derive(Clone, Debug)]
pub struct DiffQuery {
    /// Only this file or folder.
    pub path: Option<LogicalPath>,
    /// Leave out the diff's text.
    pub stat_only: bool,
    /// At most so many bytes of text.
    pub max_bytes: usize,
}

/// How the tree differs from its base.
#[derive(Debug)]
pub struct WorkspaceDiff {
    /// Every changed file, sorted by path.
    pub files: Vec<DiffFile>,
    /// Lines added in all.
    pub insertions: u64,
    /// Lines removed in all.
    pub deletions: u64,
    /// As `git diff --stat` writes it.
    pub stat: String,
    /// The text, cut at a line's end.
    pub diff: String,
    /// Whether text is missing.
    pub truncated: bool,
    /// Hash of the whole text, not only of what is shown.
    pub diff_sha256: Sha256,
}

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffFile {
    /// Its path.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub status: String,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether it is binary.
    pub binary: bool,
    /// Hash in the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Hash now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
}

impl Workspace {
    /// Compares the tree with its base: every file is looked at, none that policy hides or git ignores is told.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND` for the path; `Cancelled`.
    pub fn diff(&self, _rules: &Rules, _query: &DiffQuery, _cancel: &AtomicBool) -> Result<WorkspaceDiff, Fault> {
        unimplemented!()
    }
}
