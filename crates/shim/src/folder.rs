//! What can be done with a folder, here or in a sandbox.

use std::collections::HashMap;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::command::{CommandControl, CommandOutcome, CommandSpec, OutputStream};
use crate::error::{LayerConflict, ShimError};

/// What a folder has of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedOut {
    /// The run.
    pub run: String,
    /// The record of the run whose state the folder has.
    pub seq: u64,
    /// The hash of that record.
    pub head_hash: String,
}

/// What a layer changed in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedLayer {
    /// Files and links that were written.
    pub written: u64,
    /// Files and links that were deleted.
    pub deleted: u64,
    /// What was changed here too and is as it was. The folder is at the record before then, with the rest of the layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<LayerConflict>,
}

/// How a file differs from the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or its mode differs.
    Modified,
    /// It is gone.
    Deleted,
}

/// A file that differs from the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathChange {
    /// The path.
    pub path: String,
    /// How it differs.
    pub change: ChangeKind,
    /// The size in bytes.
    pub size: u64,
    /// When the file was changed last, in nanoseconds since 1970: the time that no program can set back. 0 if it is gone.
    #[serde(default)]
    pub changed_ns: i64,
}

/// Something in the folder that cannot be part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftEntry {
    /// The path, with a replacement for what is not UTF-8.
    pub path: String,
    /// Why it is left.
    pub why: String,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScanReport {
    /// What differs from the index, in order of paths.
    pub changes: Vec<PathChange>,
    /// The first entries that cannot be part of a run.
    pub left: Vec<LeftEntry>,
    /// How many there are of those.
    pub left_count: u64,
    /// How many of those are more than an empty folder, so that the tree is not the run's.
    #[serde(default)]
    pub foreign_count: u64,
    /// Folders of build output, which were not looked into: the run has nothing in them.
    pub not_walked: Vec<String>,
    /// When git last moved its `HEAD` in a repository that a command made in the folder, in nanoseconds since 1970; 0 if there is none. It is
    /// no part of the run.
    #[serde(default)]
    pub git_ns: i64,
}

impl ScanReport {
    /// Takes out what an earlier scan has found as it is now: what is left came after it. Returns the changes that were taken out.
    pub fn leave_out(&mut self, earlier: &Self) -> Vec<PathChange> {
        let known: HashMap<&str, &PathChange> =
            earlier.changes.iter().map(|change| (change.path.as_str(), change)).collect();
        let is_known = |change: &PathChange| known.get(change.path.as_str()).is_some_and(|known| **known == *change);
        let (before, changes) = std::mem::take(&mut self.changes).into_iter().partition(is_known);
        self.changes = changes;
        self.left.retain(|entry| !earlier.left.contains(entry));
        self.left_count = self.left_count.saturating_sub(earlier.left_count).max(self.left.len() as u64);
        self.foreign_count = self.foreign_count.saturating_sub(earlier.foreign_count);
        self.not_walked.retain(|folder| !earlier.not_walked.contains(folder));
        before
    }
}

/// The bounds of a read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadLimits {
    /// The most bytes of a file.
    pub max_file_bytes: u64,
    /// The most bytes of all files.
    pub max_total_bytes: u64,
}

/// What a read left out of its layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadReport {
    /// Entries of the layer.
    pub entries: u64,
    /// Files that are not in the layer.
    pub left: Vec<LeftEntry>,
    /// Files that changed while they were read, so that the layer must not be used. Read again, perhaps without them.
    pub torn: Vec<String>,
}

/// A folder with a checkout of a run, here or in a sandbox.
pub trait CommandFolder: Send {
    /// Returns what the folder has of a run. `None` if it is no checkout.
    ///
    /// # Errors
    ///
    /// If the index cannot be read.
    fn have(&mut self) -> Result<Option<CheckedOut>, ShimError>;

    /// Writes a layer of the run into the folder, which is at `after` then. What was changed here too is left as it is, and named; the
    /// folder stays at its record then, so that the same layer comes again, and what is the run's already is no conflict.
    ///
    /// The files of a first checkout get the times of the layer, files that are written later the present time: a build must see
    /// that they are newer than its output.
    ///
    /// # Errors
    ///
    /// [`ShimError::Conflicts`] if a first checkout would overwrite a file, or there are very many such files; nothing was written then.
    fn apply(&mut self, after: &CheckedOut, layer: &mut dyn Read) -> Result<AppliedLayer, ShimError>;

    /// Lets the next layer overwrite what was changed at `theirs`. It is refused if there is no conflict at one of them.
    ///
    /// # Errors
    ///
    /// If the connection to the sandbox is lost.
    fn take_theirs(&mut self, theirs: &[String]) -> Result<(), ShimError>;

    /// Moves what differs from the index at `paths`, whatever it is, to `.workspaced/aside`, and what is in the place of their folders; what
    /// was put aside before is removed. The next layer writes the run's version of these paths. In a folder that is no checkout, the next layer
    /// puts aside what is in its way instead.
    ///
    /// # Errors
    ///
    /// If something cannot be moved: what precedes it is moved then.
    fn put_aside(&mut self, paths: &[String]) -> Result<(), ShimError>;

    /// Returns the hash of what the folder has of the run: of the lines `KIND SHA256 PATH`, each ended by a NUL byte, in order of their
    /// paths.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout.
    fn tree_sha256(&mut self) -> Result<String, ShimError>;

    /// Finds what differs from the index. Folders with one of the names in `build_output`, of which the run has nothing, are not
    /// looked into.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout, has too many entries or cannot be read.
    fn scan(&mut self, build_output: &[String]) -> Result<ScanReport, ShimError>;

    /// Writes a layer of `paths`, as they are now, to `out`.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout or cannot be read, or `out` fails.
    fn read(&mut self, paths: &[String], limits: ReadLimits, out: &mut dyn Write) -> Result<ReadReport, ShimError>;

    /// Notes that the run has the versions of `paths` that were read last. The index is written with the next layer, or when the folder is
    /// closed.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout.
    fn confirm(&mut self, paths: &[String]) -> Result<(), ShimError>;

    /// Runs a command in the folder. `started` gets what sends it signals, `output` its output as it comes; if `output` fails, the
    /// command is killed.
    ///
    /// # Errors
    ///
    /// If the command cannot be started.
    fn exec(
        &mut self,
        command: &CommandSpec,
        started: &mut dyn FnMut(CommandControl),
        output: &mut dyn FnMut(OutputStream, &[u8]) -> std::io::Result<()>,
    ) -> Result<CommandOutcome, ShimError>;
}
