//! Decisions about pending approvals: approve, deny, expire.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::{ApprovalFilter, DecidedApproval, Entry, Epoch};
use model::{Approval, ApprovalId, ApprovalState, ApprovalVote, Code, LogicalPath, Outcome, Refusal, RunId};

use serde::Deserialize;

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::call::Call;
use crate::call::record::{Failure, reasons_of, requested_files, verdict_of};
use crate::caller::RequestIds;
use crate::engine::Engine;
use crate::run::chain_head::ChainHead;

/// Approvals that are ended at a time.
const PAGE: u32 = 100;

/// Maximum number of changes to the result of one call.
pub(crate) const MAX_EDITS: usize = 100;

/// A change to the result of a call that is approved.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "Cargo.lock", "oldString": "version = 3", "newString": "version = 4"}))]
pub struct ApprovalEdit {
    /// One of the files that the call changes, by its path after the change.
    pub(crate) path: String,
    /// Text to replace, as the call leaves it. It must occur exactly once.
    pub(crate) old_string: String,
    /// The new text.
    pub(crate) new_string: String,
}

/// The person who decides about an approval.
#[derive(Clone, Debug)]
pub struct DecidingPerson {
    /// The operator.
    pub operator: Arc<OperatorIdentity>,
    /// The person for whom the operator decides.
    pub on_behalf_of: Option<String>,
    /// The note.
    pub note: Option<String>,
    /// What the person changes in the result of an approved call.
    pub edits: Vec<ApprovalEdit>,
    /// The HTTP request of the decision.
    pub request: Option<Arc<RequestIds>>,
}

impl Engine {
    /// Returns the approval `id` as the ledger has it.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub(crate) async fn approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let found = self.ledger.approval(id).await?;
        Ok(found.ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("the approval `{id}` does not exist"),
                "List approvals with GET /v1/approvals.",
            )
        })?)
    }

    /// Records that an approval has expired.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn expire(&self, approval: &Approval) -> Result<(), CallError> {
        let message = "the approval expired without a decision; nothing was changed";
        let refusal = Refusal::new(Code::ApprovalRequired, message, "Repeat the call under another ID.")
            .with_details(|details| details.reasons = vec![format!("approval:{}:expired", approval.approval_id)]);
        unless_decided(self.record_decision(approval, None, ApprovalState::Expired, &refusal, None).await)
    }

    /// Ends every pending approval of a run that accepts no more mutations. To be called before the contents of a deleted run
    /// are purged.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn end_approvals(&self, run: &RunId) -> Result<(), CallError> {
        let (state, run_id) = (Some(ApprovalState::Pending), Some(run.clone()));
        let pending = ApprovalFilter { state, run: run_id, ..ApprovalFilter::default() };
        let mut after = None;
        loop {
            let page = self.ledger.approvals(&pending, after, PAGE.into()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(*last);
            for (_, approval) in page.iter() {
                tracing::info!(run.id = %run, approval.id = %approval.approval_id, "a pending approval was ended with its run");
                let message = "the run accepts no more mutations, so the call cannot be approved; nothing was changed";
                let reasons = vec![format!("approval:{}:failed", approval.approval_id)];
                let refusal = Refusal::new(Code::RunClosed, message, "Ask the orchestrator for a new run.")
                    .with_details(|details| details.reasons = reasons);
                unless_decided(self.record_decision(approval, None, ApprovalState::Failed, &refusal, None).await)?;
            }
        }
    }

    /// Records a decision that does not execute the calls. `epoch` is that of the run as it was opened, if the refusal depends on its
    /// files.
    pub(crate) async fn record_decision(
        &self,
        approval: &Approval,
        decider: Option<&DecidingPerson>,
        state: ApprovalState,
        refusal: &Refusal,
        epoch: Option<Epoch>,
    ) -> Result<Option<ChainHead>, CallError> {
        let calls = self.stored_calls(approval, decider).await?;
        let paths: BTreeSet<_> = approval.files.iter().map(|file| file.path.clone()).collect();
        let paths: Vec<_> = paths.into_iter().collect();
        let mut entries: Vec<_> = calls.iter().map(|call| decided_entry(call, &paths, refusal)).collect();
        for entry in &mut entries {
            entry.preconditions.token = decider.and_then(|decider| decider.operator.required_token());
            entry.epoch = epoch;
        }
        if let Some(first) = entries.first_mut() {
            first.approval_decision = Some(decision_of(approval, decider, state));
        }
        let records = self.record_calls(&calls, entries).await.map_err(Failure::into_error)?;
        // A run that is not open reads its state from the ledger.
        if let Some(run) = self.runs.get(&approval.run_id) {
            self.refresh_state(&run).await?;
            let seq = records.last().map(|record| record.seq);
            run.decisions.decided(&decided(approval, decider, state, seq, Some(refusal.code)));
        }
        Ok(records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash }))
    }
}

/// Ignores the error that another caller has decided first.
fn unless_decided(decided: Result<Option<ChainHead>, CallError>) -> Result<(), CallError> {
    match decided {
        Err(error) if error.is(Code::AlreadyExists) => Ok(()),
        decided => decided.map(drop),
    }
}

/// Returns the entry of a decision that does not execute the call.
fn decided_entry(call: &Call, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = call.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.files = requested_files(paths);
    call.entry(draft, None)
}

impl DecidingPerson {
    /// The reason in the record that names the person for whom the operator decides.
    pub(crate) fn reason(&self) -> Option<String> {
        self.on_behalf_of.as_ref().map(|name| format!("onBehalfOf:{name}"))
    }
}

/// Returns the approval as the decision leaves it. `code` is that of a call that could not be executed.
pub(crate) fn decided(
    approval: &Approval,
    decider: Option<&DecidingPerson>,
    state: ApprovalState,
    seq: Option<u64>,
    code: Option<Code>,
) -> Approval {
    let note = decider.and_then(|decider| decider.note.clone());
    let decided_by = decider.map(|decider| decider.operator.name.to_string());
    let mut decided = Approval { state, note, decided_by, decided_seq: seq, ..approval.clone() };
    decided.resolve(code);
    decided
}

/// The stored form of a decision. The vote of an operator who approves is stored once.
pub(crate) fn decision_of(
    approval: &Approval,
    decider: Option<&DecidingPerson>,
    state: ApprovalState,
) -> DecidedApproval {
    let approves = matches!(state, ApprovalState::Approved | ApprovalState::Failed | ApprovalState::Pending);
    let voter = decider.filter(|_| approves).map(|decider| &decider.operator.name);
    let voter = voter.filter(|voter| !approval.approved_by.iter().any(|known| known.is_same(voter))).cloned();
    let on_behalf_of = decider.and_then(|decider| decider.on_behalf_of.clone());
    let mut votes = approval.votes.clone();
    votes.extend(voter.iter().map(|operator| {
        let (operator, on_behalf_of) = (operator.clone(), on_behalf_of.clone());
        ApprovalVote { operator, on_behalf_of }
    }));
    DecidedApproval {
        edits_after: None,
        approval_id: approval.approval_id.clone(),
        state,
        voter,
        decided_by: decider.map(|decider| decider.operator.name.to_string()),
        on_behalf_of,
        votes: matches!(state, ApprovalState::Approved | ApprovalState::Failed).then_some(votes),
        note: decider.and_then(|decider| decider.note.clone()),
    }
}
