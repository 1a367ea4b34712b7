//! The one way that a file changes: plan → judge → journal and record → apply.
//!
//! The journal's steps and the audit record become durable in one commit, before a byte of the tree moves. Whatever
//! happens afterwards, the steps can be done again until they are done; a file is synced behind the answer, and only
//! then does the ledger forget its steps.

mod answers;
mod approve;
mod bound;
mod conflict;
pub mod fsync_worker;
pub mod history;
mod large;
mod recover;
mod together;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ledger::{Appended, ApprovalDecision, Entry};
use model::{
    Code, Decision, LogicalPath, Permission, Record, Refusal, RunState, Sha256, Step, Usage, Verdict, judge_change,
    judge_file_count, judge_new_text,
};
use serde_json::{Map, Value};
use workspace::{ApplyError, Staged, Target};

use crate::CallError;
use crate::call::{Answer, CallContext, forbidden, is_unmet, refusal_of, run_not_open};
use crate::change_plan::{ChangePlan, PlanOverlay};
use crate::engine::{Engine, OpenRun};
use crate::runs::quota::Reservation;
use crate::tools::files::PutFile;
use crate::tools::{Mutation, PlanContext, ToolRun};

use answers::{changed_meanwhile, denied, done_answer, dry_entry, entry_of, needs_repair, not_pending, paths_of};

use recover::OpenJournal;

pub use answers::repeated;
pub use approve::{ApprovalResult, Decider};
pub use recover::{all_applied, end_on_lost_sync, enter_whole, recover, settle_left, sync, whole};
pub use together::{Call, Outcomes};

/// A patch's answer waits no longer for the hash of the workspace's whole diff: the run's other mutations wait for it too.
const MAX_DIFF_TIME: Duration = Duration::from_secs(3);

/// A mutation that was planned and judged.
struct Judged {
    planned: ChangePlan,
    decision: Decision,
    usage: Usage,
    /// What is reserved for it on the disk.
    disk: Reservation,
    /// What it comes to in the tree; of one that is to be carried out alone.
    staged: Option<Stage>,
}

/// The journal's steps, whose bytes lie beside the tree.
struct Stage {
    steps: Vec<Step>,
    staged: Staged,
}

/// How far a mutation is prepared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until it is known what would be decided.
    Judged,
    /// Until nothing but the journal is missing, where the judge allows it.
    Staged,
    /// The same where the judge asks for a person: there was one.
    StagedAsApproved,
}

