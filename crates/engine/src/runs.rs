//! Runs: creation, queries, closing, deletion.

mod archive;
mod create;
mod entry_times;
mod exports;
mod fork;
mod import;
mod listing;
mod own_view;
mod process;
mod run_tokens;
mod update;

use async_recursion::async_recursion as boxed;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ledger::{Appended, Entry, Epoch, LedgerError};
use model::{Code, Disk, ImportReport, Profiles, Refusal, Run, RunId, RunState, Source};
use parking_lot::RwLock;
use workspace::{ImportObserver as _, ImportedRun};

use crate::admission::operators::OperatorIdentity;
use crate::call_error::refusals::{run_not_found, run_not_open, run_without_files};
use crate::caller::Caller;
use crate::clock::now;
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::opening::base_objects::ImportedBase;
use crate::run::import_registry::CancelImportOnDrop;
use crate::run::lifecycle;
use crate::run::open_run::OpenRun;
use crate::run::quota::{RunDeletion, RunDisk};
use crate::runs::import::Origin;
use crate::{CallError, reconcile};

pub use crate::opening::kept_artifacts::Keep;
pub use crate::opening::object_claims::LedgerClaims;
pub use crate::opening::{FolderHistory, compare_folder, contents_of_bases, is_base_referenced, recorded_base};
pub use crate::run::lifecycle::RunArchive;
pub use archive::ClosedRun;
pub use create::{CreateRunRequest, CreatedRun, CreationAnswer};
pub use exports::{BundleCommit, Export, ExportFormat, ExportedState, MAX_AUTHOR, MAX_MESSAGE_BYTES};
pub use listing::RunQuery;
pub use own_view::{OwnRun, RunUsage};
pub use update::UpdateRunRequest;

/// The maximum number of forks that a run lists.
const MAX_FORKS: u32 = 1000;
/// The maximum time that a deletion waits for calls in progress.
const DELETE_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs, from their creation to their end, and the upkeep of those that this process has.
pub struct Runs {
    engine: Arc<Engine>,
    /// The policy profiles that runs may name.
    profiles: RwLock<Profiles>,
}

impl Runs {
    pub(crate) fn new(engine: Arc<Engine>, profiles: Profiles) -> Self {
        Self { engine, profiles: RwLock::new(profiles) }
    }

    /// Returns a run, with the progress of its import.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_NEEDS_REPAIR` if the run's row in the database is damaged.
    #[boxed]
    pub async fn run(&self, run: &RunId) -> Result<Run, CallError> {
        self.engine.run(run).await
    }

    /// As [`run`](Self::run), with its forks.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    #[boxed]
    pub async fn run_with_forks(&self, run: &RunId) -> Result<Run, CallError> {
        let mut run = self.engine.run(run).await?;
        let mut forks = self.engine.ledger.forks(&run.run_id, MAX_FORKS + 1).await?;
        run.more_forks = forks.len() > MAX_FORKS as usize;
        forks.truncate(MAX_FORKS as usize);
        run.forks = Some(forks);
        Ok(run)
    }

    /// Closes a run. After the answer no mutation is recorded or applied and no call is approved, not even one that is in
    /// progress. Closing a closed run succeeds. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run's source is being imported or the run is deleted; `UNAVAILABLE` if a recorded
    /// change cannot be applied: the run is closed nevertheless.
    pub fn close_run<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Run, CallError>> {
        Box::pin(async move {
            let (runs, run, caller) = (Arc::clone(self), run.clone(), caller.clone());
            self.engine.detached(async move { runs.close(&run, &caller).await }).await
        })
    }

    async fn close(&self, run: &RunId, caller: &Caller) -> Result<Run, CallError> {
        let (known, stored) = self.engine.stored_run(run).await?;
        match known.state {
            _ if !stored => Err(still_importing().into()),
            // An earlier close may have been interrupted after it had set the state.
            RunState::Closed => self.finish_closing(run).await,
            RunState::Deleted => Err(run_not_open(RunState::Deleted).into()),
            RunState::Preparing | RunState::Open | RunState::AwaitingApproval => {
                self.set_closed(run, lifecycle::closed(run, caller, &now())).await?;
                self.engine.imports.cancel(run);
                self.finish_closing(run).await
            }
        }
    }

