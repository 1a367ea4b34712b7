//! Decisions about pending approvals: approve, deny, expire.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ledger::{ApprovalDecision, ApprovalFilter, Entry, Epoch};
use model::{
    Approval, ApprovalId, ApprovalState, ApprovalVote, By, Code, EvidenceFact, LogicalPath, Outcome, Permission,
    Refusal, RunId, Sha256,
};
use serde::Serialize;
use serde_json::Value;

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::call::record::{reasons_of, requested_files, verdict_of};
use crate::call::{CallContext, ChainHead, View};
use crate::call_error::refusals::approval_not_pending;
use crate::clock::{latest, now};
use crate::engine::{Caller, Engine, RequestIds};
use crate::tools;
use crate::transaction::ask::{BATCH, StoredBatch, StoredCall};
use crate::transaction::{Operation, Parsed};

/// Approvals that are ended at a time.
const PAGE: u32 = 100;

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

impl ApprovalResult {
    fn new(approval: Approval, head: Option<ChainHead>) -> Self {
        Self { approval, seq: head.map(|head| head.seq), head_hash: head.and_then(|head| head.hash) }
    }
}

/// The person who decides about an approval.
#[derive(Clone, Debug)]
pub struct Decider {
    /// The operator.
    pub operator: Arc<OperatorIdentity>,
    /// The person for whom the operator decides.
    pub on_behalf_of: Option<String>,
    /// The note.
    pub note: Option<String>,
    /// The HTTP request of the decision.
    pub request: Option<Arc<RequestIds>>,
}

impl Engine {
    /// Approves the call that waits for `id`, and executes it if it still makes the approved change. Runs to completion even if the
    /// client disconnects.
    ///
    /// If the run's policy requires several operators, the approval stays pending until the last of them approves.
    ///
    /// The call is planned and judged again with the present files. If that results in another change or a refusal, the approval
    /// fails and nothing changes.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `ALREADY_EXISTS` if it is decided; `FORBIDDEN` if policy requires another operator; `UNAVAILABLE`, which
    /// leaves it pending.
    pub async fn approve(&self, id: &ApprovalId, decider: Decider) -> Result<ApprovalResult, CallError> {
        let (engine, id) = (self.clone(), id.clone());
        self.detached(async move { engine.record_approval(&id, &decider).await }).await
    }

    async fn record_approval(&self, id: &ApprovalId, decider: &Decider) -> Result<ApprovalResult, CallError> {
        failpoint::hit("decision.begin");
        let mut approval = self.pending_approval(id).await?;
        let mut voting = None;
        if approval.approvers > 1 {
            voting = Some(self.votes.lock(id).await);
            approval = self.pending_approval(id).await?;
        }
        let vote = self.check_vote(&mut approval, decider).await?;
        if !vote.is_last() {
            let head = self.record_vote(&approval, decider, vote).await?;
            return Ok(ApprovalResult::new(self.approval(id).await?, head));
        }
        let head = Box::pin(self.execute_approval(&approval, decider)).await?;
        drop(voting);
        Ok(ApprovalResult::new(self.approval(id).await?, head))
    }

    /// Denies the call that waits for `id`. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `ALREADY_EXISTS` if it is decided.
    pub async fn deny(&self, id: &ApprovalId, decider: Decider) -> Result<ApprovalResult, CallError> {
        let (engine, id) = (self.clone(), id.clone());
        self.detached(async move { engine.record_denial(&id, &decider).await }).await
    }

    async fn record_denial(&self, id: &ApprovalId, decider: &Decider) -> Result<ApprovalResult, CallError> {
        failpoint::hit("decision.begin");
        let approval = self.pending_approval(id).await?;
        let refusal = Refusal::new(Code::PolicyDenied, "a person has denied the call", "Ask the operator why.")
            .with_details(|details| {
                details.reasons = vec![format!("approval:{id}:denied")];
                details.reasons.extend(decider.reason());
            });
        let head = self.record_decision(&approval, Some(decider), ApprovalState::Denied, &refusal, None).await?;
        Ok(ApprovalResult::new(self.approval(id).await?, head))
    }