/// Carries out a mutation, or answers what its first call was answered.
pub async fn mutate(
    engine: &Engine,
    head: CallContext,
    live: &Arc<OpenRun>,
    parse: impl FnOnce() -> Result<Box<dyn Mutation>, Refusal>,
) -> Result<Answer, CallError> {
    // Before it waits: what waits holds the input once, and nothing that is not needed.
    let tool = parse();
    // Two calls under one ID must not both find that it is new.
    let _turn = if head.client_supplied_id { Some(live.claims.enter(&head.tool_call_id).await) } else { None };
    if head.client_supplied_id && live.lane.is_unsettled() {
        // What the first call was told has to be so: its change may be journalled and not in the tree yet.
        match recover::enter_settled(engine, live, Vec::new()).await {
            Ok(pass) => drop(pass),
            Err(CallError::Refused(refusal)) => return Err(engine.record_refused(&head, &[], refusal).await),
            Err(error) => return Err(error),
        }
    }
    if let Some(answer) = replay(engine, &head).await? {
        return answer;
    }
    let tool = match tool {
        Ok(tool) => with_history(engine, live, tool).await,
        Err(refusal) => Err(refusal.into()),
    };
    let tool = match tool {
        Ok(tool) => tool,
        Err(CallError::Refused(refusal)) => return Err(engine.record_refused(&head, &[], refusal).await),
        Err(error) => return Err(engine.record_failed(&head, &[], error).await),
    };
    let paths = tool.paths();
    let seen: Vec<_> = paths.iter().filter_map(|path| Some((path.clone(), tool.seen(path)?))).collect();
    let held = if tool.exclusive() { vec![LogicalPath::root()] } else { paths.clone() };
    let _pass = match recover::enter_settled(engine, live, held).await {
        Ok(entered) => entered,
        Err(CallError::Refused(refusal)) => return Err(engine.record_refused(&head, &paths, refusal).await),
        Err(error) => return Err(error),
    };
    let until = if head.dry_run { Until::Judged } else { Until::Staged };
    let judged = match prepare(engine, &head, live, tool, until).await {
        Ok(judged) => judged,
        Err(CallError::Refused(refusal)) => {
            let refusal = conflict::tell(engine, live, &seen, refusal).await;
            return Err(engine.record_refused(&head, &paths, refusal).await);
        }
        Err(error) => return Err(engine.record_failed(&head, &paths, error).await),
    };
    let done = match judged.decision.verdict {
        // What few calls come to has memory of its own, so that not every call's future has room for it.
        Verdict::Allow if head.dry_run => Box::pin(finish_dry_run(engine, &head, judged)).await,
        Verdict::Allow => carry_out(engine, &head, live, judged, None).await,
        Verdict::RequireApproval => Box::pin(approve::ask(engine, &head, live, judged)).await,
        Verdict::Deny => {
            let refusal = judged.decision.refusal.unwrap_or_else(|| denied(judged.decision.reasons));
            Err(engine.record_refused(&head, &paths, refusal).await)
        }
    };
    match done {
        Err(error) if is_unmet(&error) => Err(engine.record_undone(&head, &paths, error).await),
        done => done,
    }
}

/// The tool with the earlier calls that it asks for.
async fn with_history(
    engine: &Engine,
    live: &Arc<OpenRun>,
    mut tool: Box<dyn Mutation>,
) -> Result<Box<dyn Mutation>, CallError> {
    if let Some(wanted) = tool.history() {
        tool.take_history(history::earlier(engine, live, wanted).await?)?;
    }
    Ok(tool)
}

/// What is known of a call's ID.
enum First {
    /// No call under it has an answer.
    New,
    /// It belongs to another call.
    Reused,
    /// This call was answered so before.
    Answered(Result<Answer, Refusal>),
}

/// The first answer of this call, if it is a repetition.
async fn replay(engine: &Engine, head: &CallContext) -> Result<Option<Result<Answer, CallError>>, CallError> {
    Ok(match first_answer(engine, head).await? {
        First::New => None,
        First::Reused => Some(Err(engine.record_reused(head).await)),
        First::Answered(Err(refusal)) if refusal.details.seq.is_none() => {
            Some(Err(engine.record_refused(head, &[], refusal).await))
        }
        First::Answered(told) => Some(told.map_err(CallError::from)),
    })
}

/// Looks a call's ID up. A refusal without `seq` is this caller's own, and not recorded yet.
async fn first_answer(engine: &Engine, head: &CallContext) -> Result<First, CallError> {
    if !head.client_supplied_id {
        return Ok(First::New);
    }
    let Some(call) = engine.ledger.call(&head.run_id, &head.tool_call_id).await? else { return Ok(First::New) };
    if call.tool != head.tool.name || call.input_sha256 != head.input_sha256 {
        return Ok(First::Reused);
    }
    // A call that failed by a fault of ours left no answer: it may be tried again.
    let Some(reply) = call.reply else { return Ok(First::New) };
    let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
    if reply.status == DONE {
        let members: Map<String, Value> = serde_json::from_str(&reply.body).map_err(internal)?;
        if let Some(needed) = needed_by_first(head, &members) {
            return Ok(First::Answered(Err(forbidden(&[needed]))));
        }
        return Ok(First::Answered(Ok(done_answer(head, &reply.body, call.seq, Some(call.hash)))));
    }
    let refusal: Refusal = serde_json::from_str(&reply.body).map_err(internal)?;
    Ok(First::Answered(Err(refusal.recorded(call.seq, Some(call.hash)))))
}

