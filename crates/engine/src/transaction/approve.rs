//! Calls that wait for a person, and what becomes of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::{ApprovalDecision, Entry};
use model::{
    Approval, ApprovalFile, ApprovalId, ApprovalState, Code, Effect, LogicalPath, Outcome, Permission, Record, Refusal,
    RunId, Sha256, ToolCallId, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::together::{Failure, Outcomes, Plan};
use super::{Judged, Until, append, carry_out, not_pending, paths_of, prepare, recover, with_history};
use crate::CallError;
use crate::call::{
    Answer, CallContext, ChainHead, asked, is_unmet, reasons_of, refused_entry, stored_reply, verdict_of,
};
use crate::change_plan::ChangePlan;
use crate::engine::{Caller, Engine, OpenRun};
use crate::runs::quota::Asking;
use crate::tools::{self, ToolRun};

/// How long a person has to decide, in seconds.
const APPROVAL_SECONDS: i64 = 24 * 60 * 60;
/// Approvals that are ended in one go.
const APPROVALS_A_LOOK: u32 = 100;

/// Keeps the call for a person to decide.
pub(super) async fn ask(
    engine: &Engine,
    head: &CallContext,
    live: &Arc<OpenRun>,
    judged: Judged,
) -> Result<Answer, CallError> {
    let Judged { planned, decision, .. } = judged;
    let asking = match may_ask(engine, live).await {
        Ok(asking) => asking,
        Err(CallError::Refused(refusal)) => {
            return Err(engine.record_refused(head, &paths_of(&planned), refusal).await);
        }
        Err(error) => return Err(error),
    };
    let mut refusal = required(&decision.reasons, head.dry_run);
    if head.dry_run {
        let record = append(engine, head, pending_entry(head, &planned, &refusal)).await?;
        return Err(refusal.recorded(record.seq, record.hash).into());
    }
    let approval = approval_of(head, &planned, decision.reasons);
    refusal.details.approval_id = Some(approval.approval_id.clone());
    let mut entry = pending_entry(head, &planned, &refusal);
    entry.approval = Some((approval, head.input.clone()));
    let record = append(engine, head, entry).await?;
    asking.keep();
    live.awaits_approval();
    Err(refusal.recorded(record.seq, record.hash).into())
}

/// Whether the run may have one more call that waits.
async fn may_ask<'a>(engine: &Engine, live: &'a OpenRun) -> Result<Asking<'a>, CallError> {
    if let Ok(asking) = live.waiting.ask() {
        return Ok(asking);
    }
    // The ledger knows best how many there are.
    engine.refresh_state(live).await?;
    Ok(live.waiting.ask()?)
}

fn required(reasons: &[String], dry_run: bool) -> Refusal {
    let (message, hint) = if dry_run {
        let message = "the call would need a person's approval; this was a dry run, and nobody was asked";
        (message, "Make the call without dryRun: it then waits until a person has decided.")
    } else {
        let message = "the call needs a person's approval; nothing has changed yet";
        let hint = "Go on with other work: a person decides, and GET /v1/runs/{run}/tool-calls/{toolCallId} tells the outcome.";
        (message, hint)
    };
    Refusal::new(Code::ApprovalRequired, message, hint).with_details(|details| details.reasons = reasons.to_vec())
}

/// The record of a call that asks for a person, with what a repetition of it is answered.
fn pending_entry(head: &CallContext, planned: &ChangePlan, refusal: &Refusal) -> Entry {
    let mut draft = head.draft(Verdict::RequireApproval, Outcome::Pending);
    draft.code = Some(Code::ApprovalRequired);
    draft.reasons.clone_from(&refusal.details.reasons);
    draft.files = asked(&paths_of(planned));
    head.entry(draft, Some(stored_reply(refusal)))
}

/// What the approval of a batch names in place of a tool.
const BATCH: &str = "batch";
/// The longest reason that is made of several.
const MAX_REASON: usize = 2000;

/// The changes of a batch as they are kept, in their order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    calls: Vec<KeptCall>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptCall {
    tool: String,
    tool_call_id: ToolCallId,
    reason: String,
    input: String,
}

