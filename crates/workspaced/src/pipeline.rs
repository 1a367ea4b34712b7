//! The one way that a file changes: plan → judge → journal and record → apply.
//!
//! The journal's steps and the audit record become durable in one commit, before a byte of the tree moves. Whatever
//! happens afterwards, the steps can be done again until they are done; a file is synced behind the answer, and only
//! then does the ledger forget its steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::{Appended, Artifact, Entry, OpenSteps, Reply};
use model::{
    Approval, ApprovalFile, ApprovalState, Code, Decision, Effect, LogicalPath, Outcome, Record, Refusal, RunState,
    Step, Usage, Verdict, judge_change,
};
use serde_json::{Map, Value};
use workspace::{Applied, ApplyFault, DiffQuery, Redo};

use crate::CallError;
use crate::calls::{Answer, Head, asked, forbidden, run_not_open, stored_reply};
use crate::change::Planned;
use crate::service::{LiveRun, Service};
use crate::tools::{Mutation, PlanContext, record_files};

/// How long a person has to decide, in seconds.
const APPROVAL_SECONDS: i64 = 24 * 60 * 60;

/// A mutation that was planned and judged.
struct Judged {
    planned: Planned,
    decision: Decision,
    usage: Usage,
}

/// Carries out a mutation, or answers what its first call was answered.
pub(crate) async fn mutate(
    service: &Service,
    head: Head,
    live: &Arc<LiveRun>,
    parse: impl FnOnce() -> Result<Box<dyn Mutation>, Refusal>,
) -> Result<Answer, CallError> {
    // Two calls under one ID must not both find that it is new.
    let _turn = if head.claimed { Some(live.claims.enter(&head.tool_call_id).await) } else { None };
    if let Some(answer) = replay(service, &head).await? {
        return answer;
    }
    let tool = match parse() {
        Ok(tool) => tool,
        Err(refusal) => return Err(service.record_refused(&head, &[], refusal).await),
    };
    let paths = tool.paths();
    let held = if tool.exclusive() { vec![LogicalPath::root()] } else { paths.clone() };
    let _pass = live.lane.enter(held).await;
    let judged = match prepare(service, &head, live, tool).await {
        Ok(judged) => judged,
        Err(CallError::Refused(refusal)) => return Err(service.record_refused(&head, &paths, refusal).await),
        Err(error) => return Err(service.record_failed(&head, &paths, error).await),
    };
    match judged.decision.verdict {
        Verdict::Allow if head.dry_run => finish_dry_run(service, &head, judged).await,
        Verdict::Allow => carry_out(service, &head, live, judged).await,
        Verdict::RequireApproval => ask(service, &head, live, judged).await,
        Verdict::Deny => {
            let refusal = judged.decision.refusal.unwrap_or_else(|| denied(judged.decision.reasons));
            Err(service.record_refused(&head, &paths, refusal).await)
        }
    }
}

/// The first answer of this call, if it is a repetition.
async fn replay(service: &Service, head: &Head) -> Result<Option<Result<Answer, CallError>>, CallError> {
    if !head.claimed {
        return Ok(None);
    }
    let Some(call) = service.0.ledger.call(&head.run_id, &head.tool_call_id).await? else { return Ok(None) };
    if call.tool != head.tool.name || call.input_sha256 != head.input_sha256 {
        return Ok(Some(Err(service.record_reused(head).await)));
    }
    // A call that failed by a fault of ours left no answer: it may be tried again.
    let Some(reply) = call.reply else { return Ok(None) };
    let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
    if reply.status == DONE {
        let members: Map<String, Value> = serde_json::from_str(&reply.body).map_err(internal)?;
        return Ok(Some(Ok(done_answer(head, members, call.seq))));
    }
    let refusal: Refusal = serde_json::from_str(&reply.body).map_err(internal)?;
    Ok(Some(Err(refusal.about(|about| about.seq = Some(call.seq)).into())))
}

/// The `status` of a stored reply that holds an answer's members; any other holds a refusal.
const DONE: u16 = 200;

/// Plans and judges, where blocking is allowed.
async fn prepare(
    service: &Service,
    head: &Head,
    live: &Arc<LiveRun>,
    tool: Box<dyn Mutation>,
) -> Result<Judged, CallError> {
    match live.state() {
        RunState::Open | RunState::AwaitingApproval => {}
        state @ (RunState::Preparing | RunState::Closed | RunState::Deleted) => return Err(run_not_open(state).into()),
    }
    if live.lane.is_unsettled() {
        settle(service, live).await?;
    }
    if live.needs_repair.load(Ordering::Acquire) {
        return Err(needs_repair().into());
    }
    let (run, head) = (Arc::clone(live), head.clone());
    service.blocking(move || plan_and_judge(&run, &head, tool.as_ref())).await
}