/// The permission that the first call needed for what it did, where this caller lacks it.
fn needed_by_first(head: &CallContext, told: &Map<String, Value>) -> Option<Permission> {
    let created = told.get("created").and_then(Value::as_bool)?;
    let needed = if created { Permission::FileWriteCreate } else { Permission::FileWriteReplace };
    (head.tool.permissions.contains(&needed) && !head.caller.permissions.contains(&needed)).then_some(needed)
}

/// The `status` of a stored reply that holds an answer's members; any other holds a refusal.
const DONE: u16 = 200;

/// Plans, judges and stages, all in one go and on this thread: each change of threads costs as much as a step.
async fn prepare(
    engine: &Engine,
    head: &CallContext,
    live: &Arc<OpenRun>,
    mut tool: Box<dyn Mutation>,
    until: Until,
) -> Result<Judged, CallError> {
    match live.state() {
        RunState::Open | RunState::AwaitingApproval => {}
        state @ (RunState::Preparing | RunState::Closed | RunState::Deleted) => return Err(run_not_open(state).into()),
    }
    if live.needs_repair.load(Ordering::Acquire) {
        return Err(needs_repair().into());
    }
    know_written(engine, live).await?;
    let _place = engine.write_place().await?;
    let (live, head) = (Arc::clone(live), head.clone());
    let work = move || {
        let mut judged = plan_and_judge(&live, &head, tool.as_mut())?;
        if judged.is_to_be_staged(until) {
            judged.stage(&live)?;
        }
        Ok(judged)
    };
    engine.blocking(work).await
}

/// Makes known which files the run has written: that counts only where all of its files together are bounded.
async fn know_written(engine: &Engine, live: &OpenRun) -> Result<(), CallError> {
    if live.rules.policy().run_budget.is_some() && !live.lane.knows_written() {
        live.lane.set_written(history::written(engine, &live.run_id).await?);
    }
    Ok(())
}

/// What would be decided over a mutation now. Nothing is changed or recorded.
pub async fn foresee(
    engine: &Engine,
    head: &CallContext,
    live: &Arc<OpenRun>,
    members: Map<String, Value>,
) -> Result<Decision, CallError> {
    let ToolRun::Mutation(parse) = head.tool.run else {
        return Err(CallError::Internal("a read is not foreseen".into()));
    };
    let tool = with_history(engine, live, parse(members)?).await?;
    let held = if tool.exclusive() { vec![LogicalPath::root()] } else { tool.paths() };
    let _pass = recover::enter_settled(engine, live, held).await?;
    Ok(prepare(engine, head, live, tool, Until::Judged).await?.decision)
}

/// Judges an upload by all that is known before its bytes are here; what is refused is recorded.
pub async fn judge_announced(
    engine: &Engine,
    head: &CallContext,
    live: &Arc<OpenRun>,
    upload: PutFile,
) -> Result<(), CallError> {
    let _turn = if head.client_supplied_id { Some(live.claims.enter(&head.tool_call_id).await) } else { None };
    match first_answer(engine, head).await? {
        First::New => {}
        // With its bytes it may be the call that the ID belongs to; without them nobody can tell.
        First::Reused => return Ok(()),
        First::Answered(Err(refusal)) if refusal.details.seq.is_none() => {
            return Err(engine.record_refused(head, &[], refusal).await);
        }
        First::Answered(told) => return told.map(drop).map_err(CallError::from),
    }
    let paths = upload.paths();
    let seen: Vec<_> = paths.iter().filter_map(|path| Some((path.clone(), upload.seen(path)?))).collect();
    let judged = match recover::enter_settled(engine, live, paths.clone()).await {
        Ok(_pass) => prepare(engine, head, live, Box::new(upload), Until::Judged).await,
        Err(error) => Err(error),
    };
    let refusal = match judged {
        Ok(Judged { decision: Decision { verdict: Verdict::Deny, reasons, refusal }, .. }) => {
            refusal.unwrap_or_else(|| denied(reasons))
        }
        Ok(_) => return Ok(()),
        Err(CallError::Refused(refusal)) => conflict::tell(engine, live, &seen, refusal).await,
        Err(error) => return Err(engine.record_failed(&head.clone().under_new_id(), &paths, error).await),
    };
    // What passes by itself is tried again, with bytes that are not known yet: the ID stays free for them.
    let head = if refusal.code.is_retryable() { head.clone().under_new_id() } else { head.clone() };
    Err(engine.record_refused(&head, &paths, refusal).await)
}

