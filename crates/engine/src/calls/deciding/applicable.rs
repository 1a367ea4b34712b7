//! Whether a change that waits would be applied to the present files.

use model::{Approval, EvidenceFact};

use crate::CallError;
use crate::approvals::present::{CurrentApproval, PresentVersion};
use crate::approvals::warnings::add_stale;
use crate::call::Call;
use crate::calls::Calls;
use crate::transaction::Parsed;

impl Calls {
    /// Adds to a pending approval which of its files have changed since the request, and whether it can still be applied.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn with_applicability(&self, mut current: CurrentApproval) -> Result<CurrentApproval, CallError> {
        let CurrentApproval { approval, present: Some(present), can_apply } = &mut current else { return Ok(current) };
        let stale = present.iter().filter(|file| file.is_expected == Some(false));
        let stale: Vec<_> = stale.map(|file| file.path.clone()).collect();
        *can_apply = if stale.is_empty() {
            let is_known = present.len() == approval.files.len() && present.iter().all(PresentVersion::is_known);
            is_known.then_some(true)
        } else {
            self.can_follow(approval).await?
        };
        let then = match can_apply {
            Some(true) => "; the change still applies to it",
            Some(false) => ", and the change does not apply to it any more: ask the agent to redo it",
            None => "",
        };
        add_stale(approval, &stale, then);
        Ok(current)
    }

    /// Whether a change can be applied although its files have changed: that of an edit or a patch may follow its context.
    async fn can_follow(&self, approval: &Approval) -> Result<Option<bool>, CallError> {
        let calls = self.engine.stored_calls(approval, None).await?;
        let follows_context = |call: &Call| matches!(call.tool.name, "edit_file" | "apply_patch");
        if !calls.iter().any(follows_context) {
            return Ok(Some(false));
        }
        let run = self.engine.open(&approval.run_id).await?;
        let calls: Vec<_> = calls.into_iter().map(|call| call.opened(&run, EvidenceFact::Missing)).collect();
        let parsed = self.parse_waiting(&run, &calls).await?;
        match self.engine.check_approvable(&run, Parsed::new(parsed), approval).await {
            Ok(()) => Ok(Some(true)),
            Err(CallError::Refused(refusal)) => Ok((!refusal.code.is_retryable()).then_some(false)),
            Err(error) => Err(error),
        }
    }
}
