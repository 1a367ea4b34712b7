//! Copying the files of one run while the service changes them.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use engine::audit::{content_history, snapshot};
use ledger::{CopiedRun, Ledger, LedgerError, RecordFilter};
use model::{ARCHIVE_TOOL, LogicalPath, RunId, RunState, Sha256, StepBytes};
use serde::Deserialize;
use serde_json::Value;
use workspace::{BasePart, ContentLocation, RunEntry, RunEntryKind, RunPart, Snapshot, Workspaces};

use crate::backup::folder::{BackupCopyError, BackupFolder, failed};
use crate::backup::manifest::{ArchivedRun, RunEnd};
use crate::backup::saved_run::{SavedEntry, SavedRun};
use crate::offline_run::database;
use config::StartError;

/// Records that one query returns at most.
const PAGE: u32 = 500;
const NEEDS_REPAIR: &str = "the run needs repair: its whole tree was copied as it is";

/// Copies the files of one run.
pub(crate) struct RunCopier<'a> {
    pub(crate) folder: &'a mut BackupFolder,
    pub(crate) ledger: &'a Arc<dyn Ledger>,
    pub(crate) workspaces: &'a Arc<Workspaces>,
}

/// The copy of one run.
pub(crate) struct RunCopy {
    pub(crate) saved: SavedRun,
    /// How it has ended meanwhile. Nothing of its files was copied then.
    pub(crate) ended: Option<RunEnd>,
    /// Whether a missing content was replaced after the rows were copied, so that newer rows have it.
    pub(crate) is_outdated: bool,
}

/// What the record of an archive says of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveInput {
    uri: String,
    sha256: Sha256,
    head_seq: u64,
    head_hash: Sha256,
}

/// Why the copy of a run ends.
enum CopyStop {
    /// The run's data cannot be read.
    Source(String),
    /// The backup cannot go on.
    Backup(StartError),
}

impl From<BackupCopyError> for CopyStop {
    fn from(error: BackupCopyError) -> Self {
        match error {
            BackupCopyError::Source(error) => Self::Source(error.to_string()),
            BackupCopyError::Target(error) => Self::Backup(failed(&error)),
        }
    }
}

impl From<io::Error> for CopyStop {
    fn from(error: io::Error) -> Self {
        Self::Source(error.to_string())
    }
}

impl From<LedgerError> for CopyStop {
    fn from(error: LedgerError) -> Self {
        Self::Backup(database(error))
    }
}