    /// Applies every change that was recorded before the close, and ends the pending approvals. The ledger records no more
    /// mutations, so the tree does not change afterwards.
    async fn finish_closing(&self, run: &RunId) -> Result<Run, CallError> {
        if let Some(open_run) = self.engine.runs.get(run) {
            reconcile::apply_all(&self.engine, &open_run).await?;
        }
        self.engine.end_approvals(run).await?;
        self.engine.run(run).await
    }

    async fn set_closed(&self, run: &RunId, entry: Entry) -> Result<(), CallError> {
        // If the run is closed or deleted meanwhile, nothing is appended.
        self.append_in_state(self.engine.runs.get(run).as_deref(), RunState::Closed, entry).await?;
        // It may have been opened meanwhile.
        if let Some(open_run) = self.engine.runs.get(run) {
            open_run.set_state(RunState::Closed);
        }
        tracing::info!(run.id = %run, "run closed");
        self.engine.end_approvals(run).await
    }

    /// Appends a record that ends a run. The open run has `state` meanwhile, so that a call that starts is refused, not recorded
    /// after it. If nothing is recorded, or that is not known, the open run gets the ledger's state again.
    async fn append_in_state(
        &self,
        open_run: Option<&OpenRun>,
        state: RunState,
        entry: Entry,
    ) -> Result<bool, CallError> {
        let Some(open_run) = open_run else { return self.engine.append_change(entry).await };
        let entry = Entry { epoch: open_run.epoch, ..entry };
        let before = open_run.state();
        open_run.set_state(state);
        let appended = self.engine.append_change(entry).await;
        if !matches!(appended, Ok(true))
            && let Err(error) = self.engine.refresh_state(open_run).await
        {
            // In every state, the ledger records no change of a run that has ended.
            open_run.set_state(before);
            tracing::warn!(run.id = %open_run.run_id, error = &error as &dyn std::error::Error, "the state of a run is uncertain");
        }
        appended
    }

    /// Deletes a run's files and the contents that the ledger stores of them. The audit stays. Deleting a deleted run succeeds.
    /// Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run's source is being imported.
    pub fn delete_run<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Run, CallError>> {
        Box::pin(async move {
            let (runs, run, entry) = (Arc::clone(self), run.clone(), lifecycle::deleted(run, caller, &now()));
            let work = async move {
                Box::pin(runs.remove_run(&run, RunState::Deleted, entry)).await?;
                tracing::info!(run.id = %run, "run deleted");
                runs.engine.run(&run).await
            };
            self.engine.detached(work).await
        })
    }

    /// Records by `entry` that a run is deleted or archived, then deletes its files and what the ledger need not keep of it. The
    /// run has `state` while it is recorded. Returns false, and deletes nothing, if the run is not in the state for the entry and
    /// not deleted either.
    async fn remove_run(&self, run: &RunId, state: RunState, entry: Entry) -> Result<bool, CallError> {
        let deletion = self.engine.node.begin_deletion(run);
        let (known, stored) = self.engine.stored_run(run).await?;
        if !stored || self.engine.imports.get(run).is_some() {
            return Err(still_importing().into());
        }
        // Held until the files are removed, so that no other call opens the run meanwhile.
        let open_run = if self.engine.is_elsewhere(run).await? { None } else { self.engine.open(run).await.ok() };
        if let Some(deletion) = deletion.as_ref().filter(|_| known.state != RunState::Deleted) {
            deletion.begin_release();
        }
        failpoint::hit("removal.recording");
        let is_recorded = self.append_in_state(open_run.as_deref(), state, entry).await?;
        failpoint::hit("removal.recorded");
        let is_deleted = is_recorded
            || self.engine.ledger.run(run).await?.is_some_and(|stored| stored.run.state == RunState::Deleted);
        if !is_deleted {
            return Ok(false);
        }
        if let Some(open_run) = open_run {
            self.engine.retire(open_run, DELETE_TIMEOUT).await;
        }
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        self.engine.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await?;
        self.release_removed(run, deletion).await?;
        self.engine.end_approvals(run).await?;
        // The state is durable: if this is interrupted, the next start continues it.
        self.engine.ledger.purge_content(run).await?;
        self.engine.refresh_history().await?;
        Ok(true)
    }

