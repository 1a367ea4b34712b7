//! Restoring the files of one run: its base from the backup, its tree from the base and the ledger, and what neither has from the
//! backup again.

#![expect(clippy::disallowed_types, reason = "a backup is outside of the data folder")]

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use engine::audit::snapshot;
use engine::audit::snapshot::{LedgerContents, VerifiedContents};
use ledger::Ledger;
use model::{LogicalPath, Sha256};
use workspace::{BaseMaker, LargeContent, RunEntry, RunEntryKind, StoredContents, Workspaces};

use super::{Backup, Unrestored, failed};
use crate::backup::{SavedContent, SavedEntry, SavedRun, open_object};
use crate::offline_run::database;
use config::StartError;

/// Restores one run.
pub(super) struct FilesRestorer<'a> {
    pub(super) backup: &'a Backup,
    pub(super) workspaces: &'a Arc<Workspaces>,
    pub(super) run: &'a SavedRun,
}

impl FilesRestorer<'_> {
    /// Creates the run's folder, and its base if it is not among those that are `known` by their lists of files.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn write_base(&self, known: &mut HashMap<SavedContent, String>) -> io::Result<()> {
        // A run that had no folder is left without one.
        if self.run.entries.is_empty() {
            return Ok(());
        }
        let base = self.make_base(known)?;
        self.workspaces.create_folder(&self.run.run_id, &base)?;
        self.write_entries(|path| !is_in_tree(path))
    }

    /// Makes the run's base, unless it is among those that are `known` by their lists of files. Returns its name, which no base has if
    /// the backup lacks it.
    fn make_base(&self, known: &mut HashMap<SavedContent, String>) -> io::Result<String> {
        let parts = || {
            self.run.entries.iter().filter_map(|entry| match entry {
                SavedEntry::Base { name, content } => Some((name, *content)),
                _ => None,
            })
        };
        let list = parts().find(|(part, _)| **part == *BaseMaker::LIST).map(|(_, content)| content);
        let Some(list) = list else { return Ok("missing".to_owned()) };
        if let Some(base) = known.get(&list) {
            return Ok(base.clone());
        }
        let mut maker = self.workspaces.base_maker()?;
        for (part, content) in parts() {
            maker.add_part(part, &mut open_object(&self.backup.root, &content)?)?;
        }
        let base = maker.finish(None)?;
        known.insert(list, base.clone());
        Ok(base)
    }

    /// Writes the run's tree. Returns why the run needs repair, if it does.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(super) async fn write_tree(&self, ledger: &Arc<dyn Ledger>) -> Result<Option<Unrestored>, StartError> {
        let mut missing = Vec::new();
        let mut problem = self.run.problem.as_ref().map(|why| format!("not all of it was in the backup: {why}"));
        let stored = ledger.run(&self.run.run_id).await.map_err(database)?;
        let rows_end = stored.map_or(0, |stored| stored.run.head_seq);
        if rows_end < self.run.head_seq {
            let files = self.run.head_seq;
            problem = Some(format!("its rows end with record {rows_end}, and its files are those of record {files}"));
        }
        if !self.run.is_whole_tree {
            match self.rebuild(ledger).await {
                Ok(found) => missing = found,
                Err(error) if is_disk_full(&error) => return Err(failed(&error)),
                // It concerns this run alone.
                Err(error) => problem = Some(format!("its tree could not be rebuilt: {error}")),
            }
        }
        self.write_entries(is_in_tree).map_err(|error| failed(&error))?;
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
        let expected = snapshot::load(ledger, run, &base, u64::MAX).await.map_err(io::Error::other)?;
        let ledger = VerifiedContents(LedgerContents::of(Arc::clone(ledger), run.clone()));
        let large = self.run.entries.iter().filter_map(|entry| match entry {
            SavedEntry::Content { content } => Some((content.sha256, *content)),
            _ => None,
        });
        let contents = BackupContents { ledger, root: self.backup.root.clone(), large: large.collect() };
        let (workspaces, id) = (Arc::clone(self.workspaces), run.clone());
        let rebuilt = tokio::task::spawn_blocking(move || workspaces.rebuild_tree(&id, &expected, &contents)).await;
        let report = rebuilt.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok([report.wrong, report.lost, report.not_kept].concat())
    }

    /// Writes the entries whose paths are wanted.
    fn write_entries(&self, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<()> {
        let wanted = self.run.entries.iter().filter_map(SavedEntry::entry).filter(|(entry, _)| is_wanted(&entry.path));
        // Links come last, so that no file is written through one.
        let (links, others): (Vec<_>, Vec<_>) =
            wanted.partition(|(entry, _)| matches!(entry.kind, RunEntryKind::Link { .. }));
        others.iter().chain(&links).try_for_each(|(entry, content)| self.write(entry, *content))
    }

    /// Writes an entry. What is at its path already stays.
    fn write(&self, entry: &RunEntry, content: Option<SavedContent>) -> io::Result<()> {
        let Some(content) = content else {
            return self.workspaces.write_entry(&self.run.run_id, entry, &mut io::empty()).map(drop);
        };
        let mut object = open_object(&self.backup.root, &content)?;
        let written = self.workspaces.write_entry(&self.run.run_id, entry, &mut object)?;
        match written {
            Some((sha256, size)) if (SavedContent { sha256, size }) != content => {
                Err(io::Error::other(format!("{} was changed", self.backup.object(&content).display())))
            }
            _ => Ok(()),
        }
    }
}

/// The contents in the ledger, and those that were too large for it.
struct BackupContents {
    ledger: VerifiedContents,
    /// The folder of backups.
    root: PathBuf,
    large: HashMap<Sha256, SavedContent>,
}

impl StoredContents for BackupContents {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.ledger.content(seq, sha256)
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let Some(content) = self.large.get(sha256) else { return Ok(None) };
        Ok(Some((content.size, Box::new(open_object(&self.root, content)?))))
    }
}

/// Whether an entry of a run's folder is in its tree, or is the root of it.
fn is_in_tree(path: &[u8]) -> bool {
    path == b"repo" || path.starts_with(b"repo/")
}

/// Whether a further run would fail as well.
fn is_disk_full(error: &io::Error) -> bool {
    let is_full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let inner = error.get_ref().and_then(|inner| inner.source()).and_then(|source| source.downcast_ref::<io::Error>());
    is_full(error.kind()) || inner.is_some_and(|inner| is_full(inner.kind()))
}