/// Keeps a batch for a person to decide: one approval for all of its changes. Its reads are left out.
pub(super) async fn ask_together(
    engine: &Engine,
    heads: &[CallContext],
    live: &Arc<OpenRun>,
    plan: Plan,
    dry_run: bool,
) -> Result<Outcomes, Failure> {
    let asking = may_ask(engine, live).await.map_err(Failure::All)?;
    let mut refusal = required(&plan.decision.reasons, dry_run);
    let mut approval = if dry_run { None } else { approval_of_all(heads, &plan)? };
    refusal.details.approval_id = approval.as_ref().map(|(approval, _)| approval.approval_id.clone());
    let mut answers = Vec::with_capacity(heads.len());
    let mut entries = Vec::with_capacity(heads.len());
    for (head, change) in heads.iter().zip(plan.changes()) {
        let (answer, entry) = if let Some(judged) = change {
            let mut entry = pending_entry(head, &judged.planned, &refusal);
            entry.approval = approval.take();
            (refusal.clone(), entry)
        } else {
            let left = left_out();
            let entry = refused_entry(head, &[], &left);
            (left, entry)
        };
        answers.push(answer);
        entries.push(entry);
    }
    let records = engine.record_together(heads, entries).await.map_err(Failure::of_recording)?;
    if !dry_run {
        asking.keep();
        live.awaits_approval();
    }
    let tell = |(answer, record): (Refusal, Record)| Err(answer.recorded(record.seq, record.hash).into());
    Ok(Outcomes { answers: answers.into_iter().zip(records).map(tell).collect(), failed: None })
}

/// A read of a batch whose changes wait.
fn left_out() -> Refusal {
    let message = "the read was left out: the changes of its batch need a person's approval";
    Refusal::new(Code::BatchNotDone, message, "Make the read by itself, now or when the batch is decided.")
}

/// The approval of all changes of a batch, with their inputs.
fn approval_of_all(heads: &[CallContext], plan: &Plan) -> Result<Option<(Approval, String)>, Failure> {
    let changes: Vec<_> = heads.iter().zip(plan.changes()).filter_map(|(head, change)| Some((head, change?))).collect();
    let Some((first, _)) = changes.first() else { return Ok(None) };
    let reasons: Vec<_> = changes.iter().filter_map(|(head, _)| head.reason.as_deref()).collect();
    let diff: Vec<u8> = changes.iter().flat_map(|(_, judged)| judged.planned.diff.iter().copied()).collect();
    let approval = Approval {
        tool: BATCH.to_owned(),
        reason: joined(&reasons),
        ..approval_from(first, files_of_all(plan), &diff, plan.decision.reasons.clone())
    };
    let calls = changes.iter().map(|(head, _)| KeptCall {
        tool: head.tool.name.to_owned(),
        tool_call_id: head.tool_call_id.clone(),
        reason: head.reason.clone().unwrap_or_default(),
        input: head.input.clone(),
    });
    let kept = serde_json::to_string(&Kept { calls: calls.collect() });
    Ok(Some((approval, kept.map_err(|error| Failure::Said(CallError::Internal(Box::new(error))))?)))
}

/// Every reason once, one a line.
fn joined(reasons: &[&str]) -> String {
    let mut seen = BTreeSet::new();
    let distinct: Vec<_> = reasons.iter().copied().filter(|reason| seen.insert(*reason)).collect();
    distinct.join("\n").chars().take(MAX_REASON).collect()
}

/// What each change of a batch comes to, in their order.
fn files_of_all(plan: &Plan) -> Vec<ApprovalFile> {
    plan.changes().flatten().flat_map(|judged| files_of(&judged.planned)).collect()
}

fn approval_of(head: &CallContext, planned: &ChangePlan, reasons: Vec<String>) -> Approval {
    approval_from(head, files_of(planned), &planned.diff, reasons)
}

fn approval_from(head: &CallContext, files: Vec<ApprovalFile>, diff: &[u8], reasons: Vec<String>) -> Approval {
    Approval {
        approval_id: crate::engine::new_approval_id(),
        run_id: head.run_id.clone(),
        tool_call_id: head.tool_call_id.clone(),
        tool: head.tool.name.to_owned(),
        reason: head.reason.clone().unwrap_or_default(),
        actor: head.caller.actor.clone(),
        state: ApprovalState::Pending,
        reasons,
        files,
        diff: String::from_utf8_lossy(diff).into_owned(),
        created_at: head.timestamp.clone(),
        expires_at: crate::engine::now_plus(APPROVAL_SECONDS),
        decided_by: None,
        note: None,
    }
}

