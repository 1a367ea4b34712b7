//! The hash of the workspace's diff as it will be once a planned change is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use model::{LogicalPath, Rules, Sha256};

use super::report::Report;
use super::scan::{Candidate, Scan, Where};
use super::{DiffQuery, is_told};
use crate::guard::Blocking;
use crate::{Workspace, WorkspaceError};

/// What a planned change finds and leaves at one path.
#[derive(Debug)]
pub struct PlannedFile {
    /// The path.
    pub path: LogicalPath,
    /// The bytes that are there now, where they are known.
    pub before: Option<Vec<u8>>,
    /// The bytes and permission bits that shall be there; `None` where nothing shall be.
    pub after: Option<(Vec<u8>, u32)>,
}

/// The diff as it will be.
#[derive(Debug)]
pub struct PlannedDiff {
    /// Hash of the whole text.
    pub diff_sha256: Sha256,
    /// Every path that will differ from the base; `None` where they are too many.
    pub changed: Option<BTreeSet<LogicalPath>>,
}

impl Workspace {
    /// Hashes the diff that [`diff`](Self::diff) will tell once `overlay` is carried out; `None` where that is not done by
    /// `deadline`.
    ///
    /// Looks at the paths `among` only, where they are given, as if no other could differ; else at the whole tree.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn planned_diff(
        &self,
        rules: &Rules,
        among: Option<&BTreeSet<LogicalPath>>,
        overlay: &[PlannedFile],
        deadline: Instant,
    ) -> Result<Option<PlannedDiff>, WorkspaceError> {
        // Who plans a change is not cancelled.
        let cancel = &AtomicBool::new(false);
        let loaded = self.base().load()?;
        let mut candidates = match among {
            None => Scan::run(self.tree(), &loaded, &Where::Folder(LogicalPath::root()), cancel)?,
            Some(paths) => Scan::run_files(self.tree(), &loaded, paths, cancel)?,
        };
        candidates.retain(|candidate| is_told(rules, candidate));
        let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
        let mut report = Report::new(self, rules, &loaded, &query);
        candidates = report.drop_same(candidates, cancel)?;
        let planned: BTreeMap<_, _> = overlay.iter().map(|one| (one.path.clone(), one)).collect();
        candidates.retain(|candidate| !planned.contains_key(&candidate.path));
        for path in planned.keys() {
            let base = loaded.manifest.get(path.as_str().as_bytes());
            if base.is_none() && self.tree().is_ignored(path, None, Blocking::Allowed)? {
                // The base will have it by then.
                report.late.extend(self.mode_at(path).map(|mode| (path.clone(), mode)));
            }
            let candidate = Candidate { path: path.clone(), base, now: None };
            // Whether git ignores it makes no difference: what a run writes is shown.
            if is_told(rules, &candidate) {
                candidates.push(candidate);
            }
        }
        candidates.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        report.overlay = planned;
        report.deadline = Some(deadline);
        match self.fill(&mut report, &candidates, cancel) {
            Err(WorkspaceError::Cancelled) => return Ok(None),
            filled => filled?,
        }
        let diff = report.finish();
        Ok(Some(PlannedDiff { diff_sha256: diff.diff_sha256, changed: diff.changed }))
    }

    /// The permission bits of the file at `path`, where one is there.
    fn mode_at(&self, path: &LogicalPath) -> Option<u32> {
        let stat = self.tree().root.place(path).ok()?.stat().ok()??;
        Some(stat.st_mode & 0o7777)
    }
}
