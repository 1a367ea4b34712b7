//! Runs as the ledger has them. One that has expired is closed when it is asked for.

use std::sync::Arc;

use ledger::{Appended, Entry};
use model::{Run, RunId, RunState};

use crate::CallError;
use crate::call_error::refusals::run_not_found;
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::opening::unreadable;
use crate::run::lifecycle;
use crate::run::open_run::has_expired;

impl Engine {
    /// Returns a run, with the progress of its import.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_NEEDS_REPAIR` if the run's row in the database is damaged.
    pub(crate) async fn run(self: &Arc<Self>, run: &RunId) -> Result<Run, CallError> {
        Ok(self.stored_run(run).await?.0)
    }

    /// Returns a run, and whether the ledger has it already.
    pub(crate) async fn stored_run(self: &Arc<Self>, run: &RunId) -> Result<(Run, bool), CallError> {
        let importing = self.imports.get(run);
        match (self.ledger.run(run).await.map_err(|error| unreadable(run, error))?, importing) {
            (Some(stored), importing) => {
                let state = stored.run.state;
                let mut known = match self.close_if_expired(stored.run.clone()).await {
                    // The node that owns the run, or the next owner, records that it has expired.
                    Err(CallError::Moved(_)) if state != RunState::Preparing => {
                        Run { state: RunState::Closed, ..stored.run }
                    }
                    known => known?,
                };
                if let (RunState::Preparing, Some(importing)) = (known.state, importing) {
                    known.import = importing.import;
                }
                Ok((known, true))
            }
            (None, Some(importing)) => Ok((importing, false)),
            // The import may have ended between the two lookups.
            (None, None) => Err(run_not_found().into()),
        }
    }

    /// Appends the record of an operation on a run. If a precondition does not hold, the open run gets the ledger's state again.
    /// Returns false if it has no effect.
    pub(crate) async fn append_change(&self, entry: Entry) -> Result<bool, CallError> {
        let run = entry.draft.run_id.clone();
        match self.record(vec![entry]).await {
            Ok(_) => Ok(true),
            Err(NotRecorded::Rejected(Appended::Unchanged)) => Ok(false),
            Err(error) => {
                if let (NotRecorded::Rejected(Appended::PreconditionFailed(_)), Some(open_run)) =
                    (&error, self.runs.get(&run))
                {
                    self.refresh_state(&open_run).await?;
                }
                Err(error.into())
            }
        }
    }

    /// Closes the run in the ledger if it has expired, unless its expiry time is replaced meanwhile.
    async fn close_if_expired(self: &Arc<Self>, run: Run) -> Result<Run, CallError> {
        let expires_at = match &run.expires_at {
            Some(expires_at) if has_expired(run.state, Some(expires_at)) => expires_at.clone(),
            _ => return Ok(run),
        };
        let engine = Arc::clone(self);
        self.detached(async move { engine.close_expired(run, &expires_at).await }).await
    }

    async fn close_expired(&self, run: Run, expires_at: &str) -> Result<Run, CallError> {
        let id = &run.run_id;
        self.append_change(lifecycle::expired(id, expires_at)).await?;
        let Some(stored) = self.ledger.run(id).await? else { return Ok(run) };
        if stored.run.state == RunState::Closed {
            if let Some(open_run) = self.runs.get(id) {
                open_run.set_state(RunState::Closed);
            }
            self.imports.cancel(id);
            tracing::info!(run.id = %id, "run expired");
            self.end_approvals(id).await?;
        }
        Ok(stored.run)
    }
}
