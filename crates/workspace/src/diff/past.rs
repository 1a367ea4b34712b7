//! The diff from the base to the files as they were at a record.

use std::sync::atomic::AtomicBool;

use model::{Access, LogicalPath, Rules};

use super::report::{Report, Version, diff_versions};
use super::scan::{Candidate, Where};
use super::{DiffQuery, WorkspaceDiff, check, is_told};
use crate::base::Loaded;
use crate::guard::Blocking;
use crate::import::stays_inside;
use crate::past::{ContentLocation, was_not_there};
use crate::{ContentStore, EntryState, Snapshot, Workspace, WorkspaceError};

impl Workspace {
    /// Compares the files as they were with the base; none that policy hides is shown.
    ///
    /// # Errors
    ///
    /// As for [`diff`](Self::diff).
    pub fn diff_snapshot(
        &self,
        rules: &Rules,
        past: &Snapshot,
        query: &DiffQuery,
        contents: &dyn ContentStore,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let loaded = self.base().load()?;
        let place = self.find_in_snapshot(rules, past, query.path.as_ref(), &loaded)?;
        let mut candidates = Vec::new();
        for path in past.written().iter().filter(|path| place.holds(path)) {
            check(cancel)?;
            let base = loaded.manifest.get(path.as_str().as_bytes());
            let candidate = Candidate { path: path.clone(), base, now: None };
            if is_told(rules, &candidate) {
                candidates.push(candidate);
            }
        }
        let then = |path: &LogicalPath| self.snapshot_version(past, path, contents, cancel);
        let mut report = Report::new(self, rules, &loaded, query);
        report.past = Some(&then);
        self.fill(&mut report, &candidates, cancel)?;
        Ok(report.finish())
    }

    /// The diff from what the ledger says of `path` to what stands there now, with these bytes where they are known; not
    /// a line of either where it is not `shown`.
    pub(crate) fn difference_diff(
        &self,
        past: &Snapshot,
        path: &LogicalPath,
        (now, bytes): (EntryState, Option<&[u8]>),
        shown: bool,
        contents: &dyn ContentStore,
    ) -> Result<Vec<u8>, WorkspaceError> {
        let mut old = self.snapshot_version(past, path, contents, &AtomicBool::new(false))?;
        let size = bytes.map_or(0, |bytes| bytes.len() as u64);
        let version = |sha256, is_link, mode| Version { sha256, size, bytes: bytes.map(<[u8]>::to_vec), is_link, mode };
        let mut new = match now {
            EntryState::Nothing | EntryState::Folder | EntryState::Other => None,
            EntryState::Link { sha256 } => Some(version(sha256, true, 0o644)),
            EntryState::File { sha256, executable } => {
                Some(version(sha256, false, if executable { 0o755 } else { 0o644 }))
            }
        };
        for side in old.iter_mut().chain(new.iter_mut()) {
            let stays = |bytes: &[u8]| stays_inside(path.as_str().as_bytes(), bytes);
            if !shown || side.is_link && !side.bytes.as_deref().is_some_and(stays) {
                side.bytes = None;
            }
        }
        Ok(diff_versions(path, old.as_ref(), new.as_ref()).text)
    }

    fn find_in_snapshot(
        &self,
        rules: &Rules,
        past: &Snapshot,
        path: Option<&LogicalPath>,
        loaded: &Loaded,
    ) -> Result<Where, WorkspaceError> {
        let Some(path) = path.filter(|path| !path.is_root()) else { return Ok(Where::Folder(LogicalPath::root())) };
        let raw = path.as_str().as_bytes();
        if past.has_beneath(path) || loaded.manifest.has_files_beneath(raw) {
            return Ok(Where::Folder(path.clone()));
        }
        self.tree().judge(rules, Access::Read, path, None, rules.kind_of_path(path), Blocking::Allowed)?;
        if !past.files().contains_key(path) && loaded.manifest.get(raw).is_none() {
            return Err(was_not_there(path).into());
        }
        Ok(Where::File(path.clone()))
    }

    fn snapshot_version(
        &self,
        past: &Snapshot,
        path: &LogicalPath,
        contents: &dyn ContentStore,
        cancel: &AtomicBool,
    ) -> Result<Option<Version>, WorkspaceError> {
        let Some(file) = past.files().get(path) else { return Ok(None) };
        let bytes = self.snapshot_bytes(path, file, contents, cancel)?;
        let size = match (&bytes, file.location) {
            (Some(bytes), _) => bytes.len() as u64,
            (None, ContentLocation::Base { size_bytes }) => size_bytes,
            (None, ContentLocation::Ledger { .. }) => 0,
        };
        // Where a link leads outside is a place on the machine, which nobody is told.
        let shown = bytes.filter(|bytes| !file.is_link || stays_inside(path.as_str().as_bytes(), bytes));
        Ok(Some(Version { sha256: file.sha256, size, bytes: shown, is_link: file.is_link, mode: file.mode }))
    }
}

impl Where {
    /// Whether the path lies there.
    pub(super) fn holds(&self, path: &LogicalPath) -> bool {
        match self {
            Self::File(file) => file == path,
            Self::Folder(folder) if folder.is_root() => true,
            Self::Folder(folder) => {
                path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }
}