/// What a planned change comes to, file by file: what an approval is bound to.
fn files_of(planned: &ChangePlan) -> Vec<ApprovalFile> {
    let file = |change: &model::Change| ApprovalFile {
        path: change.path.clone(),
        operation: match change.effect {
            Effect::Create => "create",
            Effect::Replace => "replace",
            Effect::Delete => "delete",
            Effect::MoveFrom { .. } | Effect::MoveTo { .. } => "move",
        }
        .to_owned(),
        old_sha256: change.before.as_ref().map(|state| state.sha256),
        new_sha256: change.after.as_ref().map(|content| content.sha256),
    };
    planned.changes.changes.iter().map(file).collect()
}

/// An approval that was decided by the call that is answered.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResult {
    #[serde(flatten)]
    approval: Approval,
    /// The record that the decision left in the run's audit; of a batch, its last.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// That record's hash, the head of the run's chain when it was written: who keeps it is a witness of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_hash: Option<Sha256>,
}

impl ApprovalResult {
    fn new(approval: Approval, head: Option<ChainHead>) -> Self {
        Self { approval, seq: head.map(|head| head.seq), head_hash: head.and_then(|head| head.hash) }
    }
}

/// Who decides over an approval.
#[derive(Clone, Debug)]
pub struct Decider {
    /// A person, as the orchestrator names them.
    pub decided_by: String,
    /// What they note.
    pub note: Option<String>,
}

impl Engine {
    /// Carries out the call that waits for `id`, if it still does what was approved.
    ///
    /// The call is planned and judged again against the files as they are now. Where that comes to another change, or to
    /// a refusal, the approval fails and nothing changes.
    pub async fn approve(&self, id: &ApprovalId, decider: Decider) -> Result<ApprovalResult, CallError> {
        let approval = self.pending(id).await?;
        let engine = self.clone();
        let head = self.detached(async move { engine.carry_out_approved(&approval, &decider).await }).await?;
        Ok(ApprovalResult::new(self.approval(id).await?, head))
    }

    /// Turns the call that waits for `id` down.
    pub async fn deny(&self, id: &ApprovalId, decider: Decider) -> Result<ApprovalResult, CallError> {
        let approval = self.pending(id).await?;
        let heads = self.heads_of(&approval, Some(&decider)).await?;
        let refusal = Refusal::new(Code::PolicyDenied, "a person has turned the call down", "Ask the operator why.")
            .with_details(|details| details.reasons = vec![format!("approval:{id}:denied")]);
        let head = self.record_decision(&heads, &approval, Some(&decider), ApprovalState::Denied, &refusal).await?;
        Ok(ApprovalResult::new(self.approval(id).await?, head))
    }

