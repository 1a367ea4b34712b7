//! Runs: made, told, closed, deleted.

pub mod accounting;
pub mod changed_paths;
mod create;
pub mod exports;
pub mod import_registry;
pub mod in_flight_calls;
mod open;
pub mod open_run;
pub mod open_runs;
pub mod path_locks;
pub mod quota;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ledger::LedgerError;
use model::{Code, Disk, ImportReport, Refusal, Rules, Run, RunId, RunState, Source};
use workspace::{ImportError, ImportObserver as _, ImportSource, ImportedRun};

use crate::admission::bulkhead::no_permit;
use crate::call_error::refusals::run_not_found;
use crate::clock::now;
use crate::engine::Engine;
use crate::page::{Cursor, List, Page};
use crate::runs::import_registry::{CancelOnDrop, ImportGuard};
use crate::runs::open::unreadable;
use crate::runs::open_run::has_expired;
use crate::runs::quota::RunDisk;
use crate::{CallError, reconcile};

pub use create::{CreateRunRequest, CreatedRun};

/// How long a deletion waits for calls under way.
const DELETE_PATIENCE: Duration = Duration::from_mins(1);

impl Engine {
    /// One run, with the progress of its import.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_NEEDS_REPAIR` where the database's row of the run is damaged.
    pub async fn run(&self, run: &RunId) -> Result<Run, CallError> {
        Ok(self.stored_run(run).await?.0)
    }

    /// One run, and whether the ledger has it yet.
    async fn stored_run(&self, run: &RunId) -> Result<(Run, bool), CallError> {
        let importing = self.imports.get(run);
        match (self.ledger.run(run).await.map_err(|error| unreadable(run, error))?, importing) {
            (Some(stored), importing) => {
                let mut known = self.close_if_expired(stored.run).await?;
                if let (RunState::Preparing, Some(importing)) = (known.state, importing) {
                    known.import = importing.import;
                }
                Ok((known, true))
            }
            (None, Some(importing)) => Ok((importing, false)),
            // The import may have ended between the two looks.
            (None, None) => Err(run_not_found().into()),
        }
    }

    /// Runs in order of creation.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn runs(
        &self,
        state: Option<RunState>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Run>, CallError> {
        let importing = match state {
            None | Some(RunState::Preparing) => self.imports.all(),
            Some(RunState::Open | RunState::AwaitingApproval | RunState::Closed | RunState::Deleted) => Vec::new(),
        };
        let found = self.ledger.runs(state, after.map(Cursor::position), limit.into()).await?;
        let mut page = Page::of(found, List::Runs);
        for run in &mut page.items {
            if has_expired(run.state, run.expires_at.as_deref()) {
                run.state = RunState::Closed;
            }
        }
        if page.next_cursor.is_none() {
            // The newest of all: the ledger has them when they have come in.
            let known: Vec<_> = page.items.iter().map(|run| run.run_id.clone()).collect();
            let more = importing.into_iter().filter(|run| !known.contains(&run.run_id));
            page.items.extend(more.filter(|run| run.source != Source::Archive {}));
        }
        Ok(page)
    }

    /// Closes a run: from the answer on no mutation is recorded or applied and no approval made, also not for a call under
    /// way. Closing twice is no error.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` for a run whose source is coming in, or that was deleted; `UNAVAILABLE` where the disk
    /// does not take a recorded change: the run is closed all the same.
    pub async fn close_run(&self, run: &RunId) -> Result<Run, CallError> {
        let (known, stored) = self.stored_run(run).await?;
        match known.state {
            _ if !stored => Err(still_importing().into()),
            // The first close may have been cut short after the state.
            RunState::Closed => self.finish_closing(run).await,
            RunState::Deleted => Err(deleted().into()),
            RunState::Preparing | RunState::Open | RunState::AwaitingApproval => {
                self.set_closed(run, &now()).await?;
                self.finish_closing(run).await
            }
        }
    }

    /// Waits until everything that was recorded before the close is in the tree and decided. The ledger records nothing
    /// more, so that nothing comes into the tree afterwards.
    async fn finish_closing(&self, run: &RunId) -> Result<Run, CallError> {
        if let Some(open_run) = self.runs.get(run) {
            reconcile::apply_all(self, &open_run).await?;
        }
        self.end_approvals(run).await?;
        self.run(run).await
    }

