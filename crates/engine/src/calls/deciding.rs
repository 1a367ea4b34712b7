//! Decisions of people about pending approvals.

pub(crate) mod applicable;
pub(crate) mod edits;
pub(crate) mod files;
pub(crate) mod persons;
pub(crate) mod votes;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use model::{Approval, ApprovalId, ApprovalState, Code, EvidenceFact, Refusal, Sha256};
use serde::Serialize;

use crate::CallError;
use crate::approvals::decide::{DecidingPerson, decided, decision_of};
use crate::approvals::waiting_calls::stored_members;
use crate::call::OpenedCall;
use crate::call::record::Failure;
use crate::call_error::refusals::approval_not_pending;
use crate::calls::Calls;
use crate::clock::now;
use crate::run::chain_head::ChainHead;
use crate::run::open_run::OpenRun;
use crate::tools::run_command::RUN_COMMAND;
use crate::transaction::{Operation, Parsed};

/// The approval that a call has decided.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResult {
    #[serde(flatten)]
    approval: Approval,
    /// The number of the decision's record in the run's audit; for a batch, of its last record.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The hash of that record: the head of the run's chain when it was written. A caller that stores it can verify the chain
    /// later.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_hash: Option<Sha256>,
}

/// Calls, each with its operation or the refusal of its input.
type ParsedCalls = Vec<(OpenedCall, Result<Operation, Refusal>)>;

impl ApprovalResult {
    fn new(approval: Approval, head: Option<ChainHead>) -> Self {
        Self { approval, seq: head.map(|head| head.seq), head_hash: head.and_then(|head| head.hash) }
    }
}

