//! Removing the folders of runs that a node does not need any more. Disk is all that they take: a run that comes back is fetched.

use std::sync::Arc;

use model::{Run, RunId, RunState};

use super::folder_history::{FolderHistory, compare_folder};
use super::recorded_base::recorded_base;
use crate::CallError;
use crate::engine::Engine;
use crate::metrics;
use crate::opening::base_objects::{base_id, read_index};

impl Engine {
    /// Removes the folders of runs that other nodes have deleted, and of those that other nodes own: what is in them is not used again.
    /// Returns how many there were.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn remove_unneeded_folders(&self) -> Result<usize, CallError> {
        let workspaces = Arc::clone(&self.workspaces);
        let folders = self.blocking(move || Ok(workspaces.folders()?)).await?;
        let mut removed = 0;
        for run in folders.into_iter().map(|folder| folder.run) {
            let Some(stored) = self.ledger.run(&run).await? else { continue };
            let is_removed = if stored.run.state == RunState::Deleted {
                self.remove_folder(run).await?;
                true
            } else {
                self.remove_if_moved(&stored.run).await?
            };
            removed += usize::from(is_removed);
        }
        Ok(removed)
    }

    /// Removes the folder of `run` if another node owns the run and has opened its files, and the store has its base. Returns whether it
    /// was removed.
    async fn remove_if_moved(&self, run: &Run) -> Result<bool, CallError> {
        let Some(objects) = &self.objects else { return Ok(false) };
        if !self.has_moved(&run.run_id).await? {
            return Ok(false);
        }
        if let FolderHistory::Diverged(reached) =
            compare_folder(self.ledger.as_ref(), &self.workspaces, run, &[]).await?
        {
            let (workspaces, id) = (Arc::clone(&self.workspaces), run.run_id.clone());
            let folder = self.blocking(move || Ok(workspaces.set_aside(&id)?)).await?;
            metrics::folder_lost();
            tracing::error!(
                run.id = %run.run_id, folder, reached.seq,
                "the database has lost records of a run that has moved: its folder here was moved to lost+found"
            );
            return Ok(true);
        }
        // The folder may be all that there is of a base which the service had before it had a store.
        let Some(recorded) = recorded_base(self.ledger.as_ref(), run).await? else { return Ok(false) };
        if let Err(error) = read_index(objects, &base_id(&recorded)?).await {
            tracing::warn!(run.id = %run.run_id, %error, "the folder of a run that has moved stays: its base is not in the store");
            return Ok(false);
        }
        if self.has_unkept_artifacts(&run.run_id).await? {
            tracing::warn!(run.id = %run.run_id, "the folder of a run that has moved stays: it has artifacts that were not kept");
            return Ok(false);
        }
        // A caller that opens the run meanwhile needs other files than those in the folder, and waits.
        let (_, Some(fetch)) = self.fetches.begin(&run.run_id) else { return Ok(false) };
        let removed = match self.has_moved(&run.run_id).await {
            Ok(true) => self.remove_folder(run.run_id.clone()).await.map(|()| true),
            other => other,
        };
        fetch.end(Ok(()));
        removed
    }

    /// Whether another node owns `run` and has opened files newer than those here, and this node does not have it open from before.
    async fn has_moved(&self, run: &RunId) -> Result<bool, CallError> {
        let Some(node) = self.ledger.node() else { return Ok(false) };
        let owner = self.ledger.owner(run).await?;
        if self.runs.ids().contains(run) || owner.is_none_or(|owner| owner.node.node_id == node.node_id) {
            return Ok(false);
        }
        Ok(self.has_unopened_files(run).await? != Some(true))
    }

    async fn remove_folder(&self, run: RunId) -> Result<(), CallError> {
        let workspaces = Arc::clone(&self.workspaces);
        self.blocking(move || Ok(workspaces.remove(&run)?)).await
    }
}