    /// Returns the approval `id` as the ledger has it.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub async fn approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let found = self.ledger.approval(id).await?;
        Ok(found.ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("the approval `{id}` does not exist"),
                "List approvals with GET /v1/approvals.",
            )
        })?)
    }

    async fn pending_approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let approval = self.approval(id).await?;
        if approval.state != ApprovalState::Pending {
            return Err(approval_not_pending().into());
        }
        if approval.expires_at <= latest() {
            // Only within a decision, which runs to completion.
            self.expire(&approval).await?;
            return Err(approval_not_pending().into());
        }
        Ok(approval)
    }

    /// Records that an approval has expired.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub async fn expire(&self, approval: &Approval) -> Result<(), CallError> {
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
    pub async fn end_approvals(&self, run: &RunId) -> Result<(), CallError> {
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

    /// Executes approved calls. Returns the newest record of the decision.
    async fn execute_approval(&self, approval: &Approval, decider: &Decider) -> Result<Option<ChainHead>, CallError> {
        let run = self.open(&approval.run_id).await?;
        let mut calls = self.stored_calls(approval, Some(decider)).await?;
        for call in &mut calls {
            call.epoch = run.epoch;
        }
        let mut parsed = Vec::with_capacity(calls.len());
        for call in &calls {
            let Ok(Value::Object(members)) = serde_json::from_str(&call.input) else {
                return Err(CallError::Internal("a stored input is not an object".into()));
            };
            parsed.push((call.clone(), Operation::parse(call, CallContext::without_common(members))));
        }
        let decision = decision_of(approval, Some(decider), ApprovalState::Approved);
        let executed = self.execute_approved(&run, Parsed::new(&run, parsed), approval.files.clone(), decision).await;
        match executed.map_err(crate::call::record::Failure::into_error) {
            Ok(answers) => {
                self.refresh_state(&run).await?;
                let head = answers.iter().filter_map(|answer| answer.head).next_back();
                let seq = head.map(|head| head.seq);
                run.decisions.decided(&decided(approval, Some(decider), ApprovalState::Approved, seq, None));
                Ok(head)
            }
            // The operator may not decide any more: the approval stays pending.
            Err(error) if error.is(Code::Unauthenticated) => Err(error),
            Err(CallError::Refused(refusal)) if !refusal.code.is_retryable() => {
                self.record_decision(approval, Some(decider), ApprovalState::Failed, &refusal, run.epoch).await
            }
            // A retryable refusal leaves the approval pending.
            Err(error @ CallError::Refused(_)) => {
                let paths: Vec<_> = approval.files.iter().map(|file| file.path.clone()).collect();
                match calls.first() {
                    Some(call) => Err(self.record_error(call, &paths, error).await),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Records a decision that does not execute the calls. `epoch` is that of the run as it was opened, if the refusal depends on its
    /// files.
    async fn record_decision(
        &self,
        approval: &Approval,
        decider: Option<&Decider>,
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
        let records = self.append_for(&calls, entries).await?;
        // A run that is not open reads its state from the ledger.
        if let Some(run) = self.runs.get(&approval.run_id) {
            self.refresh_state(&run).await?;
            let seq = records.last().map(|record| record.seq);
            run.decisions.decided(&decided(approval, decider, state, seq, Some(refusal.code)));
        }
        Ok(records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash }))
    }

    /// Loads the calls that wait for the approval, with the operator who decides as their actor.
    pub(crate) async fn stored_calls(
        &self,
        approval: &Approval,
        decider: Option<&Decider>,
    ) -> Result<Vec<CallContext>, CallError> {
        let input = self.ledger.approval_input(&approval.approval_id).await?.unwrap_or_default();
        let stored = if approval.tool == BATCH {
            let batch: StoredBatch =
                serde_json::from_str(&input).map_err(|error| CallError::Internal(Box::new(error)))?;
            batch.calls
        } else {
            let (tool, tool_call_id) = (approval.tool.clone(), approval.tool_call_id.clone());
            vec![StoredCall { tool, tool_call_id, reason: approval.reason.clone(), input }]
        };
        let mut calls = Vec::with_capacity(stored.len());
        for call in stored {
            // Credentials were removed from the stored input, so the hash of the whole input is taken from the record.
            let first = self.ledger.call(&approval.run_id, &call.tool_call_id).await?;
            let input_sha256 = first.map_or_else(|| Sha256::of(call.input.as_bytes()), |first| first.input_sha256);
            calls.push(context_of(approval, call, input_sha256, decider)?);
        }
        Ok(calls)
    }
}

fn context_of(
    approval: &Approval,
    call: StoredCall,
    input_sha256: Sha256,
    decider: Option<&Decider>,
) -> Result<CallContext, CallError> {
    let tool =
        tools::find_recorded(&call.tool).ok_or_else(|| CallError::Internal("a stored call has no tool".into()))?;
    Ok(CallContext {
        run_id: approval.run_id.clone(),
        tool,
        tool_call_id: call.tool_call_id,
        // The record of the call itself has this ID.
        client_supplied_id: false,
        step_id: None,
        input_sha256,
        evidence: CallContext::stored_evidence(&call.input),
        // A person has approved the change, so that the evidence is only recorded.
        evidence_fact: EvidenceFact::Missing,
        made_by: Some(By::of_actor(&approval.actor)),
        input: call.input,
        caller: Caller {
            actor: decider.map_or_else(|| "service".to_owned(), |decider| decider.operator.actor()),
            permissions: Permission::ALL.into_iter().collect(),
            token: decider.and_then(|decider| decider.operator.required_token()),
            request: decider.and_then(|decider| decider.request.clone()),
        },
        reason: Some(call.reason),
        dry_run: false,
        mount: None,
        view: View::Json,
        epoch: None,
        timestamp: now(),
        started: Instant::now(),
    })
}

/// Ignores the error that another caller has decided first.
fn unless_decided(decided: Result<Option<ChainHead>, CallError>) -> Result<(), CallError> {
    match decided {
        Err(error) if error.is(Code::AlreadyExists) => Ok(()),
        decided => decided.map(drop),
    }
}

/// Returns the entry of a decision that does not execute the call.
fn decided_entry(call: &CallContext, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = call.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.files = requested_files(paths);
    call.entry(draft, None)
}

impl Decider {
    /// The reason in the record that names the person for whom the operator decides.
    pub(crate) fn reason(&self) -> Option<String> {
        self.on_behalf_of.as_ref().map(|name| format!("onBehalfOf:{name}"))
    }
}

/// Returns the approval as the decision leaves it. `code` is that of a call that could not be executed.
fn decided(
    approval: &Approval,
    decider: Option<&Decider>,
    state: ApprovalState,
    seq: Option<u64>,
    code: Option<Code>,
) -> Approval {
    let note = decider.and_then(|decider| decider.note.clone());
    let mut decided = Approval { state, note, decided_seq: seq, ..approval.clone() };
    decided.resolve(code);
    decided
}

/// The stored form of a decision. The vote of an operator who approves is stored once.
pub(crate) fn decision_of(approval: &Approval, decider: Option<&Decider>, state: ApprovalState) -> ApprovalDecision {
    let approves = matches!(state, ApprovalState::Approved | ApprovalState::Failed | ApprovalState::Pending);
    let voter = decider.filter(|_| approves).map(|decider| &decider.operator.name);
    let voter = voter.filter(|voter| !approval.approved_by.iter().any(|known| known.is_same(voter))).cloned();
    let on_behalf_of = decider.and_then(|decider| decider.on_behalf_of.clone());
    let mut votes = approval.votes.clone();
    votes.extend(voter.iter().map(|operator| {
        let (operator, on_behalf_of) = (operator.clone(), on_behalf_of.clone());
        ApprovalVote { operator, on_behalf_of }
    }));
    ApprovalDecision {
        approval_id: approval.approval_id.clone(),
        state,
        voter,
        decided_by: decider.map(|decider| decider.operator.name.to_string()),
        on_behalf_of,
        votes: matches!(state, ApprovalState::Approved | ApprovalState::Failed).then_some(votes),
        note: decider.and_then(|decider| decider.note.clone()),
    }
}
