//! Restoring the files of one run: its base from the backup, its tree from the base and the ledger, and what neither has from the
//! backup again.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use engine::history::snapshot::{self, LedgerContents, VerifiedContents};
use ledger::Ledger;
use model::{LogicalPath, Sha256};
use workspace::{RebuildReport, RunEntry, RunEntryKind, Snapshot, Workspaces};

use super::{Backup, Unrestored, failed, open_object};
use crate::admin::backup::{SavedContent, SavedEntry, SavedRun};
use crate::start_error::StartError;

/// Restores one run.
pub(super) struct FilesRestorer<'a> {
    pub(super) backup: &'a Backup,
    pub(super) workspaces: &'a Arc<Workspaces>,
    pub(super) run: &'a SavedRun,
}

impl FilesRestorer<'_> {
    /// Creates the run's folder with its base.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn write_base(&self) -> io::Result<()> {
        // A run that had no folder is left without one.
        if self.run.entries.is_empty() {
            return Ok(());
        }
        self.workspaces.create_folder(&self.run.run_id)?;
        self.write_entries(|entry| !entry.is_in_tree())
    }

    /// Writes the run's tree. Returns why the run needs repair, if it does.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(super) async fn write_tree(&self, ledger: &Arc<dyn Ledger>) -> Result<Option<Unrestored>, StartError> {
        let mut missing = Vec::new();
        let mut problem = self.run.problem.as_ref().map(|why| format!("not all of it was in the backup: {why}"));
        if !self.run.is_whole_tree {
            match self.rebuild(ledger).await {
                Ok(found) => missing = found,
                Err(error) if is_disk_full(&error) => return Err(failed(&error)),
                // It concerns this run alone.
                Err(error) => problem = Some(format!("its tree could not be rebuilt: {error}")),
            }
        }
        self.write_entries(SavedEntry::is_in_tree).map_err(|error| failed(&error))?;
        let is_lost = problem.is_some() || !missing.is_empty();
        let reason = match problem {
            Some(problem) => problem,
            None if !missing.is_empty() => format!("the content of {} files is missing", missing.len()),
            None if self.run.is_whole_tree => "it needed repair before".to_owned(),
            None => return Ok(None),
        };
        Ok(Some(Unrestored { run_id: self.run.run_id.clone(), reason, missing, is_lost }))
    }

    /// Rebuilds the tree as of the run's newest record. Returns the files that could not be restored.
    async fn rebuild(&self, ledger: &Arc<dyn Ledger>) -> io::Result<Vec<LogicalPath>> {
        let run = &self.run.run_id;
        let base = self.workspaces.base(run)?;
        let expected = snapshot::load(ledger, run, &base, u64::MAX, true).await.map_err(io::Error::other)?;
        let contents = VerifiedContents(LedgerContents::of(Arc::clone(ledger), run.clone()));
        let (workspaces, id, files) = (Arc::clone(self.workspaces), run.clone(), expected.clone());
        let rebuilt = tokio::task::spawn_blocking(move || workspaces.rebuild_tree(&id, &files, &contents)).await;
        let report = rebuilt.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let RebuildReport { wrong, not_kept, lost, .. } = report;
        let mut missing = [wrong, lost].concat();
        let large: HashMap<Sha256, SavedContent> =
            self.run.contents.iter().map(|content| (content.sha256, *content)).collect();
        for path in not_kept {
            if !self.write_large(&expected, &path, &large)? {
                missing.push(path);
            }
        }
        Ok(missing)
    }

    /// Writes a file whose content is in the backup, not in the ledger. Returns whether it is.
    fn write_large(
        &self,
        expected: &Snapshot,
        path: &LogicalPath,
        large: &HashMap<Sha256, SavedContent>,
    ) -> io::Result<bool> {
        let Some(file) = expected.files().get(path) else { return Ok(false) };
        let Some(content) = large.get(&file.sha256) else { return Ok(false) };
        let entry =
            RunEntry { path: Workspaces::path_in_tree(path.as_str()), kind: RunEntryKind::File { mode: file.mode } };
        self.write(&entry, Some(*content)).map(|()| true)
    }

    fn write_entries(&self, is_wanted: impl Fn(&SavedEntry) -> bool) -> io::Result<()> {
        // Links come last, so that no file is written through one.
        let is_link = |entry: &&SavedEntry| matches!(entry, SavedEntry::Link { .. });
        let wanted = || self.run.entries.iter().filter(|entry| is_wanted(entry));
        for saved in wanted().filter(|entry| !is_link(entry)).chain(wanted().filter(is_link)) {
            let (entry, content) = saved.entry();
            self.write(&entry, content)?;
        }
        Ok(())
    }

    /// Writes an entry. What is at its path already stays.
    fn write(&self, entry: &RunEntry, content: Option<SavedContent>) -> io::Result<()> {
        let Some(content) = content else {
            return self.workspaces.write_entry(&self.run.run_id, entry, &mut io::empty()).map(drop);
        };
        let mut object = open_object(self.backup, &content)?;
        let written = self.workspaces.write_entry(&self.run.run_id, entry, &mut object)?;
        match written {
            Some((sha256, size)) if (SavedContent { sha256, size }) != content => {
                Err(io::Error::other(format!("{} was changed", self.backup.object(&content).display())))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a further run would fail as well.
fn is_disk_full(error: &io::Error) -> bool {
    let is_full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let inner = error.get_ref().and_then(|inner| inner.source()).and_then(|source| source.downcast_ref::<io::Error>());
    is_full(error.kind()) || inner.is_some_and(|inner| is_full(inner.kind()))
}
