//! Forks: runs that start with the files of another run as they were at one of its records.
//!
//! A fork has the base of that run. What that run had changed up to the record becomes the content of the fork's first record, so that
//! the fork needs nothing of the other run from then on.

use ledger::{Artifact, Entry, EntryObject, ObjectHolder, StoredRun};
use model::{
    Disk, ForkedFrom, ImportReport, RecordFile, Refusal, Rules, Run, RunId, RunState, Sha256, Source, Step, StepBytes,
    StepContent,
};
use workspace::{ChainPoint, ImportObserver as _, Inherited, InheritedContent, InheritedFile};

use crate::CallError;
use crate::admission::pools::permit_within;
use crate::call_error::refusals::{run_not_found, run_without_files};
use crate::clock::new_artifact_id;
use crate::history::content_history;
use crate::history::snapshot::MAX_RESTORABLE_BYTES;
use crate::opening::base_objects::ImportedBase;
use crate::run::import_registry::ImportGuard;
use crate::runs::{Runs, still_importing};

/// The record of a run that a fork starts with.
pub(super) struct ForkPoint {
    parent: StoredRun,
    point: ChainPoint,
}

/// The files of a new run, in their place.
pub(super) struct MadeFiles {
    pub(super) report: ImportReport,
    pub(super) disk: Disk,
    /// What the run itself has of it.
    pub(super) own: Disk,
    pub(super) base: ImportedBase,
    /// What a fork takes over.
    pub(super) inherited: Inherited,
}

impl ForkPoint {
    /// The run that is forked.
    pub(super) fn run(&self) -> &Run {
        &self.parent.run
    }

    /// The physical paths of its mounts, by their names.
    pub(super) fn mount_paths(&self) -> &[(String, String)] {
        &self.parent.mount_paths
    }

    /// What the fork says of where it comes from.
    pub(super) fn parent(&self) -> ForkedFrom {
        let (run_id, source) = (self.run().run_id.clone(), self.run().first_source().clone());
        ForkedFrom { run_id, seq: self.point.seq, hash: self.point.hash, source, merged_seq: None }
    }
}

impl Runs {
    /// Returns the record that a fork starts with; `None` if `source` is no run.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run has no files, or no longer; `INVALID_REQUEST` if it has no such record.
    pub(super) async fn fork_point(&self, source: &Source) -> Result<Option<ForkPoint>, CallError> {
        let Source::Run { run_id, at_seq } = source else { return Ok(None) };
        self.point_of(run_id, *at_seq).await.map(Some).map_err(|error| error.about(run_id))
    }

    async fn point_of(&self, run_id: &RunId, at_seq: Option<u64>) -> Result<ForkPoint, CallError> {
        if !self.engine.stored_run(run_id).await?.1 {
            return Err(still_importing().into());
        }
        // Waits until uncertain commits are decided.
        let parent = self.engine.ledger.settled_run(run_id).await?.ok_or_else(run_not_found)?.stored;
        let state = parent.run.state;
        if matches!(state, RunState::Preparing | RunState::Deleted) || parent.run.base_commit.is_none() {
            return Err(run_without_files(state).into());
        }
        let newest = parent.run.head_seq;
        let seq = at_seq.unwrap_or(newest);
        if seq > newest {
            let message = format!("`source.atSeq` is {seq}; the newest record is {newest}");
            let refusal = Refusal::invalid(message, "Give the seq of a record of that run, or omit it for the newest.");
            return Err(refusal
                .with_details(|details| (details.limit, details.actual) = (Some(newest), Some(seq)))
                .into());
        }
        let hash = if seq == newest {
            parent.run.head_hash
        } else {
            match self.engine.ledger.record(run_id, seq).await? {
                Some(stored) => content_history::parse(&stored.text)?.hash.unwrap_or(Sha256::ZERO),
                None => Sha256::ZERO,
            }
        };
        Ok(ForkPoint { parent, point: ChainPoint { seq, hash } })
    }