impl RunCopier<'_> {
    /// Copies what restores the run as of its record `head_seq`, except for what the database has.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or the backup not be written.
    pub(crate) async fn copy(&mut self, copied: &CopiedRun) -> Result<RunCopy, StartError> {
        let mut saved = SavedRun::new(copied.run.clone(), copied.head_seq);
        let done = self.copy_into(&mut saved).await;
        let stored = self.ledger.run(&copied.run).await.map_err(database)?;
        if stored.is_none_or(|stored| stored.run.state == RunState::Deleted) {
            let saved = SavedRun::new(saved.run_id, saved.head_seq);
            let ended = self.archived(&copied.run).await?.map_or(RunEnd::Deleted, RunEnd::Archived);
            return Ok(RunCopy { saved, ended: Some(ended), is_outdated: false });
        }
        match done {
            Ok(()) => {}
            Err(CopyStop::Source(why)) => saved.problem = Some(why),
            Err(CopyStop::Backup(error)) => return Err(error),
        }
        let is_outdated = match self.is_outdated(&saved).await {
            Ok(is_outdated) => is_outdated,
            // The records cannot be read, and could not be read another time.
            Err(CopyStop::Source(_)) => false,
            Err(CopyStop::Backup(error)) => return Err(error),
        };
        Ok(RunCopy { saved, ended: None, is_outdated })
    }

    /// Returns what the record of the run's archive says, if the run has one.
    async fn archived(&self, run: &RunId) -> Result<Option<ArchivedRun>, StartError> {
        let tool = Some(ARCHIVE_TOOL.to_owned());
        let filter = RecordFilter { run: Some(run.clone()), tool, ..RecordFilter::default() };
        let page = self.ledger.records(&filter, None, 1.into()).await.map_err(database)?;
        let record = page.items.first().and_then(|stored| content_history::parse(&stored.text).ok());
        let Some(record) = record else { return Ok(None) };
        let input = record.input.and_then(|input| serde_json::from_value(Value::Object(input)).ok());
        Ok(input.map(|ArchiveInput { uri, sha256, head_seq, head_hash }| ArchivedRun {
            run_id: run.clone(),
            archived_at: record.timestamp,
            archive_uri: uri,
            sha256,
            head_seq,
            head_hash,
        }))
    }

    /// Returns whether a record after the copied ones has written a file whose content is missing.
    async fn is_outdated(&self, saved: &SavedRun) -> Result<bool, CopyStop> {
        if saved.missing.is_empty() {
            return Ok(false);
        }
        let written = self.written_since(&saved.run_id, saved.head_seq).await?;
        Ok(saved.missing.iter().any(|path| written.contains(path.as_str())))
    }

    async fn copy_into(&mut self, saved: &mut SavedRun) -> Result<(), CopyStop> {
        let run = saved.run_id.clone();
        let expected = match self.expected(&run, saved.head_seq).await {
            Ok(expected) => expected,
            Err(why) => {
                saved.problem = Some(why);
                None
            }
        };
        saved.is_whole_tree = expected.is_none();
        let tree = match &expected {
            Some(expected) => {
                self.copy_large(expected, saved).await?;
                self.copy_others(expected, saved).await
            }
            None => self.copy_part(&run, RunPart::Tree, &mut saved.entries, &|_| true),
        };
        let base = self.copy_base(&run, &mut saved.entries);
        let artifacts = self.copy_part(&run, RunPart::Artifacts, &mut saved.entries, &|_| true);
        tree.and(base).and(artifacts)
    }

    /// Returns the run's files at the record `seq`. `None` if the tree is not what the ledger says.
    async fn expected(&self, run: &RunId, seq: u64) -> Result<Option<Snapshot>, String> {
        let stored = self.ledger.run(run).await.map_err(|error| error.to_string())?;
        if stored.is_some_and(|stored| stored.needs_repair) {
            return Ok(None);
        }
        let base = self.workspaces.base(run).map_err(|error| error.to_string())?;
        let loaded = snapshot::load(self.ledger, run, &base, seq).await;
        loaded.map(Some).map_err(|error| error.to_string())
    }

    /// Copies the contents of `expected` that were too large for the ledger. They are in the tree, or staged beside it until they
    /// are moved there.
    async fn copy_large(&mut self, expected: &Snapshot, saved: &mut SavedRun) -> Result<(), CopyStop> {
        let run = &saved.run_id;
        let stored: HashSet<_> = self.ledger.stored_contents(run).await?.into_iter().collect();
        for (logical, file) in expected.changed() {
            let ContentLocation::Ledger { seq, .. } = file.location else { continue };
            if stored.contains(&(seq, file.sha256)) {
                continue;
            }
            let mut paths = self.staged(run, &file.sha256).await?;
            paths.push(Workspaces::path_in_tree(logical.as_str()));
            let mut found = None;
            for path in paths {
                // It was moved or replaced meanwhile.
                let Ok(opened) = self.workspaces.open_file(run, &path) else { continue };
                let content = self.folder.add(opened)?;
                if content.sha256 == file.sha256 {
                    found = Some(content);
                    break;
                }
            }
            match found {
                Some(content) => saved.entries.push(SavedEntry::Content { content }),
                None => saved.missing.push(logical.clone()),
            }
        }
        Ok(())
    }

    /// Returns where the content with this hash is staged.
    async fn staged(&self, run: &RunId, sha256: &Sha256) -> Result<Vec<Vec<u8>>, CopyStop> {
        let journal = self.ledger.pending_journal(Some(run)).await?;
        let contents = journal.iter().flat_map(|entry| &entry.steps).filter_map(|step| step.after.as_ref());
        let names = contents.filter(|content| content.sha256 == *sha256).filter_map(|content| match &content.bytes {
            StepBytes::Staged(name) => Some(Workspaces::path_of_staged(name)),
            StepBytes::Inline(_) => None,
        });
        Ok(names.collect())
    }

    /// Copies the entries of the tree that neither the base nor the ledger knows: files that git ignores, names that no tool can
    /// use, empty folders.
    async fn copy_others(&mut self, expected: &Snapshot, saved: &mut SavedRun) -> Result<(), CopyStop> {
        let run = saved.run_id.clone();
        let files = expected.files();
        let folders: HashSet<&str> = files.keys().flat_map(|path| folders_of(path.as_str())).collect();
        let is_other = |entry: &RunEntry| {
            let Some(path) = entry.path.strip_prefix(b"repo/") else { return false };
            let Ok(path) = std::str::from_utf8(path) else { return true };
            match entry.kind {
                RunEntryKind::Folder => !folders.contains(path),
                RunEntryKind::File { .. } | RunEntryKind::Link { .. } => LogicalPath::parse(path)
                    .map_or(true, |path| !files.contains_key(&path) && !expected.has_written(&path)),
            }
        };
        let mut others = Vec::new();
        let done = self.copy_part(&run, RunPart::Tree, &mut others, &is_other);
        // After the walk: what calls have written since the copy of the database is not in it.
        let written = self.written_since(&run, saved.head_seq).await?;
        others.retain(|saved| {
            let path = saved.entry().and_then(|(entry, _)| {
                let path = entry.path.strip_prefix(b"repo/")?;
                String::from_utf8(path.to_vec()).ok()
            });
            !path.is_some_and(|path| written.contains(&path))
        });
        saved.entries.append(&mut others);
        done
    }

    /// Returns the paths that records after `seq` have written, and the folders above them.
    async fn written_since(&self, run: &RunId, seq: u64) -> Result<HashSet<String>, CopyStop> {
        let (mut written, mut since) = (HashSet::new(), seq);
        loop {
            let page = self.ledger.changes(run, since, PAGE.into()).await?;
            if page.is_empty() {
                return Ok(written);
            }
            for stored in page {
                let record =
                    content_history::parse(&stored.text).map_err(|error| CopyStop::Source(error.to_string()))?;
                since = record.seq;
                for path in &record.paths_written {
                    written.extend(folders_of(path.as_str()).map(str::to_owned));
                    written.insert(path.to_string());
                }
            }
        }
    }

    /// Copies what makes the run's base again. Runs share it, and so do their copies.
    fn copy_base(&mut self, run: &RunId, saved: &mut Vec<SavedEntry>) -> Result<(), CopyStop> {
        let base = self.workspaces.base_name(run)?;
        if !self.folder.bases.contains_key(&base) {
            let mut parts = Vec::new();
            for BasePart { name, file, .. } in self.workspaces.base_parts(run)? {
                parts.push((name, self.folder.add(file)?));
            }
            self.folder.bases.insert(base.clone(), parts);
        }
        let parts = self.folder.bases.get(&base).into_iter().flatten();
        saved.extend(parts.map(|(name, content)| SavedEntry::Base { name: name.clone(), content: *content }));
        Ok(())
    }

    fn copy_part(
        &mut self,
        run: &RunId,
        part: RunPart,
        saved: &mut Vec<SavedEntry>,
        is_wanted: &dyn Fn(&RunEntry) -> bool,
    ) -> Result<(), CopyStop> {
        let mut entries = Vec::new();
        let visited = self.workspaces.visit_entries(run, part, &mut |entry| {
            if is_wanted(&entry) {
                entries.push(entry);
            }
            Ok(())
        });
        for entry in entries {
            let content = match entry.kind {
                RunEntryKind::File { .. } => match self.workspaces.open_file(run, &entry.path) {
                    Ok(file) => Some(self.folder.add(file)?),
                    // It was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error.into()),
                },
                RunEntryKind::Link { .. } | RunEntryKind::Folder => None,
            };
            saved.extend(SavedEntry::new(&entry, content));
        }
        Ok(visited?)
    }
}

impl SavedRun {
    /// Returns what the operator has to know of the run, if anything: a message, and whether something is lost.
    pub(crate) fn remark(&self) -> Option<(String, bool)> {
        if let Some(problem) = &self.problem {
            return Some((format!("not all of it could be read: {problem}"), true));
        }
        if !self.missing.is_empty() {
            return Some((format!("the content of {} files was found nowhere", self.missing.len()), true));
        }
        self.is_whole_tree.then(|| (NEEDS_REPAIR.to_owned(), false))
    }
}

/// Returns the folders above `path`, without the root.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
