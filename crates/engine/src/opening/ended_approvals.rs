//! Contents in a run's `waiting/` whose approvals are not pending any more.

use std::sync::Arc;

use model::{Approval, ApprovalId, ApprovalState, RunId};

use crate::CallError;
use crate::engine::Engine;
use crate::tools::apply_changeset::APPLY_CHANGESET;
use crate::tools::files;

impl Engine {
    /// Removes the content with which the call has waited for a decided approval: only an upload or a change set has one.
    pub(crate) async fn end_waiting(&self, approval: &Approval) {
        if [files::PUT.name, APPLY_CHANGESET.name].contains(&approval.tool.as_str()) {
            self.remove_waiting(&approval.run_id, &approval.approval_id).await;
        }
    }

    /// Removes the content of an approval that is decided or was not recorded, if it has one. What cannot be removed now is removed when
    /// the run is opened again.
    pub(crate) async fn remove_waiting(&self, run: &RunId, approval: &ApprovalId) {
        failpoint::hit("approval.ended");
        let (workspaces, id, ended) = (Arc::clone(&self.workspaces), run.clone(), approval.clone());
        match self.blocking(move || Ok(workspaces.remove_waiting(&id, &ended)?)).await {
            Ok(()) => {
                if let Some(open_run) = self.runs.get(run) {
                    drop(open_run.waiting.take(approval));
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(run.id = %run, approval.id = %approval, error, "a content that waited could not be removed");
            }
        }
    }

    /// Returns the waiting contents of a run that is being opened, and removes those whose approvals are not pending.
    pub(crate) async fn load_waiting(&self, run: &RunId) -> Result<Vec<(ApprovalId, u64)>, CallError> {
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        let found = self.blocking(move || Ok(workspaces.waiting(&id)?)).await?;
        let mut kept = Vec::with_capacity(found.len());
        for (id, size_bytes) in found {
            let approval = self.ledger.approval(&id).await?;
            if approval.is_some_and(|approval| approval.state == ApprovalState::Pending && approval.run_id == *run) {
                kept.push((id, size_bytes));
            } else {
                self.remove_waiting(run, &id).await;
            }
        }
        Ok(kept)
    }
}