fn plan_and_judge(live: &LiveRun, head: &Head, tool: &dyn Mutation) -> Result<Judged, CallError> {
    let targets = live.workspace.targets(&live.rules, &tool.paths())?;
    if let Some(needed) = tool.permission(&targets).filter(|needed| !head.caller.permissions.contains(needed)) {
        return Err(forbidden(&[needed]).into());
    }
    let context = PlanContext { rules: &live.rules, base_commit: live.workspace.base_commit() };
    let mut planned = tool.plan(&context, targets)?;
    if planned.tells_workspace_diff {
        let hash = workspace_diff_after(live, &planned)?;
        planned.output.insert("newWorkspaceDiffSha256".to_owned(), Value::from(hash.to_string()));
    }
    let facts = planned.facts();
    let decision = judge_change(&live.rules, &facts, &live.lane.usage());
    let usage = usage_of(&planned);
    Ok(Judged { planned, decision, usage })
}

/// The hash of the workspace's whole diff as it will be.
fn workspace_diff_after(live: &LiveRun, planned: &Planned) -> Result<model::Sha256, CallError> {
    let _ = planned;
    let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
    Ok(live.workspace.diff(&live.rules, &query, &AtomicBool::new(false))?.diff_sha256)
}

fn usage_of(planned: &Planned) -> Usage {
    let counts = planned.changes.counts();
    let changes = &planned.changes.changes;
    Usage {
        files_touched: changes.len() as u64,
        insertions: counts.insertions,
        deletions: counts.deletions,
        files_deleted: changes.iter().filter(|change| change.effect == Effect::Delete).count() as u64,
        bytes: changes
            .iter()
            .filter_map(|change| change.after.as_ref())
            .map(|content| content.bytes.len() as u64)
            .sum(),
    }
}

/// Stages, journals and records, applies, answers.
async fn carry_out(service: &Service, head: &Head, live: &Arc<LiveRun>, judged: Judged) -> Result<Answer, CallError> {
    let Judged { planned, usage, decision } = judged;
    let steps = planned.changes.to_steps();
    let staged = {
        let (run, steps) = (Arc::clone(live), steps.clone());
        service.blocking(move || run.workspace.stage(&steps).map_err(CallError::from)).await
    };
    let paths = paths_of(&planned);
    let staged = match staged {
        Ok(staged) => staged,
        Err(CallError::Refused(refusal)) => return Err(refusal.into()),
        Err(error) => return Err(service.record_failed(head, &paths, error).await),
    };
    let (entry, members) = entry_of(head, planned, decision, steps, usage.clone());
    live.lane.reserve(&usage);
    crate::failpoint::hit("pipeline.staged");
    let record = match service.0.ledger.append(entry).await {
        Ok(Appended::Recorded(record)) => record,
        Ok(Appended::Reused) => {
            live.lane.release(&usage);
            return Err(service.record_reused(head).await);
        }
        Ok(Appended::NotPending) => {
            live.lane.release(&usage);
            return Err(not_pending().into());
        }
        Err(error) => {
            // The commit may have come through all the same; the next mutation looks before it plans.
            live.lane.release(&usage);
            live.lane.set_unsettled(true);
            return Err(error.into());
        }
    };
    crate::failpoint::hit("pipeline.journalled");
    let run = Arc::clone(live);
    let applied = tokio::task::spawn_blocking(move || run.workspace.apply(staged)).await;
    crate::failpoint::hit("pipeline.applied");
    match applied {
        Ok(Ok(applied)) => service.0.syncer.push(live, record.seq, applied).await,
        Ok(Err(ApplyFault::ChangedOutside(changed))) => {
            mark_for_repair(service, live, &changed).await?;
            return Err(needs_repair().into());
        }
        Ok(Err(ApplyFault::Io(error))) => {
            live.lane.set_unsettled(true);
            settle(service, live).await.map_err(|_| CallError::from(error))?;
        }
        Err(panic) => {
            live.lane.set_unsettled(true);
            settle(service, live).await.map_err(|_| CallError::Internal(Box::new(panic)))?;
        }
    }
    Ok(done_answer(head, members, record.seq))
}

