//! Approvals that several operators must give.

use model::{Approval, ApprovalState, Code, Outcome, Refusal, Verdict};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::approvals::decide::{Decider, decision_of};
use crate::call::ChainHead;
use crate::call_error::refusals::run_not_found;
use crate::engine::Engine;

/// An operator's approval among those that the call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// How many operators have approved with this one.
    given: u64,
    needed: u64,
    /// Whether the operator has approved before.
    is_repeated: bool,
}

impl Vote {
    /// The approval of `operator`.
    pub(crate) fn of(approval: &Approval, operator: &OperatorIdentity) -> Self {
        let is_repeated = approval.approved_by.iter().any(|known| known.is_same(&operator.name));
        let given = approval.approved_by.len() as u64 + u64::from(!is_repeated);
        Self { given, needed: approval.approvers, is_repeated }
    }

    /// Whether no other approval is needed.
    pub(crate) fn is_last(self) -> bool {
        self.given >= self.needed
    }
}

impl Engine {
    /// Checks that policy lets `operator` approve.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` for the creator of the run, or for the operator who made the call, where policy asks for others.
    pub(crate) async fn check_approver(
        &self,
        approval: &Approval,
        operator: &OperatorIdentity,
    ) -> Result<(), CallError> {
        if !approval.not_creator {
            return Ok(());
        }
        let run = self.ledger.run(&approval.run_id).await?.ok_or_else(run_not_found)?.run;
        let is_creator = run.created_by.is_some_and(|creator| creator.is_same(&operator.name));
        let message = if is_creator {
            format!("the operator `{}` has created the run, and may not approve its calls", operator.name)
        } else if approval.actor.eq_ignore_ascii_case(&operator.actor()) {
            format!("the operator `{}` has made the call, and may not approve it", operator.name)
        } else {
            return Ok(());
        };
        let hint = "Ask another operator with the scope `approve`; the run's policy has `approval.notCreator`.";
        let reasons = vec!["approval:notCreator".to_owned()];
        Err(Refusal::new(Code::Forbidden, message, hint).with_details(|details| details.reasons = reasons).into())
    }

    /// Records an approval that needs others as well. A repeated one is not recorded again.
    ///
    /// # Errors
    ///
    /// `ALREADY_EXISTS` where the call is decided; `RUN_CLOSED`, `UNAUTHENTICATED`, `UNAVAILABLE`.
    pub(crate) async fn record_vote(
        &self,
        approval: &Approval,
        decider: &Decider,
        vote: Vote,
    ) -> Result<Option<ChainHead>, CallError> {
        if vote.is_repeated {
            return Ok(None);
        }
        let calls = self.stored_calls(approval, Some(decider)).await?;
        let Some(first) = calls.first() else { return Err(CallError::Internal("an approval has no call".into())) };
        let mut draft = first.draft(Verdict::RequireApproval, Outcome::Pending);
        draft.code = Some(Code::ApprovalRequired);
        let id = &approval.approval_id;
        draft.reasons = vec![format!("approval:{id}:approved:{}of{}", vote.given, vote.needed)];
        draft.reasons.extend(decider.reason());
        draft.reasons.extend(decider.note.as_ref().map(|note| format!("note:{note}")));
        let mut entry = first.entry(draft, None);
        entry.approval_decision = Some(decision_of(approval, Some(decider), ApprovalState::Pending));
        let records = self.append_for(&calls, vec![entry]).await?;
        tracing::info!(run.id = %approval.run_id, approval.id = %id, operator.name = %decider.operator.name, "approval given");
        Ok(records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash }))
    }
}
