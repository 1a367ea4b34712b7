//! The diff of the whole tree against its base.

mod after;
mod past;
mod report;
mod scan;
mod stat;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Access, LogicalPath, PathFacts, Refusal, Rules, Sha256};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::base::Loaded;
use crate::git::GitError;
use crate::guard::{Blocking, GuardError};
use crate::{Workspace, WorkspaceError};
pub use after::{PlannedDiff, PlannedFile};
use report::{Out, Report};
pub(crate) use scan::Candidate;
use scan::{Scan, Where};

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

/// The paths of so many changed files are told together at the most, and so many bytes of them.
pub const MAX_CHANGED_PATHS: usize = 10_000;
/// See [`MAX_CHANGED_PATHS`].
pub const MAX_CHANGED_PATHS_BYTES: usize = 4 << 20;

/// How the tree differs from its base.
#[derive(Debug)]
pub struct WorkspaceDiff {
    /// How many files differ.
    pub files_changed: usize,
    /// The first of them, sorted by path: as many as fit an answer.
    pub files: Vec<DiffFile>,
    /// The paths of all; `None` where they are too many.
    pub changed: Option<BTreeSet<LogicalPath>>,
    /// Lines added in all.
    pub insertions: u64,
    /// Lines removed in all.
    pub deletions: u64,
    /// As `git diff --stat` writes it, of [`files`](Self::files).
    pub stat: String,
    /// The text, cut at a line's end.
    pub diff: String,
    /// Whether text or files are missing.
    pub truncated: bool,
    /// Hash of the whole text, not only of what is shown.
    pub diff_sha256: Sha256,
}

impl WorkspaceDiff {
    /// The paths of [`files`](Self::files).
    pub fn paths(&self) -> impl Iterator<Item = LogicalPath> {
        self.files.iter().filter_map(|file| LogicalPath::parse(&file.path).ok())
    }
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
    pub fn diff(&self, rules: &Rules, query: &DiffQuery, cancel: &AtomicBool) -> Result<WorkspaceDiff, WorkspaceError> {
        self.diff_to(rules, query, None, Out::Nowhere, cancel)
    }

    /// As [`diff`](Self::diff) of the whole tree without its text, and tells `each` file, in the order of paths.
    ///
    /// # Errors
    ///
    /// Where the disk fails; `Cancelled`.
    pub fn diff_files(
        &self,
        rules: &Rules,
        each: &mut dyn FnMut(&LogicalPath, &DiffFile),
        cancel: &AtomicBool,
    ) -> Result<(), WorkspaceError> {
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        self.diff_to(rules, &query, None, Out::Each(each), cancel).map(drop)
    }

    /// As [`diff`](Self::diff), with a look at the paths `among` only, as if no other could differ.
    ///
    /// # Errors
    ///
    /// As for [`diff`](Self::diff).
    pub fn diff_paths(
        &self,
        rules: &Rules,
        query: &DiffQuery,
        among: &BTreeSet<LogicalPath>,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        self.diff_to(rules, query, Some(among), Out::Nowhere, cancel)
    }

    /// Writes the whole diff to `out`, which `git apply` takes on what the run started with, but for binary files; flat in
    /// memory. The answer has no text.
    ///
    /// # Errors
    ///
    /// Where the disk or `out` fails; `Cancelled`.
    pub fn write_patch(
        &self,
        rules: &Rules,
        out: &mut dyn Write,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        self.diff_to(rules, &query, None, Out::Text(out), cancel)
    }

    fn diff_to(
        &self,
        rules: &Rules,
        query: &DiffQuery,
        among: Option<&BTreeSet<LogicalPath>>,
        out: Out<'_>,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let loaded = self.base().load()?;
        let place = self.find(rules, query.path.as_ref(), &loaded)?;
        let mut report = Report::new(self, rules, &loaded, query);
        // Taken apart, so that it need not live longer than the report.
        report.out = match out {
            Out::Nowhere => Out::Nowhere,
            Out::Text(out) => Out::Text(out),
            Out::Each(each) => Out::Each(each),
        };
        let candidates = self.candidates(rules, &loaded, &place, among, cancel)?;
        let candidates = report.drop_same(candidates, cancel)?;
        self.fill(&mut report, &candidates, cancel)?;
        Ok(report.finish())
    }

