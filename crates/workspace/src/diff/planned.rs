//! The diff of the workspace as it will be after a planned change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use model::{LogicalPath, Rules, Sha256};

use super::DiffQuery;
use super::report::Report;
use super::scan::{Area, DiffCandidate, Scan};
use crate::guard::Blocking;
use crate::{Workspace, WorkspaceError};

/// The present and the planned version of one file.
#[derive(Debug)]
pub struct FileVersions {
    /// The path.
    pub path: LogicalPath,
    /// The current bytes, if they are known.
    pub before: Option<Vec<u8>>,
    /// The planned version; `None` if the file will be removed.
    pub after: Option<PlannedVersion>,
}

/// The planned version of a file.
#[derive(Debug)]
pub struct PlannedVersion {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The hash of `bytes`.
    pub sha256: Sha256,
    /// Its permission bits.
    pub mode: u32,
}

/// The diff as it will be.
#[derive(Debug)]
pub struct PlannedDiff {
    /// The hash of the whole text.
    pub diff_sha256: Sha256,
    /// Every path that will differ from the base; `None` if they are too many.
    pub changed: Option<BTreeSet<LogicalPath>>,
}

impl Workspace {
    /// Computes the hash of the diff that [`diff`](Self::diff) will return once the `planned` files are written. `None` if that
    /// is not done by `deadline`.
    ///
    /// Compares only `paths` if they are given, as if no other could differ; else the whole tree.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn planned_diff(
        &self,
        rules: &Rules,
        paths: Option<&BTreeSet<LogicalPath>>,
        planned: &[FileVersions],
        deadline: Instant,
    ) -> Result<Option<PlannedDiff>, WorkspaceError> {
        // A planned change is not cancelled.
        let cancel = &AtomicBool::new(false);
        let loaded = self.base().load()?;
        let mut candidates = match paths {
            None => Scan::run(self.tree(), &loaded, &Area::Folder(LogicalPath::root()), cancel)?,
            Some(paths) => Scan::run_files(self.tree(), &loaded, paths, cancel)?,
        };
        candidates.retain(|candidate| candidate.is_visible(rules));
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        let mut report = Report::new(self, rules, &loaded, &query);
        let planned: BTreeMap<_, _> = planned.iter().map(|file| (file.path.clone(), file)).collect();
        // First, so that files that the plan replaces are not read.
        candidates.retain(|candidate| !planned.contains_key(&candidate.path));
        candidates = report.drop_same(candidates, cancel)?;
        for path in planned.keys() {
            let base = loaded.manifest.get(path.as_str().as_bytes());
            if base.is_none() && self.tree().is_ignored(path, None, Blocking::Allowed)? {
                // The base will contain it by then.
                report.new_in_base.extend(self.mode_at(path).map(|mode| (path.clone(), mode)));
            }
            let candidate = DiffCandidate { path: path.clone(), base, now: None };
            // Even if git ignores it: what a run writes is shown.
            if candidate.is_visible(rules) {
                candidates.push(candidate);
            }
        }
        candidates.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        report.planned = planned;
        report.deadline = Some(deadline);
        match self.fill(&mut report, &candidates, cancel) {
            Err(WorkspaceError::Cancelled) => return Ok(None),
            filled => filled?,
        }
        let diff = report.finish();
        Ok(Some(PlannedDiff { diff_sha256: diff.diff_sha256, changed: diff.changed }))
    }

    /// Returns the permission bits of the file at `path`, if it exists.
    fn mode_at(&self, path: &LogicalPath) -> Option<u32> {
        let stat = self.tree().root.open_parent(path).ok()?.stat().ok()??;
        Some(stat.st_mode & 0o7777)
    }
}
