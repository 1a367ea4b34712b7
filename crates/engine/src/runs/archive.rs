//! Archiving of closed runs: what the archive of a run needs of the engine.

use async_recursion::async_recursion as boxed;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ledger::{LedgerError, StoredRun};
use model::{Run, RunId, RunState};

use crate::call_error::refusals::{needs_repair, run_not_found};
use crate::clock::now;
use crate::run::lifecycle::{self, RunArchive};
use crate::run::open_run::OpenRun;
use crate::runs::Runs;
use crate::{CallError, reconcile};

/// A closed run whose files do not change any more.
pub struct ClosedRun {
    /// The run.
    pub run: Run,
    /// Held, so that the run is not opened and closed for each part of it.
    open_run: Option<Arc<OpenRun>>,
}

impl ClosedRun {
    /// Whether the run has files.
    pub fn has_files(&self) -> bool {
        self.open_run.is_some()
    }
}

impl Runs {
    /// Returns a run to archive: all its recorded changes are applied, and no approval is pending. `None` if the run is not
    /// closed any more.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_NEEDS_REPAIR` if its files or its data are damaged or were changed from outside; `UNAVAILABLE`.
    #[boxed]
    pub async fn closed_run(&self, run: &RunId) -> Result<Option<ClosedRun>, CallError> {
        let StoredRun { run: stored, needs_repair: is_damaged, .. } =
            self.engine.ledger.run(run).await?.ok_or_else(run_not_found)?;
        if stored.state != RunState::Closed {
            return Ok(None);
        }
        if is_damaged {
            return Err(needs_repair().into());
        }
        let open_run = if stored.base_commit.is_some() {
            let open_run = self.engine.open(run).await?;
            reconcile::apply_all(&self.engine, &open_run).await?;
            Some(open_run)
        } else {
            None
        };
        self.engine.end_approvals(run).await?;
        // The approvals that ended have records.
        let run = self.engine.run(run).await?;
        Ok((run.state == RunState::Closed).then_some(ClosedRun { run, open_run }))
    }

    /// Writes the files of a run, its tree and its base, to `out` as a tar archive. Returns `out`.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails; `cancel` ends it early.
    pub async fn write_run_files<W: Write + Send + 'static>(
        &self,
        run: &ClosedRun,
        mut out: W,
        cancel: Arc<AtomicBool>,
    ) -> Result<W, CallError> {
        let Some(open_run) = run.open_run.clone() else { return Ok(out) };
        let (workspaces, run) = (Arc::clone(&self.engine.workspaces), run.run.run_id.clone());
        self.engine
            .blocking(move || {
                workspaces.write_archive(&run, &open_run.workspace, &mut out, &cancel)?;
                Ok(out)
            })
            .await
    }

    /// Records the archive of a run, and deletes what is in it: the files, and all records up to the archived head with
    /// everything that belongs to them. Returns false, and deletes nothing, if the run has other records by now.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails. [`finish_deletions`](Self::finish_deletions) completes what was begun.
    #[boxed]
    pub async fn mark_archived(&self, run: ClosedRun, archive: &RunArchive) -> Result<bool, CallError> {
        let ClosedRun { run, open_run } = run;
        // Held, it would keep the deletion waiting.
        drop(open_run);
        let entry = lifecycle::archived(&run.run_id, &now(), archive);
        let is_archived = Box::pin(self.remove_run(&run.run_id, RunState::Closed, entry)).await?;
        // It may have been deleted meanwhile.
        let stored = self.engine.ledger.run(&run.run_id).await?;
        Ok(is_archived && stored.is_some_and(|stored| stored.run.archive_uri.as_deref() == Some(&archive.uri)))
    }

    /// Completes the deletion of deleted and archived runs that was interrupted. A run whose data are damaged is left out.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    #[boxed]
    pub async fn finish_deletions(&self) -> Result<(), CallError> {
        for run in self.engine.ledger.unpurged_runs().await? {
            // One in progress completes itself.
            let Some(deletion) = self.engine.node.begin_deletion(&run) else { continue };
            let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
            self.engine.blocking(move || workspaces.remove(&id).map_err(CallError::from)).await?;
            self.release_removed(&run, Some(deletion)).await?;
            match self.engine.ledger.purge_content(&run).await {
                Ok(()) => tracing::info!(run.id = %run, "completed the deletion of a run"),
                // Concerns this run only; the next start repeats it.
                Err(error @ LedgerError::Internal(_)) => {
                    let error = &error as &dyn Error;
                    tracing::error!(run.id = %run, error, "failed to complete the deletion of a run");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
