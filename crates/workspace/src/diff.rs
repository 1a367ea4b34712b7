//! The diff of the tree against its base.

mod compare;
mod digest;
mod drift;
mod inherited;
mod report;
mod scan;
mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use model::{Access, LogicalPath, Refusal, Rules, Sha256};

use crate::base::{DiffFile, FileChange};
use crate::base_files::BaseFiles;
use crate::error::check_cancelled;
use crate::guard::{Blocking, GuardError};
use crate::opened_file::is_readable;
use crate::snapshot::not_in_snapshot;
use crate::{Snapshot, Workspace, WorkspaceError};
pub use digest::{PathVersion, VersionId};
pub use drift::{Drift, DriftedPath, EntryState};
pub use inherited::{Inherited, InheritedContent, InheritedFile};
use report::Report;
pub(crate) use scan::DiffCandidate;
use scan::{look_at, scan};

/// What to diff.
#[derive(Clone, Debug)]
pub struct DiffQuery {
    /// Only this file or folder.
    pub path: Option<LogicalPath>,
    /// Whether to leave out the diff's text.
    pub stat_only: bool,
    /// The maximum size of the text.
    pub max_bytes: usize,
}

/// How the tree differs from its base.
#[derive(Debug)]
pub struct WorkspaceDiff {
    /// The number of files that differ.
    pub files_changed: usize,
    /// The first of them, sorted by path, as far as they fit an answer.
    pub files: Vec<DiffFile>,
    /// The number of lines added.
    pub insertions: u64,
    /// The number of lines removed.
    pub deletions: u64,
    /// One line for each of [`files`](Self::files), `path | +added -removed`, and one for all; empty if nothing differs.
    pub stat: String,
    /// The text, cut at the end of a line.
    pub diff: String,
    /// Whether text or files are missing.
    pub truncated: bool,
    /// The hash of the whole text, before it was cut.
    pub diff_sha256: Sha256,
}

impl WorkspaceDiff {
    /// Returns the paths of [`files`](Self::files).
    pub fn paths(&self) -> impl Iterator<Item = LogicalPath> {
        self.files.iter().filter_map(|file| LogicalPath::parse(&file.path).ok())
    }
}

impl Workspace {
    /// Compares the tree with its base. Files that policy hides or git ignores are left out.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND` for the path; `Cancelled`.
    pub fn diff(&self, rules: &Rules, query: &DiffQuery, cancel: &AtomicBool) -> Result<WorkspaceDiff, WorkspaceError> {
        self.diff_paths(rules, query, None, cancel)
    }

    /// As [`diff`](Self::diff), but compares only `paths`, which the run has written, unless that is `None`. They are sorted. No folder is
    /// read then.
    ///
    /// # Errors
    ///
    /// As for [`diff`](Self::diff).
    pub fn diff_paths(
        &self,
        rules: &Rules,
        query: &DiffQuery,
        paths: Option<&[LogicalPath]>,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let mut report = Report::new(query);
        let mut add = |candidate: DiffCandidate, change: &FileChange| report.add(&candidate.path, change);
        self.each_change(rules, query.path.as_ref(), paths, &mut add, cancel)?;
        Ok(report.finish())
    }

    /// As [`diff`](Self::diff) of the whole tree without its text. Calls `each` for every file, in path order.
    ///
    /// # Errors
    ///
    /// If the disk fails; `Cancelled`.
    pub fn diff_files(
        &self,
        rules: &Rules,
        each: &mut dyn FnMut(&LogicalPath, &DiffFile),
        cancel: &AtomicBool,
    ) -> Result<(), WorkspaceError> {
        self.each_change(rules, None, None, &mut |candidate, change| each(&candidate.path, &change.file), cancel)
    }

    /// Calls `each` for every file that differs, at or under `area`, and among `only`. They come in path order.
    fn each_change(
        &self,
        rules: &Rules,
        area: Option<&LogicalPath>,
        only: Option<&[LogicalPath]>,
        each: &mut dyn FnMut(DiffCandidate, &FileChange),
        cancel: &AtomicBool,
    ) -> Result<(), WorkspaceError> {
        let loaded = self.base().load()?;
        let area = self.area(rules, area, &loaded, None)?;
        let candidates = match only {
            Some(paths) => look_at(self, &loaded.manifest, paths.iter().filter(|path| is_in(path, &area)), cancel)?,
            None => scan(self, &loaded.manifest, &area, cancel)?,
        };
        for candidate in candidates {
            check_cancelled(cancel)?;
            if !candidate.is_visible(rules) {
                continue;
            }
            if let Some(change) = self.change(rules, &loaded, &candidate)? {
                each(candidate, &change);
            }
        }
        Ok(())
    }

    /// Returns every file that differs and that policy does not hide, in path order.
    pub(crate) fn changes(&self, rules: &Rules, cancel: &AtomicBool) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let mut changes = Vec::new();
        self.each_change(rules, None, None, &mut |candidate, _| changes.push(candidate), cancel)?;
        Ok(changes)
    }

    /// Returns the file or folder to compare. A link on its path is followed, as by any read, but not in a snapshot.
    fn area(
        &self,
        rules: &Rules,
        path: Option<&LogicalPath>,
        loaded: &BaseFiles,
        snapshot: Option<&Snapshot>,
    ) -> Result<LogicalPath, WorkspaceError> {
        let Some(path) = path else { return Ok(LogicalPath::root()) };
        let opened = match snapshot {
            Some(_) => None,
            None => match self.tree().root.open(path, Blocking::Allowed) {
                Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
                opened => opened.ok(),
            },
        };
        let (manifest, raw) = (&loaded.manifest, path.as_str().as_bytes());
        let is_folder = match &opened {
            Some(opened) => opened.file_type().is_dir(),
            None => manifest.has_files_under(raw) || snapshot.is_some_and(|files| files.has_files_under(path)),
        };
        let opened = opened.as_ref();
        let real = opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path);
        if !is_folder {
            self.tree().judge(rules, Access::Read, path, opened, rules.kind_of_path(real), Blocking::Allowed)?;
            let in_snapshot = || snapshot.is_some_and(|files| files.get(path).is_some());
            if opened.is_none() && manifest.get(raw).is_none() && !in_snapshot() {
                return Err(snapshot.map_or_else(|| Refusal::not_found(path), |_| not_in_snapshot(path)).into());
            }
        }
        Ok(real.clone())
    }
}

impl DiffCandidate {
    /// Whether policy lets the caller read the file.
    fn is_visible(&self, rules: &Rules) -> bool {
        // The scan has left out ignored files.
        is_readable(rules, &self.path, self.now.as_ref().is_some_and(|now| now.hard_linked))
    }
}

/// Whether `path` is `area` or in it.
fn is_in(path: &LogicalPath, area: &LogicalPath) -> bool {
    path == area || path.is_under(area)
}
