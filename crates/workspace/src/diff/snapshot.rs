//! The diff of a snapshot against the base.

use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Rules};

use super::compare::{DiffedVersion, compare};
use super::report::Report;
use super::{DiffQuery, WorkspaceDiff, is_in};
use crate::error::check_cancelled;
use crate::opened_file::is_readable;
use crate::snapshot::ContentLocation;
use crate::{Snapshot, StoredContents, Workspace, WorkspaceError};

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
        let area = self.area(rules, query.path.as_ref(), &loaded, Some(snapshot))?;
        let mut report = Report::new(query);
        for path in snapshot.written().filter(|path| is_in(path, &area) && is_readable(rules, path, false)) {
            check_cancelled(cancel)?;
            let base = loaded.manifest.get(path.as_str().as_bytes());
            let now = self.snapshot_version(snapshot, path, contents)?;
            if let Some(change) = compare(rules, &loaded, path, base, now)? {
                report.add(path, &change);
            }
        }
        Ok(report.finish())
    }

    /// Returns the version of the file in `snapshot`; `None` if it has none.
    pub(super) fn snapshot_version(
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
        let version = DiffedVersion { sha256: file.sha256, size, bytes, head: Vec::new(), mode: file.git_mode() };
        Ok(Some(version.shown_at(path)))
    }
}