fn plan_and_judge(live: &OpenRun, head: &CallContext, tool: &mut dyn Mutation) -> Result<Judged, CallError> {
    let mut disk = tool.take_reservation().unwrap_or_else(|| live.disk.reservation());
    let planned = plan(live, head, tool, &PlanOverlay::default())?;
    let facts = planned.facts(|path| live.lane.has_written(path));
    let mut decision = judge_change(&live.rules, &facts, &live.lane.usage());
    let usage = Usage::of(&facts);
    if decision.verdict == Verdict::RequireApproval
        && let Some(refusal) = large::refuse_waiting(&planned, &decision.reasons)
    {
        decision = Decision { verdict: Verdict::Deny, refusal: Some(refusal), ..decision };
    }
    if decision.verdict != Verdict::Deny
        && let Err(refusal) = disk.resize(planned.disk_wanted())
    {
        let reasons = refusal.details.reasons.clone();
        decision = Decision { verdict: Verdict::Deny, reasons, refusal: Some(refusal) };
    }
    Ok(Judged { planned, decision, usage, disk, staged: None })
}

impl Judged {
    fn is_to_be_staged(&self, until: Until) -> bool {
        match self.decision.verdict {
            Verdict::Allow => until != Until::Judged,
            Verdict::RequireApproval => until == Until::StagedAsApproved,
            Verdict::Deny => false,
        }
    }

    fn stage(&mut self, live: &OpenRun) -> Result<(), CallError> {
        let steps = self.planned.changes.to_steps();
        live.workspace.add_ignored_to_base(&live.rules, steps.iter().map(|step| &step.path))?;
        large::copy(live, &self.planned)?;
        let staged = live.workspace.stage(&steps, self.planned.seen()).map_err(CallError::from);
        let staged = staged.and_then(|staged| match staged.changed_outside() {
            [] => Ok(staged),
            changed => Err(changed_meanwhile(changed).into()),
        });
        let staged = staged.inspect_err(|_| large::discard(live, &steps))?;
        self.staged = Some(Stage { steps, staged });
        Ok(())
    }
}

