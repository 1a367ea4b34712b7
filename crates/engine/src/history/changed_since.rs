//! What a run has changed since the record that a change set is based on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Code, LogicalPath, Refusal, RunState, Sha256};

use crate::CallError;
use crate::call_error::refusals::{run_not_found, run_without_files};
use crate::engine::Engine;
use crate::history::content_history::verified;
use crate::history::snapshot::large_content;
use crate::run::changes::Changes;
use crate::run::known_versions::FIRST_SEQ_OF_FORK;
use crate::run::known_versions::WrittenFiles;
use crate::run::open_run::OpenRun;
use crate::tool::changed_since::{ChangedSince, FileSince, MergedFork};
use crate::tool::earlier_calls::StoredContent;

/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Adds to `since` the changes of the files `named` since its record. The first record after it that has
    /// changed a file names the version that the file had at it. Of a file with a base, the first record after the one that made it counts.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the run has no such record; if the ledger or the disk fails.
    pub(crate) async fn load_changed_since(
        &self,
        run: &Arc<OpenRun>,
        named: &[LogicalPath],
        since: &mut ChangedSince,
    ) -> Result<(), CallError> {
        if let Some(fork) = since.fork.clone() {
            // Boxed, so that the future of any other change set is smaller.
            return Box::pin(self.load_changed_since_fork(run, named, since, &fork)).await;
        }
        let named: BTreeSet<_> = named.iter().collect();
        let newest = self.ledger.run(&run.run_id).await?.map_or(0, |stored| stored.run.head_seq);
        if since.seq > newest {
            let message = format!("`basedOnSeq` is {}; the run's newest record is {newest}", since.seq);
            let hint = "Give the Workspaced-Seq of the archive or layer that the command had.";
            let actual = since.seq;
            let refusal = Refusal::invalid(message, hint);
            return Err(refusal
                .with_details(|details| (details.limit, details.actual) = (Some(newest), Some(actual)))
                .into());
        }
        let mut files: BTreeMap<LogicalPath, (FileSince, Option<Sha256>)> = BTreeMap::new();
        let mut changes = Changes::after(self.ledger.as_ref(), &run.run_id, since.seq);
        while let Some(record) = changes.next::<WrittenFiles>().await? {
            // A dry run has changed nothing.
            if record.paths_written.is_empty() {
                continue;
            }
            for file in record.files.into_iter().filter(|file| named.contains(&file.path)) {
                let made_base = since.bases.get(&file.path) == Some(&file.new_sha256);
                let made_base = made_base.then(|| file.path.clone());
                let changed = FileSince { before: file.old_sha256, last_seq: record.seq, base: None };
                let (changed, newest) = files.entry(file.path).or_insert((changed, None));
                (changed.last_seq, *newest) = (record.seq, file.new_sha256);
                if let Some(path) = made_base.filter(|_| changed.before != file.new_sha256) {
                    files.remove(&path);
                }
            }
        }
        let mut held_bytes = 0;
        for (path, (changed, newest)) in &mut files {
            let Some(before) = changed.before.filter(|before| since.with_contents && *newest != Some(*before)) else {
                continue;
            };
            // Together they are bounded as what a call may hold.
            let base = if held_bytes > run.rules.policy().max_call_bytes() {
                StoredContent::TooLarge
            } else {
                self.stored_content(run, path, before, NEWEST).await?
            };
            if let StoredContent::Bytes(bytes) = &base {
                held_bytes += bytes.len() as u64;
            }
            changed.base = Some(base);
        }
        since.files = files.into_iter().map(|(path, (changed, _))| (path, changed)).collect();
        Ok(())
    }

    /// Adds to `since` those of the files `named` that differ from the state of `fork` that both runs have in common.
    async fn load_changed_since_fork(
        &self,
        run: &Arc<OpenRun>,
        named: &[LogicalPath],
        since: &mut ChangedSince,
        fork: &MergedFork,
    ) -> Result<(), CallError> {
        self.check_merge(fork).await?;
        let paths: BTreeSet<_> = named.iter().collect();
        let mut written: BTreeMap<LogicalPath, (Option<Sha256>, u64)> = BTreeMap::new();
        let mut inherited: BTreeMap<LogicalPath, Option<Sha256>> = BTreeMap::new();
        let mut changes = Changes::after(self.ledger.as_ref(), &fork.run_id, 0);
        while let Some(record) = changes.next::<WrittenFiles>().await?.filter(|record| record.seq <= fork.base_seq) {
            if !record.paths_written.is_empty() {
                let files = record.files.into_iter().filter(|file| paths.contains(&file.path));
                written.extend(files.map(|file| (file.path, (file.new_sha256, record.seq))));
            }
            if record.seq == FIRST_SEQ_OF_FORK {
                inherited = written.iter().map(|(path, (sha256, _))| (path.clone(), *sha256)).collect();
            }
        }
        let mut newest: BTreeMap<LogicalPath, u64> = BTreeMap::new();
        let mut changes = Changes::after(self.ledger.as_ref(), &run.run_id, since.seq);
        while let Some(record) = changes.next::<WrittenFiles>().await? {
            let files = record.files.into_iter().filter(|file| paths.contains(&file.path));
            newest.extend(files.map(|file| (file.path, record.seq)));
        }
        let mut held_bytes = 0;
        for path in named {
            let (open_run, at) = (Arc::clone(run), path.clone());
            let versions = self.blocking(move || {
                let base = open_run.workspace.base();
                Ok((open_run.known.file(base, &at)?.map(|file| file.sha256), base.file(&at)?.map(|file| file.sha256)))
            });
            let (present, of_base) = versions.await?;
            let in_fork = written.get(path).copied();
            let before = in_fork.map_or(of_base, |(sha256, _)| sha256);
            let last_seq = newest.get(path).copied();
            let at_fork = inherited.get(path).copied().unwrap_or(of_base);
            // An earlier merge has left out what the fork changed; the run has the file as it was when the fork was made.
            let is_left = last_seq.is_none() && present == at_fork;
            if present == before || is_left {
                continue;
            }
            let content = match before.filter(|_| since.with_contents) {
                None => None,
                Some(_) if held_bytes > run.rules.policy().max_call_bytes() => Some(StoredContent::TooLarge),
                Some(sha256) => Some(self.content_in_fork(run, path, sha256, in_fork.map(|(_, seq)| seq), fork).await?),
            };
            if let Some(StoredContent::Bytes(bytes)) = &content {
                held_bytes += bytes.len() as u64;
            }
            let last_seq = last_seq.unwrap_or(since.seq);
            since.files.insert(path.clone(), FileSince { before, last_seq, base: content });
        }
        Ok(())
    }

    /// Checks that nothing of the fork has been merged since the change set was made, as while it waited for approval.
    async fn check_merge(&self, fork: &MergedFork) -> Result<(), CallError> {
        let id = &fork.run_id;
        let run = self.ledger.settled_run(id).await?.ok_or_else(run_not_found)?.stored.run;
        if run.state == RunState::Deleted {
            return Err(CallError::from(run_without_files(run.state)).about(id));
        }
        let merged = run.parent.and_then(|parent| parent.merged_seq).unwrap_or(FIRST_SEQ_OF_FORK);
        if merged != fork.base_seq {
            let message = format!("`{id}` was merged up to its record {merged} while this merge was waiting");
            return Err(Refusal::new(Code::WriteConflict, message, "Nothing was merged. Merge the fork again.").into());
        }
        Ok(())
    }

    /// Returns the content that the record `seq` of a fork has left at `path`, or else the base, which both runs have.
    async fn content_in_fork(
        &self,
        run: &Arc<OpenRun>,
        path: &LogicalPath,
        sha256: Sha256,
        seq: Option<u64>,
        fork: &MergedFork,
    ) -> Result<StoredContent, CallError> {
        let Some(seq) = seq else { return self.stored_content(run, path, sha256, NEWEST).await };
        match self.ledger.content(&fork.run_id, seq, &sha256).await? {
            Some(bytes) => verified(bytes, &fork.run_id, seq, &sha256)
                .map(StoredContent::Bytes)
                .map_err(|damaged| CallError::Internal(Box::new(damaged))),
            None => Ok(match large_content(self.objects.as_ref(), sha256).await? {
                Some(bytes) => StoredContent::Bytes(bytes),
                None => StoredContent::TooLarge,
            }),
        }
    }
}