    /// Releases what the quota of the node counts of a run, whose files are removed.
    pub(crate) async fn release_removed(&self, run: &RunId, deletion: Option<RunDeletion>) -> Result<(), CallError> {
        if let Some(deletion) = deletion
            && let Some(stored) = self.engine.ledger.run(run).await?
        {
            deletion.release(stored.run.disk.tree());
        }
        Ok(())
    }

    /// Imports the archive that a run with the source `archive` waits for.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `ALREADY_EXISTS` if the run has files or an import is in progress; `RUN_CLOSED`; the refusals of the
    /// archive, which leave the run `preparing`.
    pub async fn import_archive(
        self: &Arc<Self>,
        run: &RunId,
        caller: &Caller,
        archive: impl Read + Send + 'static,
        sender: Arc<OperatorIdentity>,
    ) -> Result<Run, CallError> {
        let (known, stored) = self.engine.stored_run(run).await?;
        match known.state {
            RunState::Preparing if stored && known.source == Source::Archive {} => {}
            RunState::Preparing => return Err(still_importing().into()),
            RunState::Open | RunState::AwaitingApproval => return Err(has_files().into()),
            state if known.base_commit.is_none() => return Err(run_without_files(state).into()),
            state @ (RunState::Closed | RunState::Deleted) => return Err(run_not_open(state).into()),
        }
        let disk = RunDisk::new(&self.engine.node, &known.policy.quota, Disk::default()).reservation();
        let importing = self.engine.imports.begin(known, disk).ok_or_else(has_files)?;
        let _cancel = CancelImportOnDrop(Arc::clone(&importing.import));
        let (runs, id, caller) = (Arc::clone(self), run.clone(), caller.clone());
        let patience = Some(self.engine.limits.request_timeout);
        let work = async move {
            runs.remove_uncertain_files(&id).await?;
            let imported = runs.import(&id, &importing, Origin::Archive(Box::new(archive)), None, patience).await;
            // The run was closed meanwhile.
            let is_closed = importing.import.cancelled() && !runs.engine.shutdown.is_cancelled();
            let (imported, base) =
                imported.map_err(|error| if is_closed { run_without_files(RunState::Closed).into() } else { error })?;
            if let Err(refusal) = runs.engine.tokens.operators.check(&sender) {
                runs.remove_files(&id).await;
                return Err(refusal.into());
            }
            match runs.open_imported(&id, &caller, &imported, &base).await {
                Ok(true) => {}
                Ok(false) => {
                    runs.remove_files(&id).await;
                    return Err(run_without_files(RunState::Closed).into());
                }
                // The run may be open, so its files are kept. The next archive or the next start knows whether it is.
                Err(error @ LedgerError::InDoubt(_)) => return Err(error.into()),
                Err(error) => {
                    runs.remove_files(&id).await;
                    return Err(error.into());
                }
            }
            importing.import.settle(Disk { bytes: imported.bytes, files: imported.files });
            drop(importing);
            runs.engine.run(&id).await
        };
        self.engine.detached(work).await
    }

