//! What concerns all runs that this process has: the start, the upkeep, the end.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use model::Profiles;

use crate::CallError;
use crate::opening::kept_artifacts::Keep;
use crate::reconcile;
use crate::runs::Runs;

impl Runs {
    /// Replaces the policy profiles that new runs may name.
    pub fn set_profiles(&self, profiles: Profiles) {
        *self.profiles.write() = profiles;
    }

    /// Reconciles all runs at the start, before the service listens. Returns the number of journal entries found. If that fails for a
    /// run, its next call tries again, or it needs repair.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn reconcile_all(&self) -> Result<usize, CallError> {
        reconcile::reconcile_all(&self.engine).await
    }

    /// Reconciles the dirty open runs, after a temporary error of the disk or the database.
    #[boxed]
    pub async fn reconcile_dirty(&self) {
        reconcile::reconcile_dirty_runs(&self.engine).await;
    }

    /// Puts the artifacts of this node's runs that were not kept yet into the object store, and records them. Does nothing in a service
    /// that is the only one. An error of one run is logged.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    #[boxed]
    pub async fn keep_artifacts(&self, keep: Keep) -> Result<(), CallError> {
        self.engine.keep_artifacts(keep).await
    }

    /// Removes the folders of runs that other nodes have deleted, and of those that other nodes own. Returns how many there were.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    #[boxed]
    pub async fn remove_unneeded_folders(&self) -> Result<usize, CallError> {
        self.engine.remove_unneeded_folders().await
    }

    /// Removes the bases that no run on this machine starts from and that no run has begun to use for `unused_for`. Returns how many there
    /// were.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    #[boxed]
    pub async fn remove_unused_bases(&self, unused_for: Duration) -> Result<usize, CallError> {
        let workspaces = Arc::clone(&self.engine.workspaces);
        self.engine.blocking(move || Ok(workspaces.remove_unused_bases(unused_for)?)).await
    }

    /// Leaves the open runs that no call uses without an owner, so that other nodes can take them. Returns how many.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn give_back(&self) -> Result<usize, CallError> {
        Ok(self.engine.give_back_runs().await?)
    }

    /// As [`give_back`](Self::give_back), also for the runs of this node that are not open, except those that it imports.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn give_back_unused(&self) -> Result<(), CallError> {
        Ok(self.engine.give_back_unused_runs().await?)
    }

    /// Cancels every import.
    pub fn cancel_imports(&self) {
        self.engine.imports.cancel_all();
    }

    /// Syncs the files that were changed before, and prunes their journal steps.
    #[boxed]
    pub async fn finish_syncs(&self) {
        self.engine.fsync_worker.close().await;
    }

    /// Checks whether the service accepts calls.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE`.
    #[boxed]
    pub async fn check_ready(&self) -> Result<(), CallError> {
        self.engine.check_ready().await
    }

    /// Updates the gauges that need no database: open runs, imports, permits, disk usage, connections to the database.
    pub fn record_gauges(&self) {
        self.engine.record_gauges();
    }

    /// Updates the gauges that need the database: runs by state, pending approvals.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn record_ledger_gauges(&self) -> Result<(), CallError> {
        Ok(self.engine.record_ledger_gauges().await?)
    }

    /// Reads again what all runs hold together, which other nodes change too.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn refresh_totals(&self) -> Result<(), CallError> {
        Ok(self.engine.refresh_totals().await?)
    }

    /// Reads again what the history of all runs takes.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn refresh_history(&self) -> Result<(), CallError> {
        Ok(self.engine.refresh_history().await?)
    }

    /// Runs `work` as a separate task, which continues if the client disconnects.
    ///
    /// # Errors
    ///
    /// As for `work`. A panic is an internal error of this call only.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        self.engine.detached(work).await
    }
}