    /// The approval `id`.
    pub async fn approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let found = self.ledger.approval(id).await?;
        Ok(found.ok_or_else(|| {
            Refusal::new(Code::NotFound, "there is no such approval", "List them with GET /v1/approvals.")
        })?)
    }

    async fn pending(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let approval = self.approval(id).await?;
        if approval.state != ApprovalState::Pending {
            return Err(not_pending().into());
        }
        if approval.expires_at <= crate::engine::latest() {
            self.expire(&approval).await?;
            return Err(not_pending().into());
        }
        Ok(approval)
    }

    /// Ends an approval whose time is over: nobody has decided, and the call's record says so.
    pub async fn expire(&self, approval: &Approval) -> Result<(), CallError> {
        let heads = self.heads_of(approval, None).await?;
        let message = "nobody has approved the call in time; nothing was changed";
        let refusal = Refusal::new(Code::ApprovalRequired, message, "Make the call anew under another ID.")
            .with_details(|details| details.reasons = vec![format!("approval:{}:expired", approval.approval_id)]);
        unless_decided(self.record_decision(&heads, approval, None, ApprovalState::Expired, &refusal).await)
    }

    /// Ends every approval of a run that takes no more mutations: what it asks for can never be done, and nobody shall
    /// decide over it in vain. To be called before what the run's records left is purged.
    pub async fn end_approvals(&self, run: &RunId) -> Result<(), CallError> {
        let (waiting, mut after) = (Some(ApprovalState::Pending), None);
        loop {
            let pending = self.ledger.approvals(waiting, Some(run), after, APPROVALS_A_LOOK.into()).await?;
            let Some((last, _)) = pending.last() else { return Ok(()) };
            after = Some(*last);
            for (_, approval) in pending.iter() {
                tracing::info!(run.id = %run, approval.id = %approval.approval_id, "nobody can approve this call any more");
                let heads = self.heads_of(approval, None).await?;
                let message =
                    "the run takes no more mutations, so that nobody can approve the call; nothing was changed";
                let refusal = Refusal::new(Code::RunClosed, message, "Ask the orchestrator for a new run.")
                    .with_details(|details| {
                        details.reasons = vec![format!("approval:{}:failed", approval.approval_id)]
                    });
                let done = self.record_decision(&heads, approval, None, ApprovalState::Failed, &refusal).await;
                unless_decided(done)?;
            }
        }
    }

    /// The newest record that the decision has left.
    async fn carry_out_approved(&self, approval: &Approval, decider: &Decider) -> Result<Option<ChainHead>, CallError> {
        let heads = self.heads_of(approval, Some(decider)).await?;
        let live = self.live(&approval.run_id).await?;
        let approval_decision = decision_of(approval, Some(decider), ApprovalState::Approved);
        let done = match heads.as_slice() {
            [head] if approval.tool != BATCH => match self.judge_again(head, &live, approval).await {
                Ok((_pass, judged)) => match carry_out(self, head, &live, judged, Some(approval_decision)).await {
                    Err(error) if is_unmet(&error) => Err(error),
                    done => Ok(done?.head),
                },
                Err(error) => Err(error),
            },
            heads => match self.judge_all_again(heads, &live, approval).await {
                Ok((_pass, plan)) => {
                    let done = self.commit_together(heads, &live, plan, Some(approval_decision)).await;
                    let head_of =
                        |done: Outcomes| done.answers.iter().flatten().filter_map(|answer| answer.head).next_back();
                    match done.map_err(Failure::into_error) {
                        Err(error) if is_unmet(&error) => Err(error),
                        done => Ok(head_of(done?)),
                    }
                }
                Err(failure) => Err(failure.into_error()),
            },
        };
        match done {
            Ok(head) => {
                self.refresh_state(&live).await?;
                Ok(head)
            }
            Err(CallError::Refused(refusal)) if !refusal.code.is_retryable() => {
                self.record_decision(&heads, approval, Some(decider), ApprovalState::Failed, &refusal).await
            }
            // What passes by itself leaves the approval pending.
            Err(CallError::Refused(refusal)) => {
                let paths: Vec<_> = approval.files.iter().map(|file| file.path.clone()).collect();
                match heads.first() {
                    Some(head) => Err(self.record_refused(head, &paths, refusal).await),
                    None => Err(refusal.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Plans and judges a batch again; refused unless it comes to the changes that were approved.
    async fn judge_all_again<'a>(
        &self,
        heads: &[CallContext],
        live: &'a Arc<OpenRun>,
        approval: &Approval,
    ) -> Result<(crate::runs::path_locks::PathGuard<'a>, Plan), Failure> {
        let mut parts = Vec::with_capacity(heads.len());
        for head in heads {
            let members = kept_members(head).map_err(Failure::All)?;
            parts.push(self.part(head, live, members).await.map_err(Failure::All)?);
        }
        let (pass, plan) = self.prepare_together(heads, live, parts).await?;
        if files_of_all(&plan) != approval.files {
            return Err(Failure::All(other_change().into()));
        }
        Ok((pass, plan))
    }

    /// Plans and judges the call again; refused unless it comes to the change that was approved.
    async fn judge_again<'a>(
        &self,
        head: &CallContext,
        live: &'a Arc<OpenRun>,
        approval: &Approval,
    ) -> Result<(crate::runs::path_locks::PathGuard<'a>, Judged), CallError> {
        let members = kept_members(head)?;
        let ToolRun::Mutation(parse) = head.tool.run else {
            return Err(CallError::Internal("a kept call is no mutation".into()));
        };
        let tool = with_history(self, live, parse(members)?).await?;
        let held = if tool.exclusive() { vec![model::LogicalPath::root()] } else { tool.paths() };
        let pass = recover::enter_settled(self, live, held).await?;
        let judged = prepare(self, head, live, tool, Until::StagedAsApproved).await?;
        if judged.decision.verdict == Verdict::Deny {
            let reasons = judged.decision.reasons.clone();
            return Err(judged.decision.refusal.unwrap_or_else(|| super::denied(reasons)).into());
        }
        if files_of(&judged.planned) != approval.files {
            return Err(other_change().into());
        }
        Ok((pass, judged))
    }

    async fn record_decision(
        &self,
        heads: &[CallContext],
        approval: &Approval,
        decider: Option<&Decider>,
        state: ApprovalState,
        refusal: &Refusal,
    ) -> Result<Option<ChainHead>, CallError> {
        let paths: BTreeSet<_> = approval.files.iter().map(|file| file.path.clone()).collect();
        let paths: Vec<_> = paths.into_iter().collect();
        let mut entries: Vec<_> = heads.iter().map(|head| undone_entry(head, &paths, refusal)).collect();
        if let Some(first) = entries.first_mut() {
            first.approval_decision = Some(decision_of(approval, decider, state));
        }
        let records = self.record_together(heads, entries).await?;
        // A run that nobody has open learns it from the ledger.
        if let Some(live) = self.runs.get(&approval.run_id) {
            self.refresh_state(&live).await?;
        }
        Ok(records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash }))
    }

    /// The calls as they were made, with the one who decides as their actor: one, or those of a batch.
    async fn heads_of(&self, approval: &Approval, decider: Option<&Decider>) -> Result<Vec<CallContext>, CallError> {
        let input = self.ledger.approval_input(&approval.approval_id).await?.unwrap_or_default();
        let calls = if approval.tool == BATCH {
            let kept: Kept = serde_json::from_str(&input).map_err(|error| CallError::Internal(Box::new(error)))?;
            kept.calls
        } else {
            let (tool, tool_call_id) = (approval.tool.clone(), approval.tool_call_id.clone());
            vec![KeptCall { tool, tool_call_id, reason: approval.reason.clone(), input }]
        };
        let mut heads = Vec::with_capacity(calls.len());
        for call in calls {
            // What is kept of the input has no credentials in it: only the record knows the whole input's hash.
            let first = self.ledger.call(&approval.run_id, &call.tool_call_id).await?;
            let input_sha256 = first.map_or_else(|| Sha256::of(call.input.as_bytes()), |first| first.input_sha256);
            heads.push(head_of(&approval.run_id, call, input_sha256, decider)?);
        }
        Ok(heads)
    }
}