/// The ledger's entry of a change, and the answer's members but for `seq`.
fn entry_of(
    head: &Head,
    planned: Planned,
    decision: Decision,
    steps: Vec<Step>,
    usage: Usage,
) -> (Entry, Map<String, Value>) {
    let artifact_id = crate::service::new_artifact_id();
    let uri = format!("artifact://{}/{artifact_id}", head.run_id);
    let mut draft = head.draft(Verdict::Allow, Outcome::Ok);
    draft.artifact_uris = vec![uri.clone()];
    draft.paths_written = paths_of(&planned);
    draft.files = record_files(&planned);
    draft.reasons = decision.reasons;
    let mut members = planned.output;
    members.insert("artifactUris".to_owned(), Value::from(vec![uri]));
    members.insert("summary".to_owned(), Value::from(planned.summary));
    members.insert("warnings".to_owned(), Value::from(planned.warnings));
    let reply = Reply { status: DONE, body: Value::Object(members.clone()).to_string() };
    let mut entry = head.entry(draft, Some(reply));
    entry.steps = steps;
    entry.artifact = Some(Artifact { artifact_id, diff: planned.diff });
    entry.usage = usage;
    (entry, members)
}

async fn finish_dry_run(service: &Service, head: &Head, judged: Judged) -> Result<Answer, CallError> {
    let planned = judged.planned;
    let mut draft = head.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = paths_of(&planned);
    draft.reasons = judged.decision.reasons;
    draft.reasons.push("dryRun".to_owned());
    let mut members = planned.output;
    for (name, value) in [("applied", false), ("dryRun", true)] {
        if members.contains_key(name) {
            members.insert(name.to_owned(), Value::from(value));
        }
    }
    members.insert("artifactUris".to_owned(), Value::Array(Vec::new()));
    members.insert("summary".to_owned(), Value::from(format!("dry run: would have {}", planned.summary)));
    members.insert("warnings".to_owned(), Value::from(planned.warnings));
    let reply = Reply { status: DONE, body: Value::Object(members.clone()).to_string() };
    let record = append(service, head, head.entry(draft, Some(reply))).await?;
    Ok(done_answer(head, members, record.seq))
}

/// Keeps the call for a person to decide.
async fn ask(service: &Service, head: &Head, live: &Arc<LiveRun>, judged: Judged) -> Result<Answer, CallError> {
    let Judged { planned, decision, .. } = judged;
    let mut refusal = Refusal::new(
        Code::ApprovalRequired,
        "the call needs a person's approval; nothing has changed yet",
        "Go on with other work: a person decides, and GET /v1/runs/{run}/tool-calls/{toolCallId} tells the outcome.",
    );
    refusal.about.reasons.clone_from(&decision.reasons);
    let mut draft = head.draft(Verdict::RequireApproval, Outcome::Pending);
    draft.code = Some(Code::ApprovalRequired);
    draft.reasons.clone_from(&decision.reasons);
    draft.files = asked(&paths_of(&planned));
    if head.dry_run {
        let record = append(service, head, head.entry(draft, Some(stored_reply(&refusal)))).await?;
        return Err(refusal.about(|about| about.seq = Some(record.seq)).into());
    }
    let approval = approval_of(head, &planned, decision.reasons);
    refusal.about.approval_id = Some(approval.approval_id.clone());
    let mut entry = head.entry(draft, Some(stored_reply(&refusal)));
    entry.approval = Some((approval, head.input.clone()));
    let record = append(service, head, entry).await?;
    live.awaits_approval();
    Err(refusal.about(|about| about.seq = Some(record.seq)).into())
}

fn approval_of(head: &Head, planned: &Planned, reasons: Vec<String>) -> Approval {
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
    Approval {
        approval_id: crate::service::new_approval_id(),
        run_id: head.run_id.clone(),
        tool_call_id: head.tool_call_id.clone(),
        tool: head.tool.name.to_owned(),
        reason: head.reason.clone().unwrap_or_default(),
        actor: head.caller.actor.clone(),
        state: ApprovalState::Pending,
        reasons,
        files: planned.changes.changes.iter().map(file).collect(),
        diff: String::from_utf8_lossy(&planned.diff).into_owned(),
        created_at: head.timestamp.clone(),
        expires_at: crate::service::now_plus(APPROVAL_SECONDS),
        decided_by: None,
        note: None,
    }
}

async fn append(service: &Service, head: &Head, entry: Entry) -> Result<Record, CallError> {
    match service.0.ledger.append(entry).await? {
        Appended::Recorded(record) => Ok(record),
        Appended::Reused => Err(service.record_reused(head).await),
        Appended::NotPending => Err(not_pending().into()),
    }
}

/// Somebody has decided already.
fn not_pending() -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "the approval is decided already",
        "Look at it with GET /v1/approvals/{id}; an approval is decided once.",
    )
}