    /// Every file that may differ and that policy lets the caller know of, in the order of paths.
    fn candidates(
        &self,
        rules: &Rules,
        loaded: &Loaded,
        place: &Where,
        among: Option<&BTreeSet<LogicalPath>>,
        cancel: &AtomicBool,
    ) -> Result<Vec<Candidate>, WorkspaceError> {
        let mut candidates = match among {
            None => Scan::run(self.tree(), loaded, place, cancel)?,
            Some(among) => Scan::run_files(self.tree(), loaded, among.iter().filter(|path| place.holds(path)), cancel)?,
        };
        candidates.retain(|candidate| is_told(rules, candidate));
        candidates.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(candidates)
    }

    /// Every path, hidden ones too, whose file or link is not surely the base's; ignored ones left out.
    pub(crate) fn touched_paths(&self, cancel: &AtomicBool) -> Result<Vec<LogicalPath>, WorkspaceError> {
        let loaded = self.base().load()?;
        let candidates = Scan::run(self.tree(), &loaded, &Where::Folder(LogicalPath::root()), cancel)?;
        Ok(candidates.into_iter().map(|candidate| candidate.path).collect())
    }

    /// Every file that differs and that policy lets the caller know of, in the order of paths.
    pub(crate) fn changes(&self, rules: &Rules, cancel: &AtomicBool) -> Result<Vec<Candidate>, WorkspaceError> {
        let loaded = self.base().load()?;
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        let candidates = self.candidates(rules, &loaded, &Where::Folder(LogicalPath::root()), None, cancel)?;
        Report::new(self, rules, &loaded, &query).drop_same(candidates, cancel)
    }

    /// Adds every candidate to `report`, with git at hand where it is needed.
    fn fill(
        &self,
        report: &mut Report<'_>,
        candidates: &[Candidate],
        cancel: &AtomicBool,
    ) -> Result<(), WorkspaceError> {
        if !candidates.iter().any(|candidate| report.asks_git(candidate)) {
            return report.add_all(candidates, None, cancel);
        }
        let mut error = None;
        let said = self.base().blobs().with(cancel, |blobs| {
            report.add_all(candidates, Some(blobs), cancel).map_err(|found| {
                error = Some(found);
                io::Error::from(io::ErrorKind::Interrupted)
            })
        });
        match (error, said) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(GitError::Cancelled)) => Err(WorkspaceError::Cancelled),
            (None, Err(error)) => Err(WorkspaceError::Io(io::Error::other(error))),
        }
    }

    /// Where to look: the whole tree, a folder, or one file. A link on the way is followed, as by any read.
    fn find(&self, rules: &Rules, path: Option<&LogicalPath>, loaded: &Loaded) -> Result<Where, WorkspaceError> {
        let Some(path) = path.filter(|path| !path.is_root()) else { return Ok(Where::Folder(LogicalPath::root())) };
        let tree = self.tree();
        let found = match tree.root.open(path, Blocking::Allowed) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let opened = found.as_ref().ok();
        let real = opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path);
        let manifest = &loaded.manifest;
        if opened.is_some_and(|opened| opened.file_type() == FileType::Directory)
            || opened.is_none() && manifest.has_files_beneath(path.as_str().as_bytes())
        {
            return Ok(Where::Folder(real.clone()));
        }
        tree.judge(rules, Access::Read, path, opened, rules.kind_of_path(real), Blocking::Allowed)?;
        if opened.is_none() && manifest.get(path.as_str().as_bytes()).is_none() {
            return Err(Refusal::not_found(path).into());
        }
        Ok(Where::File(real.clone()))
    }
}

/// Whether policy lets the caller know of the file.
fn is_told(rules: &Rules, candidate: &Candidate) -> bool {
    let facts = PathFacts {
        path: &candidate.path,
        real_path: None,
        kind: rules.kind_of_path(&candidate.path),
        // What is ignored was left out by the scan.
        ignored: false,
        hard_linked: candidate.now.as_ref().is_some_and(|now| now.hard_linked),
    };
    model::judge_path(rules, Access::Read, &facts).is_ok()
}

fn check(cancel: &AtomicBool) -> Result<(), WorkspaceError> {
    if cancel.load(Ordering::Relaxed) { Err(WorkspaceError::Cancelled) } else { Ok(()) }
}
