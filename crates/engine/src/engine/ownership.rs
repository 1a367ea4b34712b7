//! Which runs this node owns, where several nodes share a ledger. A service that is the only one owns all, without epochs.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ledger::{Entry, Epoch, LedgerError, Taken};
use model::RunId;

use crate::CallError;
use crate::engine::Engine;

/// The maximum time that a run waits for the calls that used it when it was lost to another node.
const LOST_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Makes this node the owner of a run, and returns its epoch; `None` if this service is the only one.
    ///
    /// # Errors
    ///
    /// `RunMoved` if another node owns the run and is alive; `Unavailable` while calls still use the run as it was before this node
    /// lost it; otherwise if the ledger fails.
    pub(crate) async fn take_run(&self, run: &RunId) -> ledger::Result<Option<Epoch>> {
        if self.ledger.node().is_none() {
            return Ok(None);
        }
        let ended = tokio::time::timeout(LOST_TIMEOUT, self.runs.until_lost_calls_end(run)).await;
        ended.map_err(|_| LedgerError::Unavailable("earlier calls still use the run".into()))?;
        match self.ledger.take_run(run).await? {
            Taken::Owned(epoch) => Ok(Some(epoch)),
            Taken::OwnedBy(owner) => {
                tracing::debug!(run.id = %run, owner = %owner.node, "another node owns the run");
                Err(LedgerError::RunMoved(run.clone()))
            }
        }
    }

    /// Whether this process, or an earlier one of the same node, is the last owner of a run. Always true in a service that is the only
    /// one.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn was_of_this_node(&self, run: &RunId) -> ledger::Result<bool> {
        let Some(node) = self.ledger.node() else { return Ok(true) };
        Ok(self.ledger.owner(run).await?.is_some_and(|owner| owner.node.node_id == node.node_id))
    }

    /// Leaves the open runs that no call uses without an owner, so that other nodes can take them. Returns how many. Later calls that
    /// reach this node take them again. Changes that are not synced yet stay in the journal: the next owner repeats them.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn give_back_runs(&self) -> ledger::Result<usize> {
        let idle = self.runs.remove_idle();
        if !idle.is_empty() {
            self.ledger.give_back(&idle).await?;
        }
        Ok(idle.len())
    }

    /// As [`give_back_runs`](Self::give_back_runs), also for the runs of this node that are not open, except those that it imports.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn give_back_unused_runs(&self) -> ledger::Result<()> {
        self.runs.remove_idle();
        let mut used = self.runs.ids();
        used.extend(self.imports.ids());
        self.ledger.give_back_except(&used).await
    }

    /// Returns `entries`, all of one run, each with an epoch. Those of calls that have opened the run have one: what they say is true
    /// only under that epoch. The others depend on what the ledger checks when it appends them: if the run is not open here, returns
    /// it with its epoch.
    pub(crate) async fn under_epoch(
        &self,
        mut entries: Vec<Entry>,
    ) -> ledger::Result<(Vec<Entry>, Option<(RunId, Epoch)>)> {
        if self.ledger.node().is_none() {
            return Ok((entries, None));
        }
        let lacking = entries.iter().find(|entry| entry.epoch.is_none()).map(|entry| entry.draft.run_id.clone());
        let Some(run) = lacking else { return Ok((entries, None)) };
        let (epoch, is_open) = match self.runs.get(&run) {
            Some(open_run) => (open_run.epoch, true),
            None => (self.take_run(&run).await?, false),
        };
        for entry in &mut entries {
            entry.epoch = entry.epoch.or(epoch);
        }
        Ok((entries, epoch.filter(|_| !is_open).map(|epoch| (run, epoch))))
    }

    /// Leaves a run without an owner that this node has taken to record something, and whose files it does not have: another node may.
    pub(crate) async fn give_back_without_files(&self, run: &RunId, epoch: Epoch) {
        let given_back = async {
            if self.fetches.is_fetching(run) || self.has_unopened_files(run).await? != Some(false) {
                return Ok(());
            }
            Ok::<_, CallError>(self.ledger.give_back(&[(run.clone(), epoch)]).await?)
        };
        if let Err(error) = given_back.await {
            tracing::warn!(run.id = %run, error = &error as &dyn Error, "a run without files stays with this node");
        }
    }

    /// Whether the folder here has the files of a run whose owner has not opened them; `None` if it may have.
    pub(crate) async fn has_unopened_files(&self, run: &RunId) -> Result<Option<bool>, CallError> {
        let epochs = self.ledger.current_epochs(run).await?;
        if epochs.start() == epochs.end() {
            return Ok(None);
        }
        let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || Ok(Some(workspaces.has_files_of(&run, &epochs)?))).await
    }
}