/// Plans a mutation upon what was planned before it.
fn plan(live: &OpenRun, head: &CallContext, tool: &dyn Mutation, ahead: &PlanOverlay) -> Result<ChangePlan, CallError> {
    if let Some(refusal) = judge_file_count(&live.rules, &tool.changes()) {
        return Err(refusal.into());
    }
    let go: BTreeSet<_> = tool.leaves().into_iter().chain(ahead.gone().cloned()).collect();
    let targets = tool.targets(&live.rules, &live.workspace, &go).map_err(CallError::from);
    let targets = targets.and_then(|targets| Ok(ahead.over(targets, &go)?));
    if let Some(secret) = brought_secret(tool, targets.as_deref().unwrap_or_default()) {
        return Err(match targets {
            Err(CallError::Refused(refusal)) => refusal.first(secret).into(),
            Err(error) => error,
            Ok(_) => secret.into(),
        });
    }
    let targets = targets?;
    if let Some(needed) = tool.permission(&targets).filter(|needed| !head.caller.permissions.contains(needed)) {
        return Err(forbidden(&[needed]).into());
    }
    let context = PlanContext { rules: &live.rules, base_commit: live.workspace.base_commit() };
    let rooms: Vec<_> = targets.iter().filter_map(|target| target.not_a_file.clone()).collect();
    let mut planned = tool.plan(&context, targets).map_err(|refusal| told_of_room(refusal, rooms))?;
    // Here alone, since every change set passes: what no tree can hold must never come into the journal.
    if let Some(crossing) = ahead.crossing(&planned) {
        return Err(tool.crossed(crossing).into());
    }
    if planned.tells_workspace_diff {
        if let Some(hash) = workspace_diff_after(live, &planned, ahead)? {
            planned.output.insert("newWorkspaceDiffSha256".to_owned(), Value::from(hash.to_string()));
        } else {
            planned.output.remove("newWorkspaceDiffSha256");
            let warning = "newWorkspaceDiffSha256 is left out: the run has changed so much that the whole diff takes \
                           long; diff_workspace tells it";
            planned.warnings.push(warning.to_owned());
        }
    }
    Ok(planned)
}

/// What a call is told that looked for a file where there is only room for one: what is there instead.
fn told_of_room(refusal: Refusal, rooms: Vec<Refusal>) -> Refusal {
    let is_there = |room: &Refusal| refusal.code == Code::NotFound && room.details.path == refusal.details.path;
    rooms.into_iter().find(is_there).unwrap_or(refusal)
}

/// The refusal of a call that brings a credential along. It comes before all that tells of what is there.
fn brought_secret(tool: &dyn Mutation, targets: &[Target]) -> Option<Refusal> {
    let staged = tool.brings_staged(targets);
    staged.or_else(|| {
        tool.brings().into_iter().find_map(|brought| {
            let there =
                targets.iter().find(|target| target.path == brought.into).and_then(|target| target.before.as_ref());
            judge_new_text(&brought.path, there.map(|(_, bytes)| bytes.as_slice()), &brought.text)
        })
    })
}

/// The hash of the workspace's whole diff as it will be; `None` where that takes longer than [`MAX_DIFF_TIME`].
///
/// The whole tree is looked at once; from then on only what is known to differ, and what mutations touch.
fn workspace_diff_after(
    live: &OpenRun,
    planned: &ChangePlan,
    ahead: &PlanOverlay,
) -> Result<Option<Sha256>, CallError> {
    let known = live.changed.get();
    let overlay = ahead.overlay(planned);
    let after = live.workspace.planned_diff(&live.rules, known.as_ref(), &overlay, Instant::now() + MAX_DIFF_TIME)?;
    let hash = after.map(|after| {
        live.changed.set(after.changed);
        after.diff_sha256
    });
    // Whether it will be carried out is not decided: what differs now may not be left out.
    live.changed.add(&paths_of(planned));
    live.changed.add(&ahead.paths());
    Ok(hash)
}