    async fn set_closed(&self, run: &RunId, at: &str) -> Result<(), CallError> {
        // First here, then in the ledger: a call that begins meanwhile is refused rather than recorded behind the end.
        if let Some(open_run) = self.runs.get(run) {
            open_run.set_state(RunState::Closed);
        }
        self.ledger.set_run_state(run, RunState::Closed, Some(at)).await?;
        if let Some(open_run) = self.runs.get(run) {
            open_run.set_state(RunState::Closed);
        }
        tracing::info!(run.id = %run, "run closed");
        self.end_approvals(run).await
    }

    /// Closes the run in the ledger if its time is over.
    async fn close_if_expired(&self, run: Run) -> Result<Run, CallError> {
        match &run.expires_at {
            Some(expires_at) if has_expired(run.state, Some(expires_at)) => {
                self.set_closed(&run.run_id, expires_at).await?;
                Ok(Run { state: RunState::Closed, closed_at: Some(expires_at.clone()), ..run })
            }
            _ => Ok(run),
        }
    }

    /// Removes a run's files, and what its calls left in them; its audit stays. Deleting twice is no error.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` for a run whose source is coming in.
    pub async fn delete_run(&self, run: &RunId) -> Result<Run, CallError> {
        let deleting = self.node.begin_deletion(run);
        let (known, stored) = self.stored_run(run).await?;
        if !stored || self.imports.get(run).is_some() {
            return Err(still_importing().into());
        }
        // Held from here on, so that nobody opens a second one while the files go.
        let open_run = self.open(run).await.ok();
        if let Some(open_run) = &open_run {
            open_run.set_state(RunState::Deleted);
        }
        self.ledger.set_run_state(run, RunState::Deleted, Some(&now())).await?;
        if let Some(open_run) = open_run {
            self.retire(open_run, DELETE_PATIENCE).await;
        }
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await?;
        // Given back once, by whoever was the first to delete it.
        if let Some(deleting) = deleting.filter(|_| known.state != RunState::Deleted)
            && let Some(stored) = self.ledger.run(run).await?
        {
            deleting.gone(stored.run.disk);
        }
        self.end_approvals(run).await?;
        // The state is durable: should this be interrupted, the next start goes on with it.
        self.ledger.purge_content(run).await?;
        tracing::info!(run.id = %run, "run deleted");
        self.run(run).await
    }

    /// Takes the archive that a run is to be made from.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `ALREADY_EXISTS` where the run has its files; `RUN_CLOSED`; whatever the archive is refused for,
    /// which leaves the run `preparing`.
    pub async fn import_archive(&self, run: &RunId, archive: impl Read + Send + 'static) -> Result<Run, CallError> {
        let (known, stored) = self.stored_run(run).await?;
        match known.state {
            RunState::Preparing if stored && known.source == Source::Archive {} => {}
            RunState::Preparing => return Err(still_importing().into()),
            RunState::Open | RunState::AwaitingApproval => return Err(has_files().into()),
            RunState::Closed => return Err(closed().into()),
            RunState::Deleted => return Err(deleted().into()),
        }
        let disk = RunDisk::new(&self.node, &known.policy.quota, Disk::default()).reservation();
        let importing = self.imports.begin(known, disk).ok_or_else(has_files)?;
        let _cancel = CancelOnDrop(Arc::clone(&importing.import));
        let (engine, id) = (self.clone(), run.clone());
        let work = async move {
            engine.remove_doubtful(&id).await?;
            let imported = engine.import(&id, &importing, Origin::Archive(Box::new(archive))).await?;
            match engine.open_imported(&id, &imported).await {
                Ok(true) => {}
                Ok(false) => {
                    engine.remove_files(&id).await;
                    return Err(closed().into());
                }
                // Files of a run that may be open are left: the next archive, or the next start, knows whether it is.
                Err(error @ LedgerError::InDoubt(_)) => return Err(error.into()),
                Err(error) => {
                    engine.remove_files(&id).await;
                    return Err(error.into());
                }
            }
            engine.confirm(&id).await;
            importing.import.settle(Disk { bytes: imported.bytes, files: imported.files });
            drop(importing);
            engine.run(&id).await
        };
        self.detached(work).await
    }