fn head_of(
    run: &RunId,
    call: KeptCall,
    input_sha256: Sha256,
    decider: Option<&Decider>,
) -> Result<CallContext, CallError> {
    let tool = tools::find_recorded(&call.tool).ok_or_else(|| CallError::Internal("a kept call has no tool".into()))?;
    Ok(CallContext {
        run_id: run.clone(),
        tool,
        tool_call_id: call.tool_call_id,
        // The ID is this call's own: nothing to check.
        client_supplied_id: false,
        step_id: None,
        input_sha256,
        input: call.input,
        caller: Caller {
            actor: decider.map_or_else(|| "service".to_owned(), |decider| format!("operator:{}", decider.decided_by)),
            permissions: Permission::ALL.into_iter().collect(),
            token: None,
        },
        reason: Some(call.reason),
        dry_run: false,
        mount: None,
        timestamp: crate::engine::now(),
        started: std::time::Instant::now(),
    })
}

/// Somebody who was faster is no fault.
fn unless_decided(done: Result<Option<ChainHead>, CallError>) -> Result<(), CallError> {
    match done {
        Err(CallError::Refused(refusal)) if refusal.code == Code::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

/// The tool's own members of a kept input.
fn kept_members(head: &CallContext) -> Result<Map<String, Value>, CallError> {
    let Ok(Value::Object(members)) = serde_json::from_str(&head.input) else {
        return Err(CallError::Internal("a kept input is no object".into()));
    };
    Ok(CallContext::without_common(members))
}

fn other_change() -> Refusal {
    let message = "the files have changed since the call was made: it would come to another change";
    Refusal::new(Code::WriteConflict, message, "Read the files again and make a new call.")
}

/// The record of a decision that is not to carry the call out.
fn undone_entry(head: &CallContext, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = head.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.files = asked(paths);
    head.entry(draft, None)
}

fn decision_of(approval: &Approval, decider: Option<&Decider>, state: ApprovalState) -> ApprovalDecision {
    ApprovalDecision {
        approval_id: approval.approval_id.clone(),
        state,
        decided_by: decider.map(|decider| decider.decided_by.clone()),
        note: decider.and_then(|decider| decider.note.clone()),
    }
}