    /// Opens an imported run in the ledger, and marks its files as those of a stored run; false if the run is not preparing any more.
    /// If the outcome is uncertain, tries once more, which waits for the first attempt.
    async fn open_imported(
        &self,
        run: &RunId,
        caller: &Caller,
        imported: &ImportedRun,
        base: &ImportedBase,
    ) -> ledger::Result<bool> {
        let mut entry = lifecycle::imported(run, caller, imported, &base.recorded, report_of(imported));
        entry.objects.clone_from(&base.objects);
        entry.epoch = self.engine.take_run(run).await?;
        let epoch = entry.epoch;
        let is_open = self.append_import(run, imported, entry).await?;
        if is_open {
            self.confirm(run, epoch).await;
        }
        Ok(is_open)
    }

    async fn append_import(&self, run: &RunId, imported: &ImportedRun, entry: Entry) -> ledger::Result<bool> {
        match self.engine.record(vec![entry.clone()]).await {
            Ok(_) => Ok(true),
            Err(NotRecorded::Failed(LedgerError::InDoubt(_))) => {
                match self.engine.record(vec![entry]).await {
                    Ok(_) => return Ok(true),
                    Err(NotRecorded::Failed(error)) => return Err(create::uncertain(error)),
                    Err(NotRecorded::Rejected(_)) => {}
                }
                // The first attempt may have succeeded.
                let stored = self.engine.ledger.run(run).await.map_err(create::uncertain)?;
                Ok(stored.is_some_and(|stored| stored.run.base_commit.as_deref() == Some(&*imported.base_commit)))
            }
            Err(NotRecorded::Rejected(Appended::PreconditionFailed(failed))) => {
                Err(LedgerError::CreationRejected(failed))
            }
            Err(NotRecorded::Rejected(_)) => Ok(false),
            Err(NotRecorded::Failed(error)) => Err(error),
        }
    }

    /// Removes the files of an earlier archive for which it was uncertain whether the run was opened, if it was not.
    async fn remove_uncertain_files(&self, run: &RunId) -> Result<(), CallError> {
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        if !self.engine.blocking(move || Ok(workspaces.is_unfinished(&id)?)).await? {
            return Ok(());
        }
        let settled = self.engine.ledger.settled_run(run).await?.ok_or_else(run_not_found)?;
        if settled.stored.run.base_commit.is_some() {
            self.confirm(run, None).await;
            return Err(has_files().into());
        }
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        self.engine.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await
    }

    /// Marks a run's files as belonging to a run that the ledger has. If several nodes share the ledger, `epoch` is that of the commit;
    /// without it, the files are fetched when the run is opened.
    async fn confirm(&self, run: &RunId, epoch: Option<Epoch>) {
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        let is_node = self.engine.ledger.node().is_some();
        let confirm = move || match epoch {
            Some(epoch) => Ok(workspaces.confirm_owned(&id, epoch.number())?),
            None if is_node => Ok(()),
            None => Ok(workspaces.confirm(&id)?),
        };
        if let Err(error) = self.engine.blocking(confirm).await {
            // The next start marks it.
            tracing::warn!(run.id = %run, error = &error as &dyn std::error::Error, "an import could not be marked as finished");
        }
    }

    /// Removes the imported files of a run that the ledger could not store.
    async fn remove_files(&self, run: &RunId) {
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        if let Err(error) = self.engine.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await {
            // The next start removes them.
            tracing::error!(run.id = %run, error = &error as &dyn std::error::Error, "imported files could not be removed");
        }
    }
}

fn report_of(imported: &ImportedRun) -> ImportReport {
    ImportReport {
        files: imported.files,
        bytes: imported.bytes,
        left_out: imported.left_out.clone(),
        left_out_more: imported.left_out_more,
        progress: "done".to_owned(),
        resumed: false,
        error: None,
    }
}

fn still_importing() -> Refusal {
    Refusal::new(
        Code::RunClosed,
        "the run's source is being imported",
        "Wait until the run's state is `open`, or close the run if it was created with `Prefer: respond-async`.",
    )
}

fn has_files() -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "the run has files already, or they are being imported",
        "Get the run's state; create another run for another archive.",
    )
}
