//! The diff of a snapshot against the base.

use std::sync::atomic::AtomicBool;

use model::{Access, LINK_MODE, LogicalPath, Rules, is_link_mode, link_stays_inside};

use super::report::{DiffedVersion, Report, diff_versions};
use super::scan::{Area, DiffCandidate};
use super::{DiffQuery, WorkspaceDiff};
use crate::base_files::BaseFiles;
use crate::error::check_cancelled;
use crate::guard::Blocking;
use crate::snapshot::{ContentLocation, not_in_snapshot};
use crate::{EntryState, Snapshot, StoredContents, Workspace, WorkspaceError};

impl Workspace {
    /// Compares a snapshot with the base. Files that policy hides are left out.
    ///
    /// # Errors
    ///
    /// As for [`diff`](Self::diff).
    pub fn diff_snapshot(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        query: &DiffQuery,
        contents: &dyn StoredContents,
        cancel: &AtomicBool,
    ) -> Result<WorkspaceDiff, WorkspaceError> {
        let loaded = self.base().load()?;
        let area = self.area_in_snapshot(rules, snapshot, query.path.as_ref(), &loaded)?;
        let mut candidates = Vec::new();
        for path in snapshot.written().filter(|path| area.contains(path)) {
            check_cancelled(cancel)?;
            let base = loaded.manifest.get(path.as_str().as_bytes());
            let candidate = DiffCandidate { path: path.clone(), base, now: None };
            if candidate.is_visible(rules) {
                candidates.push(candidate);
            }
        }
        let version = |path: &LogicalPath| self.snapshot_version(snapshot, path, contents);
        let mut report = Report::new(self, rules, &loaded, query);
        report.snapshot = Some(&version);
        report.add_all(&candidates, cancel)?;
        Ok(report.finish())
    }

    /// Returns the diff from the file in `snapshot` to what is at `path` now. `bytes` are its bytes, if they are known. The diff
    /// contains no line of either unless `shown`.
    pub(crate) fn drift_diff(
        &self,
        snapshot: &Snapshot,
        path: &LogicalPath,
        (now, bytes): (EntryState, Option<&[u8]>),
        shown: bool,
        contents: &dyn StoredContents,
    ) -> Result<Vec<u8>, WorkspaceError> {
        let mut old = self.snapshot_version(snapshot, path, contents)?;
        let size = bytes.map_or(0, |bytes| bytes.len() as u64);
        let version = |sha256, mode| DiffedVersion { sha256, size, bytes: bytes.map(<[u8]>::to_vec), mode };
        let mut new = match now {
            EntryState::Nothing | EntryState::Folder | EntryState::Other => None,
            EntryState::Link { sha256 } => Some(version(sha256, LINK_MODE)),
            EntryState::File { sha256, executable } => Some(version(sha256, if executable { 0o755 } else { 0o644 })),
        };
        for side in old.iter_mut().chain(new.iter_mut()) {
            let stays = |bytes: &[u8]| link_stays_inside(path.as_str().as_bytes(), bytes);
            if !shown || is_link_mode(side.mode) && !side.bytes.as_deref().is_some_and(stays) {
                side.bytes = None;
            }
        }
        Ok(diff_versions(path, old.as_ref(), new.as_ref()).text)
    }

    fn area_in_snapshot(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        path: Option<&LogicalPath>,
        loaded: &BaseFiles,
    ) -> Result<Area, WorkspaceError> {
        let Some(path) = path.filter(|path| !path.is_root()) else { return Ok(Area::Folder(LogicalPath::root())) };
        let raw = path.as_str().as_bytes();
        if snapshot.has_files_under(path) || loaded.manifest.has_files_under(raw) {
            return Ok(Area::Folder(path.clone()));
        }
        self.tree().judge(rules, Access::Read, path, None, rules.kind_of_path(path), Blocking::Allowed)?;
        if snapshot.get(path).is_none() && loaded.manifest.get(raw).is_none() {
            return Err(not_in_snapshot(path).into());
        }
        Ok(Area::File(path.clone()))
    }

    fn snapshot_version(
        &self,
        snapshot: &Snapshot,
        path: &LogicalPath,
        contents: &dyn StoredContents,
    ) -> Result<Option<DiffedVersion>, WorkspaceError> {
        let Some(file) = snapshot.get(path) else { return Ok(None) };
        let bytes = self.snapshot_content(path, &file, contents)?;
        let size = match (&bytes, file.location) {
            (Some(bytes), _) => bytes.len() as u64,
            (None, ContentLocation::Base { size_bytes }) => size_bytes,
            (None, ContentLocation::Ledger { .. }) => 0,
        };
        // The target of a link to a path outside the tree is a physical path, which is not shown.
        let shown = bytes.filter(|bytes| !file.is_link || link_stays_inside(path.as_str().as_bytes(), bytes));
        Ok(Some(DiffedVersion { sha256: file.sha256, size, bytes: shown, mode: file.git_mode() }))
    }
}

impl Area {
    /// Whether `path` is in the area.
    pub(super) fn contains(&self, path: &LogicalPath) -> bool {
        match self {
            Self::File(file) => file == path,
            Self::Folder(folder) if folder.is_root() => true,
            Self::Folder(folder) => {
                path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }
}