/// Journals and records what was staged, applies it, answers.
async fn carry_out(
    engine: &Engine,
    head: &CallContext,
    live: &Arc<OpenRun>,
    judged: Judged,
    approval_decision: Option<ApprovalDecision>,
) -> Result<Answer, CallError> {
    let Judged { planned, usage, decision, disk, staged } = judged;
    let change = planned.disk_change();
    let Some(Stage { steps, staged }) = staged else {
        return Err(CallError::Internal("a change that is carried out was staged".into()));
    };
    let large = large::names(&steps);
    let (mut entry, told) = entry_of(head, planned, decision, steps, usage.clone());
    (entry.approval_decision, entry.disk) = (approval_decision, change);
    live.lane.reserve(&usage);
    failpoint::hit("pipeline.staged");
    let record = match engine.append(entry).await {
        Ok(Appended::Recorded(record)) => record,
        Ok(Appended::Reused) => {
            live.lane.release(&usage);
            large::discard_named(live, &large);
            return Err(engine.record_reused(head).await);
        }
        Ok(Appended::Repeated) => {
            // An attempt before this one was in doubt, and is recorded; its steps may not be in the tree yet.
            live.lane.release(&usage);
            live.lane.set_unsettled(true);
            large::discard_named(live, &large);
            return Err(repeated().into());
        }
        Ok(Appended::NotPending) => {
            live.lane.release(&usage);
            large::discard_named(live, &large);
            return Err(not_pending().into());
        }
        Ok(Appended::PreconditionFailed(unmet)) => {
            live.lane.release(&usage);
            large::discard_named(live, &large);
            return Err(refusal_of(unmet).into());
        }
        Err(error) => {
            // The commit may have come through all the same; the next mutation looks before it plans.
            live.lane.release(&usage);
            live.lane.doubt(large);
            return Err(error.into());
        }
    };
    disk.settle(change);
    let (seq, hash) = (record.seq, record.hash);
    bring_in(engine, live, staged, &[record]).await?;
    Ok(done_answer(head, &told, seq, hash))
}

/// Notes what a record that is journalled has written.
fn note_written(live: &OpenRun, record: &Record) {
    if record.paths_written.iter().any(|path| path.file_name() == workspace::GITIGNORE_NAME) {
        // Other rules hide other files, or none.
        live.changed.forget();
    }
    live.workspace.add_written(&record.paths_written);
    live.changed.add(&record.paths_written);
    live.lane.add_written(&record.paths_written);
}

/// Moves what is journalled into the tree.
async fn bring_in(engine: &Engine, live: &Arc<OpenRun>, staged: Staged, records: &[Record]) -> Result<(), CallError> {
    // From here on a panic would leave a change that is journalled but not applied.
    let open = OpenJournal::new(&live.lane);
    failpoint::hit("pipeline.journalled");
    let place = engine.write_place().await?;
    let run = Arc::clone(live);
    let applied = engine.blocking(move || Ok(run.workspace.apply(staged))).await;
    drop(place);
    failpoint::hit("pipeline.applied");
    let seqs: Vec<_> = records.iter().map(|record| record.seq).collect();
    for record in records {
        note_written(live, record);
    }
    match applied {
        Ok(Ok(applied)) => engine.syncer.push(live, seqs, applied).await,
        Ok(Err(ApplyError::ChangedOutside(changed))) => {
            recover::mark_for_repair(engine, live, &changed).await?;
            return Err(needs_repair().into());
        }
        Ok(Err(ApplyError::Io(error))) => {
            tracing::warn!(run.id = %live.run_id, ?seqs, %error, "a change is journalled but not applied: once more");
            recover::apply_again(engine, live, &seqs).await.map_err(|error| error.unfinished(&seqs))?;
        }
        Err(_) => {
            tracing::error!(run.id = %live.run_id, ?seqs, "applying a change panicked: once more");
            recover::apply_again(engine, live, &seqs).await.map_err(|error| error.unfinished(&seqs))?;
        }
    }
    open.close();
    Ok(())
}

async fn finish_dry_run(engine: &Engine, head: &CallContext, judged: Judged) -> Result<Answer, CallError> {
    let (entry, told) = dry_entry(head, judged);
    let record = append(engine, head, entry).await?;
    Ok(done_answer(head, &told, record.seq, record.hash))
}

async fn append(engine: &Engine, head: &CallContext, entry: Entry) -> Result<Record, CallError> {
    match engine.append(entry).await? {
        Appended::Recorded(record) => Ok(record),
        Appended::Reused => Err(engine.record_reused(head).await),
        Appended::Repeated => Err(repeated().into()),
        Appended::NotPending => Err(not_pending().into()),
        Appended::PreconditionFailed(unmet) => Err(refusal_of(unmet).into()),
    }
}