fn done_answer(head: &Head, mut members: Map<String, Value>, seq: u64) -> Answer {
    members.insert("ok".to_owned(), Value::from(true));
    members.insert("toolCallId".to_owned(), Value::from(head.tool_call_id.as_str()));
    members.insert("seq".to_owned(), Value::from(seq));
    Answer { body: Value::Object(members).to_string() }
}

fn paths_of(planned: &Planned) -> Vec<LogicalPath> {
    planned.changes.changes.iter().map(|change| change.path.clone()).collect()
}

fn denied(reasons: Vec<String>) -> Refusal {
    Refusal::new(
        Code::PolicyDenied,
        "the run's policy denies this change",
        "Look at the run's policy, and stay within it.",
    )
    .about(|about| about.reasons = reasons)
}

fn needs_repair() -> Refusal {
    Refusal::new(
        Code::RunNeedsRepair,
        "the run's files were changed from outside while a change was pending; it takes no mutations",
        "Reads still work; ask the operator to repair the run.",
    )
}

/// Does again whatever steps of the run the ledger still keeps.
async fn settle(service: &Service, live: &Arc<LiveRun>) -> Result<(), CallError> {
    let open = service.0.ledger.open_steps(Some(&live.run_id)).await?;
    if !redo(service, live, open).await?.is_empty() {
        return Err(needs_repair().into());
    }
    live.lane.set_unsettled(false);
    Ok(())
}

/// Does steps again, in order; the answer is what was changed from outside.
async fn redo(service: &Service, live: &Arc<LiveRun>, open: Vec<OpenSteps>) -> Result<Vec<LogicalPath>, CallError> {
    // A file that several calls changed is only looked at in its last state: earlier ones were overwritten.
    let merged = merge(open);
    let Some(seq) = merged.as_ref().map(|(seqs, _)| seqs.clone()) else { return Ok(Vec::new()) };
    let steps = merged.map(|(_, steps)| steps).unwrap_or_default();
    let run = Arc::clone(live);
    let done = service.blocking(move || run.workspace.redo(&steps).map_err(CallError::from)).await?;
    match done {
        Redo::Done(applied) => {
            service.blocking(move || sync(vec![applied])).await?;
            let done: Vec<_> = seq.into_iter().map(|seq| (live.run_id.clone(), seq)).collect();
            service.0.ledger.forget(&done).await?;
            Ok(Vec::new())
        }
        Redo::ChangedOutside(paths) => {
            mark_for_repair(service, live, &paths).await?;
            Ok(paths)
        }
    }
}

/// Finishes what a killed process had journalled, before the service listens. Returns how many records' steps there were.
pub(crate) async fn recover(service: &Service) -> Result<usize, CallError> {
    let open = service.0.ledger.open_steps(None).await?;
    let found = open.len();
    let mut open = open.into_iter().peekable();
    while let Some(first) = open.next() {
        let mut of_run = vec![first];
        while let Some(next) = open.next_if(|next| next.run_id == of_run[0].run_id) {
            of_run.push(next);
        }
        let run_id = of_run[0].run_id.clone();
        let live = service.live(&run_id).await?;
        let changed = redo(service, &live, of_run).await?;
        tracing::info!(run.id = %run_id, changed_outside = changed.len(), "pending changes were finished");
    }
    Ok(found)
}

/// The records that steps belong to, and the steps in order.
fn merge(open: Vec<OpenSteps>) -> Option<(Vec<u64>, Vec<Step>)> {
    let mut seqs = Vec::new();
    let mut steps = Vec::new();
    for one in open {
        seqs.push(one.seq);
        steps.extend(one.steps);
    }
    (!seqs.is_empty()).then_some((seqs, steps))
}

async fn mark_for_repair(service: &Service, live: &LiveRun, changed: &[LogicalPath]) -> Result<(), CallError> {
    let paths: Vec<_> = changed.iter().map(LogicalPath::as_str).collect();
    tracing::error!(run.id = %live.run_id, ?paths, "changed from outside while a change was pending: the run needs repair");
    live.needs_repair.store(true, Ordering::Release);
    Ok(service.0.ledger.set_needs_repair(&live.run_id, true).await?)
}

/// Syncs what was applied. A sync that fails must not be tried again, since the kernel may have dropped the data: the
/// process ends, and the next start does the steps again from the journal.
pub(crate) fn sync(applied: Vec<Applied>) -> Result<(), CallError> {
    for one in applied {
        if let Err(error) = one.sync() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a sync failed: ending, to recover from the journal"
            );
            std::process::abort();
        }
    }
    Ok(())
}
