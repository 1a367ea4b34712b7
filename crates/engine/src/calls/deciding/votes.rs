//! Approvals that several operators must give.

use model::{Approval, ApprovalState, ApprovalVote, Code, Outcome, Refusal, Verdict};

use crate::CallError;
use crate::admission::operators::OF_ISSUER;
use crate::approvals::decide::{DecidingPerson, decision_of};
use crate::call::record::Failure;
use crate::call_error::refusals::run_not_found;
use crate::calls::Calls;
use crate::calls::deciding::persons::Persons;
use crate::run::chain_head::ChainHead;

/// An operator's approval among those that the call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// How many persons have approved with this one.
    given: u64,
    needed: u64,
    /// Whether the same person has approved before.
    is_repeated: bool,
}

impl Vote {
    /// Whether no other approval is needed.
    pub(crate) fn is_last(self) -> bool {
        self.given >= self.needed
    }
}

impl Calls {
    /// Checks that policy lets `decider` approve, and counts the votes of different persons. Those that do not count any more are
    /// removed from `approval`.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` for who stands for the creator of the run or for the caller, where policy asks for others.
    pub(crate) async fn check_vote(
        &self,
        approval: &mut Approval,
        decider: &DecidingPerson,
    ) -> Result<Vote, CallError> {
        if approval.approvers <= 1 && !approval.not_creator {
            return Ok(Vote { given: 1, needed: 1, is_repeated: false });
        }
        let (operator, on_behalf_of) = (decider.operator.name.clone(), decider.on_behalf_of.clone());
        let vote = ApprovalVote { operator, on_behalf_of };
        self.keep_votes_that_count(approval).await?;
        let persons = Persons::of_vote(&vote);
        let mut counted = Vec::new();
        for known in &approval.votes {
            let others = Persons::of_vote(known);
            if !counted.iter().any(|person| others.overlap(person)) {
                counted.push(others);
            }
        }
        let is_repeated = counted.iter().any(|others| persons.overlap(others));
        if approval.not_creator && !is_repeated {
            self.check_not_creator(approval, &vote).await?;
        }
        let given = counted.len() as u64 + u64::from(!is_repeated);
        Ok(Vote { given, needed: approval.approvers, is_repeated })
    }

    /// Removes the votes of operators that are neither configured nor stored any more. The ledger leaves out those of revoked ones.
    async fn keep_votes_that_count(&self, approval: &mut Approval) -> Result<(), CallError> {
        let mut kept = Vec::with_capacity(approval.votes.len());
        for vote in std::mem::take(&mut approval.votes) {
            // The issuer of a token is the only one who knows whether its operator is still one.
            let is_of_issuer = vote.operator.as_str().starts_with(OF_ISSUER);
            if is_of_issuer
                || self.engine.tokens.operators.is_fixed(&vote.operator)
                || self.engine.ledger.operator(&vote.operator).await?.is_some()
            {
                kept.push(vote);
            }
        }
        approval.approved_by = kept.iter().map(|vote| vote.operator.clone()).collect();
        approval.votes = kept;
        Ok(())
    }

    /// Checks that nobody approves a call of a run that the same person has created, or a call of the same person.
    async fn check_not_creator(&self, approval: &Approval, vote: &ApprovalVote) -> Result<(), CallError> {
        let run = self.engine.ledger.run(&approval.run_id).await?.ok_or_else(run_not_found)?.run;
        let callers = self.operators_of_call(approval, &run).await?;
        let persons = Persons::of_vote(vote);
        let is_behind = |name: &str| persons.overlap(&Persons::of_operator(name));
        let done = if run.created_by.as_ref().is_some_and(|creator| is_behind(creator.as_str())) {
            "created the run"
        } else if callers.iter().any(|caller| is_behind(caller)) {
            "made the call, or issued the token that made it"
        } else {
            return Ok(());
        };
        let message = format!(
            "the operator `{}`, or a person for whom it stands, has {done}, and may not approve it",
            vote.operator
        );
        Err(same_person(message).into())
    }

    /// Records an approval that needs others as well. A repeated one is not recorded again.
    ///
    /// # Errors
    ///
    /// `ALREADY_EXISTS` where the call is decided; `RUN_CLOSED`, `UNAUTHENTICATED`, `UNAVAILABLE`.
    pub(crate) async fn record_vote(
        &self,
        approval: &Approval,
        decider: &DecidingPerson,
        vote: Vote,
    ) -> Result<Option<ChainHead>, CallError> {
        if vote.is_repeated {
            return Ok(None);
        }
        let calls = self.engine.stored_calls(approval, Some(decider)).await?;
        let Some(first) = calls.first() else { return Err(CallError::Internal("an approval has no call".into())) };
        let mut draft = first.draft(Verdict::RequireApproval, Outcome::Pending);
        draft.code = Some(Code::ApprovalRequired);
        let id = &approval.approval_id;
        draft.reasons = vec![format!("approval:{id}:approved:{}of{}", vote.given, vote.needed)];
        draft.reasons.extend(decider.reason());
        draft.reasons.extend(decider.note.as_ref().map(|note| format!("note:{note}")));
        let mut entry = first.entry(draft, None);
        entry.approval_decision = Some(decision_of(approval, Some(decider), ApprovalState::Pending));
        let records = self.engine.record_calls(&calls, vec![entry]).await.map_err(Failure::into_error)?;
        tracing::info!(run.id = %approval.run_id, approval.id = %id, operator.name = %decider.operator.name, "approval given");
        Ok(records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash }))
    }
}

/// The refusal of a vote that is not that of another person.
fn same_person(message: String) -> Refusal {
    let hint = "Ask another operator with the scope `approve`: another person, whom the policy requires.";
    Refusal::new(Code::Forbidden, message, hint)
        .with_details(|details| details.reasons = vec!["approval:notCreator".to_owned()])
}