    /// Makes the files of the fork `run`, whose policy is `rules`. No files remain if it fails.
    ///
    /// # Errors
    ///
    /// `ALREADY_EXISTS`; `QUOTA_EXCEEDED`; `WRITE_CONFLICT` if a content of that record is stored nowhere any more; `UNAVAILABLE` if the
    /// object store is.
    pub(super) async fn make_fork(
        &self,
        run: &RunId,
        fork: &ForkPoint,
        importing: &ImportGuard,
        rules: Rules,
    ) -> Result<MadeFiles, CallError> {
        let _permit = permit_within(&self.engine.pools.import, "imports", self.engine.limits.request_timeout).await?;
        let of_parent = fork.run().disk.tree();
        importing.import.check_quota(of_parent.files, of_parent.bytes)?;
        let made = self.engine.make_fork(fork.run(), fork.point, run, rules).await?;
        let (made, inherited, recorded) = made;
        let id = run.clone();
        let restored = self.engine.blocking(move || Ok(made.place(&id)?)).await?;
        let disk = Disk { bytes: restored.bytes, files: restored.files };
        let own = Disk { bytes: restored.own_bytes, files: restored.own_files };
        let finished = async {
            importing.import.check_quota(disk.files, disk.bytes)?;
            let base = self.engine.refer_to_base(recorded).await?;
            let objects = self.refer_to_contents(&inherited).await?;
            Ok::<_, CallError>(ImportedBase { objects: base.objects.into_iter().chain(objects).collect(), ..base })
        };
        match finished.await {
            Ok(base) => {
                let report = ImportReport {
                    files: disk.files,
                    bytes: disk.bytes,
                    progress: "done".to_owned(),
                    ..ImportReport::default()
                };
                Ok(MadeFiles { report, disk, own, base, inherited })
            }
            Err(error) => {
                self.remove_files(run).await;
                Err(error)
            }
        }
    }

    /// Makes the fork refer to the large contents that it takes over, if there is an object store.
    async fn refer_to_contents(&self, inherited: &Inherited) -> Result<Vec<EntryObject>, CallError> {
        let Some(objects) = &self.engine.objects else { return Ok(Vec::new()) };
        let mut referred = Vec::new();
        for file in &inherited.files {
            let Some(InheritedContent { sha256, size_bytes, bytes: None, .. }) = &file.after else { continue };
            let Some(content) = objects.content(*sha256, u64::MAX).await? else { continue };
            let reserved = objects.put_content(*sha256, *size_bytes, Box::new(content)).await?;
            let holder = if *size_bytes <= MAX_RESTORABLE_BYTES {
                ObjectHolder::Run
            } else {
                ObjectHolder::Path(file.path.clone())
            };
            let (name, reservation) = (reserved.reference, reserved.reservation);
            referred.push(EntryObject { name, reservation, size_bytes: *size_bytes, holder });
        }
        Ok(referred)
    }

    /// Removes the changes of a fork's first record from the journal: its tree has them since before the commit.
    pub(super) async fn prune_inherited(&self, run: &RunId) {
        if let Err(error) = self.engine.ledger.prune(&[(run.clone(), 1)]).await {
            // The first call of the run compares the files with them.
            tracing::warn!(run.id = %run, %error, "the journal of a fork was not emptied");
        }
    }
}

impl MadeFiles {
    /// Adds what a fork takes over, and the objects to which the run refers, to its first record.
    pub(super) fn add_to(self, entry: &mut Entry) {
        let Self { base, inherited: Inherited { files, diff, .. }, .. } = self;
        entry.objects.extend(base.objects);
        if files.is_empty() {
            return;
        }
        let artifact_id = new_artifact_id();
        let draft = &mut entry.draft;
        draft.mutates = true;
        draft.artifact_uris = vec![format!("artifact://{}/{artifact_id}", draft.run_id)];
        draft.diff_sha256 = Some(Sha256::of(&diff));
        draft.paths_written = files.iter().map(|file| file.path.clone()).collect();
        draft.files = files.iter().map(record_file).collect();
        entry.artifact = Some(Artifact { artifact_id, diff });
        // Removals come first, as in every journal. What the ledger does not store is in the tree alone, or in the object store.
        let (removed, written): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.after.is_none());
        entry.steps = removed.into_iter().chain(written).filter_map(step).collect();
    }
}

fn record_file(file: &InheritedFile) -> RecordFile {
    let after = file.after.as_ref().map(|after| (after.sha256, after.mode));
    RecordFile::written(file.path.clone(), file.kind, file.before, after)
}

fn step(InheritedFile { path, before, after, .. }: InheritedFile) -> Option<Step> {
    let after = match after {
        None => None,
        Some(InheritedContent { sha256, mode, bytes, .. }) => {
            Some(StepContent { sha256, mode, bytes: StepBytes::Inline(bytes?) })
        }
    };
    Some(Step { path, before: before.map(|(sha256, _)| sha256), after })
}