impl Calls {
    /// Approves the call that waits for `id`, and executes it if it still makes the approved change. Runs to completion even if the
    /// client disconnects.
    ///
    /// If the run's policy requires several operators, the approval stays pending until the last of them approves.
    ///
    /// The call is planned and judged again with the present files. If that results in another change or a refusal, the approval
    /// fails and nothing changes. With changes of the person who decides, it stays pending instead.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `ALREADY_EXISTS` if it is decided; the refusal of a change of the person who decides; `FORBIDDEN` if policy requires another operator; `UNAVAILABLE`, which
    /// leaves it pending.
    pub fn approve<'a>(
        self: &'a Arc<Self>,
        id: &'a ApprovalId,
        decider: DecidingPerson,
    ) -> BoxFuture<'a, Result<ApprovalResult, CallError>> {
        let (calls, id) = (Arc::clone(self), id.clone());
        let work = async move {
            failpoint::hit("decision.begin");
            let mut approval = calls.pending_approval(&id).await?;
            edits::check(&approval, &decider.edits)?;
            let mut voting = None;
            if approval.approvers > 1 {
                voting = Some(calls.votes.lock(&id).await);
                approval = calls.pending_approval(&id).await?;
            }
            let vote = calls.check_vote(&mut approval, &decider).await?;
            if !vote.is_last() {
                let head = calls.record_vote(&approval, &decider, vote).await?;
                return Ok(ApprovalResult::new(calls.engine.approval(&id).await?, head));
            }
            let head = Box::pin(calls.execute_approval(&approval, &decider)).await?;
            drop(voting);
            Ok(ApprovalResult::new(calls.engine.approval(&id).await?, head))
        };
        Box::pin(async move { self.engine.detached(work).await })
    }

    /// Denies the call that waits for `id`. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `ALREADY_EXISTS` if it is decided.
    pub fn deny<'a>(
        self: &'a Arc<Self>,
        id: &'a ApprovalId,
        decider: DecidingPerson,
    ) -> BoxFuture<'a, Result<ApprovalResult, CallError>> {
        let (calls, id) = (Arc::clone(self), id.clone());
        let work = async move {
            failpoint::hit("decision.begin");
            if !decider.edits.is_empty() {
                return Err(edits::refused_in_denial().into());
            }
            let approval = calls.pending_approval(&id).await?;
            let refusal = Refusal::new(Code::PolicyDenied, "a person has denied the call", "Ask the operator why.")
                .with_details(|details| {
                    details.reasons = vec![format!("approval:{id}:denied")];
                    details.reasons.extend(decider.reason());
                });
            let head =
                calls.engine.record_decision(&approval, Some(&decider), ApprovalState::Denied, &refusal, None).await?;
            Ok(ApprovalResult::new(calls.engine.approval(&id).await?, head))
        };
        Box::pin(async move { self.engine.detached(work).await })
    }

    async fn pending_approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let approval = self.engine.approval(id).await?;
        if approval.state != ApprovalState::Pending {
            return Err(approval_not_pending().into());
        }
        if approval.expires_at <= now() {
            // Only within a decision, which runs to completion.
            self.engine.expire(&approval).await?;
            return Err(approval_not_pending().into());
        }
        Ok(approval)
    }

    /// Executes approved calls. Returns the newest record of the decision.
    async fn execute_approval(
        &self,
        approval: &Approval,
        decider: &DecidingPerson,
    ) -> Result<Option<ChainHead>, CallError> {
        let run = self.engine.open(&approval.run_id).await?;
        let calls = self.engine.stored_calls(approval, Some(decider)).await?.into_iter();
        // A person has approved the change, so that the evidence is only recorded.
        let calls: Vec<_> = calls.map(|call| call.opened(&run, EvidenceFact::Missing)).collect();
        let edits = edits::calls(&run, approval, decider)?;
        let executed = if approval.tool == RUN_COMMAND {
            self.approve_command(&run, approval, &calls, decider).await
        } else {
            self.execute_calls(&run, approval, (&calls, &edits), decider).await
        };
        match executed {
            Ok(head) => {
                self.engine.refresh_state(&run).await?;
                let seq = head.map(|head| head.seq);
                let mut decided = decided(approval, Some(decider), ApprovalState::Approved, seq, None);
                decided.edited_seq = seq.filter(|_| !edits.is_empty());
                if approval.tool == RUN_COMMAND {
                    // Its caller is told when the command has ended.
                    run.decisions.correct(&decided);
                } else {
                    run.decisions.decided(&decided);
                }
                Ok(head)
            }
            // It has expired meanwhile.
            Err(error) if error.is(Code::AlreadyExists) && approval.expires_at <= now() => {
                self.engine.expire(approval).await?;
                Err(error)
            }
            // The operator may not decide any more: the approval stays pending.
            Err(error) if error.is(Code::Unauthenticated) => Err(error),
            // The person may change something else, or approve the call as it is.
            Err(error @ CallError::Refused(_)) if let Some(edit) = edits.first() => {
                let paths: Vec<_> = approval.files.iter().map(|file| file.path.clone()).collect();
                let refused = self.engine.record_error(edit, &paths, error).await;
                Err(if edit.caller.may_read() { refused } else { refused.without_content() }.into())
            }
            Err(CallError::Refused(refusal)) if !refusal.code.is_retryable() => {
                self.engine.record_decision(approval, Some(decider), ApprovalState::Failed, &refusal, run.epoch).await
            }
            // A retryable refusal leaves the approval pending.
            Err(error @ CallError::Refused(_)) => {
                let paths: Vec<_> = approval.files.iter().map(|file| file.path.clone()).collect();
                match calls.first() {
                    Some(call) => Err(self.engine.record_error(call, &paths, error).await.into()),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Parses the calls that wait for an approval, whose files may have other names meanwhile.
    async fn parse_waiting(&self, run: &Arc<OpenRun>, calls: &[OpenedCall]) -> Result<ParsedCalls, CallError> {
        let mut parsed = Vec::with_capacity(calls.len());
        for call in calls {
            let members = self.engine.follow_names(call, run, stored_members(call)?).await?;
            parsed.push((call.clone(), Operation::parse(call, members)));
        }
        Ok(parsed)
    }

    /// Executes the calls that wait for an approval, and then the changes of the person who decides. Returns the newest of their records.
    async fn execute_calls(
        &self,
        run: &Arc<OpenRun>,
        approval: &Approval,
        (calls, edits): (&[OpenedCall], &[OpenedCall]),
        decider: &DecidingPerson,
    ) -> Result<Option<ChainHead>, CallError> {
        let mut parsed = self.parse_waiting(run, calls).await?;
        for edit in edits {
            // Of a file as the calls leave it, which has no other name yet.
            parsed.push((edit.clone(), Operation::parse(edit, stored_members(edit)?)));
        }
        let mut decision = decision_of(approval, Some(decider), ApprovalState::Approved);
        decision.edits_after = (!edits.is_empty()).then_some(calls.len() as u64);
        let executed = self.engine.execute_approved(run, Parsed::new(parsed), approval, decision).await;
        Ok(executed.map_err(Failure::into_error)?.iter().filter_map(|answer| answer.head).next_back())
    }
}