    /// Brings a run's files in, when there is a place for the work; it waits for one as long as for an answer. Nothing is left where it fails.
    async fn import(&self, run: &RunId, importing: &ImportGuard, origin: Origin) -> Result<ImportedRun, CallError> {
        let pools = &self.permits;
        let pool = match origin {
            // As much work as a small change.
            Origin::Empty => &pools.write,
            // Its sender may be slow, for whom no other run is to wait.
            Origin::Archive(_) => &pools.upload,
            Origin::GitRemote { .. } | Origin::GitLocal { .. } | Origin::Directory(_) => &pools.import,
        };
        // Held by this future alone: one that is dropped gives its place back, and its thread sees that it is cancelled.
        let patience = self.limits.request_timeout;
        let permit = tokio::time::timeout(patience, pool.acquire()).await;
        let permit = permit.map_err(|_| no_permit("the import", patience))?;
        let _permit = permit.map_err(|error| CallError::Internal(Box::new(error)))?;
        let (workspaces, import, run) = (Arc::clone(&self.workspaces), Arc::clone(&importing.import), run.clone());
        let mut origin = origin;
        self.blocking(move || {
            if import.cancelled() {
                return Err(ImportError::Cancelled.into());
            }
            let rules = Rules::compile(import.policy().clone())?;
            Ok(workspaces.import(&run, origin.source(), &rules, &*import)?)
        })
        .await
    }

    /// Ends a run's preparation, false where it had ended already; where the outcome of that is in doubt, tries once more, which
    /// has to wait for the first attempt.
    async fn open_imported(&self, run: &RunId, imported: &ImportedRun) -> ledger::Result<bool> {
        let report = report_of(imported);
        match self.ledger.open_run(run, &imported.base_commit, &report).await {
            Err(LedgerError::InDoubt(_)) => {
                let again = self.ledger.open_run(run, &imported.base_commit, &report).await;
                if again.map_err(create::still_in_doubt)? {
                    return Ok(true);
                }
                // The first attempt may have done it.
                let stored = self.ledger.run(run).await.map_err(create::still_in_doubt)?;
                Ok(stored.is_some_and(|stored| stored.run.base_commit.as_deref() == Some(&*imported.base_commit)))
            }
            done => done,
        }
    }

    /// Removes the files that an earlier archive has left whose run could not be opened, once it is known that it is not.
    async fn remove_doubtful(&self, run: &RunId) -> Result<(), CallError> {
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        if !self.blocking(move || Ok(workspaces.is_unfinished(&id)?)).await? {
            return Ok(());
        }
        let settled = self.ledger.settled_run(run).await?.ok_or_else(run_not_found)?;
        if settled.stored.run.base_commit.is_some() {
            self.confirm(run).await;
            return Err(has_files().into());
        }
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await
    }

    /// Notes at a run's files that the ledger has the run.
    async fn confirm(&self, run: &RunId) {
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        if let Err(error) = self.blocking(move || workspaces.confirm(&id).map_err(CallError::from)).await {
            // The next start does it.
            tracing::warn!(run.id = %run, error = &error as &dyn std::error::Error, "an import is not marked as finished");
        }
    }

    /// Removes the files of a run that the ledger could not be told of.
    async fn remove_files(&self, run: &RunId) {
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        if let Err(error) = self.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await {
            // The next start sweeps them away.
            tracing::error!(run.id = %run, error = &error as &dyn std::error::Error, "files are left behind");
        }
    }
}

/// Where a run's files come from, owned, so that it can go to another thread.
enum Origin {
    Empty,
    GitRemote { url: String, reference: Option<String> },
    GitLocal { path: Box<Path>, reference: Option<String> },
    Directory(Box<Path>),
    Archive(Box<dyn Read + Send>),
}

impl Origin {
    fn source(&mut self) -> ImportSource<'_> {
        match self {
            Self::Empty => ImportSource::Empty,
            Self::GitRemote { url, reference } => {
                ImportSource::GitRemote { url: url.clone(), reference: reference.clone() }
            }
            Self::GitLocal { path, reference } => {
                ImportSource::GitLocal { path: path.to_path_buf(), reference: reference.clone() }
            }
            Self::Directory(path) => ImportSource::Directory(path.to_path_buf()),
            Self::Archive(archive) => ImportSource::Archive(archive.as_mut()),
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
    }
}

fn still_importing() -> Refusal {
    Refusal::new(
        Code::RunClosed,
        "the run's source is still coming in",
        "Wait until its state is `open`, or break off the request that sends it.",
    )
}

fn has_files() -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "the run has its files already, or they are coming in",
        "Look at the run's state; make another run for another archive.",
    )
}

fn closed() -> Refusal {
    Refusal::new(Code::RunClosed, "the run is closed", "Make another run.")
}

fn deleted() -> Refusal {
    Refusal::new(Code::RunClosed, "the run is deleted", "Its audit is still there.")
}
