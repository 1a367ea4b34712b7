//! The present versions of the files that a pending approval would change.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Approval, ApprovalFile, ApprovalId, ApprovalState, LogicalPath, Sha256};
use serde::Serialize;
use workspace::{CancelOnDrop, WorkspaceError};

use crate::CallError;
use crate::engine::Engine;
use crate::reconcile;

/// Maximum number of files that are compared: a reviewer opens no more one by one.
const MAX_FILES: usize = 1000;

/// An approval, with the present versions of its files.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentApproval {
    #[serde(flatten)]
    pub(crate) approval: Approval,
    /// The present versions of `files`, in the same order, of at most the first 1,000. Missing once the approval is decided, and
    /// while the run's files cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) present: Option<Vec<PresentVersion>>,
    /// Whether an approval would apply the change to the present files. False if a file has changed and the change cannot follow: ask
    /// the agent to redo it. Missing once the approval is decided, and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) can_apply: Option<bool>,
}

/// A file as it is now.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PresentVersion {
    /// The path.
    pub(crate) path: LogicalPath,
    /// Whether something is at the path.
    exists: bool,
    /// The hash of the file's bytes. Missing if there is no file, if it is too large to be hashed, or if the policy hides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// Whether the file still is as the change expects it. Missing if that is not known, and for every change of a file but the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_expected: Option<bool>,
}

impl PresentVersion {
    /// Whether the file has been compared.
    pub(crate) fn is_known(&self) -> bool {
        !self.exists || self.sha256.is_some()
    }

    fn new(file: &ApprovalFile, exists: bool, sha256: Option<Sha256>) -> Self {
        let is_expected = match (exists, sha256, file.old_sha256) {
            (true, None, Some(_)) => None,
            (_, present, expected) => Some(exists == expected.is_some() && present == expected),
        };
        Self { path: file.path.clone(), exists, sha256, is_expected }
    }
}

impl Engine {
    /// Returns an approval as [`current_approval`](Self::current_approval), with the present versions of its files.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub(crate) async fn approval_with_files(self: &Arc<Self>, id: &ApprovalId) -> Result<CurrentApproval, CallError> {
        let approval = self.current_approval(id).await?;
        if approval.state != ApprovalState::Pending {
            return Ok(CurrentApproval { approval, present: None, can_apply: None });
        }
        let present = match self.present_files(&approval).await {
            Ok(present) => Some(present),
            // The approval is worth seeing without them, and the decision compares the files again.
            Err(error) => {
                let cause = &error as &(dyn std::error::Error + 'static);
                tracing::warn!(run.id = %approval.run_id, error = cause, "the files of a pending approval could not be compared");
                None
            }
        };
        Ok(CurrentApproval { approval, present, can_apply: None })
    }

    async fn present_files(self: &Arc<Self>, approval: &Approval) -> Result<Vec<PresentVersion>, CallError> {
        let run = self.open(&approval.run_id).await?;
        reconcile::ensure_consistent(self, &run).await?;
        let _permit = self.read_permit(false).await;
        let files: Vec<_> = approval.files.iter().take(MAX_FILES).cloned().collect();
        // Dropped with this future when the client disconnects.
        let cancel_on_drop = CancelOnDrop::default();
        let cancel = cancel_on_drop.flag();
        let compare = move || {
            let compare = |file: &ApprovalFile| match run.workspace.tree().stat(&run.rules, &file.path, &cancel) {
                Ok(stat) => {
                    let sha256 = stat.found.as_ref().and_then(|found| found.sha256);
                    Ok(PresentVersion::new(file, stat.found.is_some(), sha256))
                }
                Err(WorkspaceError::Refused(_)) => Ok(PresentVersion::new(file, true, None)),
                Err(error) => Err(CallError::from(error)),
            };
            let mut seen = BTreeSet::new();
            let mut present: Vec<_> = files.iter().map(compare).collect::<Result<_, CallError>>()?;
            for file in &mut present {
                if !seen.insert(file.path.clone()) {
                    file.is_expected = None;
                }
            }
            Ok(present)
        };
        self.blocking(compare).await
    }
}
