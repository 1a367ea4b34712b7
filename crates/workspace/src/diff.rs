//! The diff of the tree against its base.

mod digest;
mod report;
mod scan;
mod snapshot;
mod stat_table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use model::{Access, LogicalPath, Refusal, Rules, Sha256};
use rustix::fs::FileType;

use crate::base::DiffFile;
use crate::base_files::BaseFiles;
use crate::guard::{Blocking, GuardError};
use crate::opened_file::is_readable;
use crate::{Workspace, WorkspaceError};
pub use digest::{PathVersion, VersionId};
use report::{Report, ReportOutput};
pub(crate) use scan::DiffCandidate;
use scan::{Area, Scan};

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

/// How many paths [`WorkspaceDiff::changed`] may contain.
pub const MAX_CHANGED_PATHS: usize = 10_000;
/// How many bytes of paths it may contain.
pub const MAX_CHANGED_PATHS_BYTES: usize = 4 << 20;

/// How the tree differs from its base.
#[derive(Debug)]
pub struct WorkspaceDiff {
    /// The number of files that differ.
    pub files_changed: usize,
    /// The first of them, sorted by path, as far as they fit an answer.
    pub files: Vec<DiffFile>,
    /// The paths of all of them; `None` if they are too many.
    pub changed: Option<BTreeSet<LogicalPath>>,
    /// The number of lines added.
    pub insertions: u64,
    /// The number of lines removed.
    pub deletions: u64,
    /// The table of [`files`](Self::files) as `git diff --stat` prints it.
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
        self.diff_to(rules, query, None, ReportOutput::None, cancel)
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
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        self.diff_to(rules, &query, None, ReportOutput::Files(each), cancel).map(drop)
    }

    /// As [`diff`](Self::diff), but compares only `paths`, as if no other could differ.
    ///
    /// # Errors
    ///
    /// As for [`diff`](Self::diff).
    pub fn diff_paths(
        &self,
        rules: &Rules,
        query: &DiffQuery,
        paths: &BTreeSet<LogicalPath>,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        self.diff_to(rules, query, Some(paths), ReportOutput::None, cancel)
    }

    fn diff_to(
        &self,
        rules: &Rules,
        query: &DiffQuery,
        paths: Option<&BTreeSet<LogicalPath>>,
        output: ReportOutput<'_>,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let loaded = self.base().load()?;
        let area = self.area(rules, query.path.as_ref(), &loaded)?;
        let mut report = Report::new(self, rules, &loaded, query);
        // Matched, so that its lifetime may be longer than the report's.
        report.output = match output {
            ReportOutput::None => ReportOutput::None,
            ReportOutput::Files(each) => ReportOutput::Files(each),
        };
        let candidates = self.candidates(rules, &loaded, &area, paths, cancel)?;
        let candidates = report.drop_same(candidates, cancel)?;
        report.add_all(&candidates, cancel)?;
        Ok(report.finish())
    }

    /// Returns every file that may differ and that policy does not hide, in path order.
    fn candidates(
        &self,
        rules: &Rules,
        loaded: &BaseFiles,
        area: &Area,
        paths: Option<&BTreeSet<LogicalPath>>,
        cancel: &AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let mut candidates = match paths {
            None => Scan::run(self, loaded, area, cancel)?,
            Some(paths) => Scan::run_files(self, loaded, paths.iter().filter(|path| area.contains(path)), cancel)?,
        };
        candidates.retain(|candidate| candidate.is_visible(rules));
        candidates.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(candidates)
    }

    /// Returns every path whose file or link may differ from the base, including hidden ones but not ignored ones.
    pub(crate) fn touched_paths(&self, cancel: &AtomicBool) -> Result<Vec<LogicalPath>, WorkspaceError> {
        let loaded = self.base().load()?;
        let candidates = Scan::run(self, &loaded, &Area::Folder(LogicalPath::root()), cancel)?;
        Ok(candidates.into_iter().map(|candidate| candidate.path).collect())
    }

    /// Returns every file that differs and that policy does not hide, in path order.
    pub(crate) fn changes(&self, rules: &Rules, cancel: &AtomicBool) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let loaded = self.base().load()?;
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        let candidates = self.candidates(rules, &loaded, &Area::Folder(LogicalPath::root()), None, cancel)?;
        Report::new(self, rules, &loaded, &query).drop_same(candidates, cancel)
    }

    /// Returns the area to compare: the whole tree, a folder, or one file. A link on the path is followed, as by any read.
    fn area(&self, rules: &Rules, path: Option<&LogicalPath>, loaded: &BaseFiles) -> Result<Area, WorkspaceError> {
        let Some(path) = path.filter(|path| !path.is_root()) else { return Ok(Area::Folder(LogicalPath::root())) };
        let tree = self.tree();
        let found = match tree.root.open(path, Blocking::Allowed) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let opened = found.as_ref().ok();
        let real = opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path);
        let manifest = &loaded.manifest;
        if opened.is_some_and(|opened| opened.file_type() == FileType::Directory)
            || opened.is_none() && manifest.has_files_under(path.as_str().as_bytes())
        {
            return Ok(Area::Folder(real.clone()));
        }
        tree.judge(rules, Access::Read, path, opened, rules.kind_of_path(real), Blocking::Allowed)?;
        if opened.is_none() && manifest.get(path.as_str().as_bytes()).is_none() {
            return Err(Refusal::not_found(path).into());
        }
        Ok(Area::File(real.clone()))
    }
}

impl DiffCandidate {
    /// Whether policy lets the caller read the file.
    fn is_visible(&self, rules: &Rules) -> bool {
        // The scan has left out ignored files.
        is_readable(rules, &self.path, self.now.as_ref().is_some_and(|now| now.hard_linked))
    }
}
