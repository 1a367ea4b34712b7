//! The fifth state of a transaction: journal steps, records, artifacts, replies and the approval decision are durable. And the entries of
//! its calls, with their answers.

use std::sync::Arc;

use ledger::{Appended, Artifact, DecidedApproval, Entry, LedgerError, Reply};
use model::{By, Draft, Outcome, Record, Sha256, ToolCallId, Usage, Verdict};
use serde_json::Value;

use crate::call::answer::DONE;
use crate::call::record::{Failure, read_entry};
use crate::call::{Answer, Call, OpenedCall};
use crate::call_error::refusals::approval_not_pending;
use crate::clock::{new_artifact_id, now};
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::run::lifecycle;
use crate::run::open_run::OpenRun;
use crate::run::staged_files;
use crate::tool::change_plan::ChangePlan;
use crate::tool::output::ChangeOutput;
use crate::transaction::judge::{JudgedChange, JudgedItem};
use crate::transaction::large_contents::ObjectChanges;
use crate::transaction::outside;
use crate::transaction::stage::Staged;

/// Recorded calls whose changes are not in the tree yet.
pub(crate) struct Committed {
    /// The answer of each call.
    pub answers: Vec<Answer>,
    /// The records of the calls that change files.
    pub records: Vec<Record>,
    /// The staged contents; `None` if the calls only read.
    pub files: Option<workspace::StagedSteps>,
}

impl Staged {
    /// Commits everything in one transaction of the ledger; `approved` is the decision of the approval that the calls waited for, with
    /// the time when that expires, `stored` are the large contents that were put into the object store.
    ///
    /// # Errors
    ///
    /// If the ledger does not append the entries. No staged file remains, unless the outcome is uncertain.
    pub(crate) async fn commit(
        self,
        engine: &Engine,
        run: &Arc<OpenRun>,
        approved: Option<(DecidedApproval, String)>,
        stored: ObjectChanges,
    ) -> Result<Committed, Failure> {
        let Self { calls, mut items, files, large_files, usage, disk, disk_change, own_change } = self;
        let mut found = None;
        if outside::is_found(&items) {
            // Boxed, so that the future of any other call is smaller.
            let described = Box::pin(outside::describe(engine, run, &calls, &mut items)).await;
            found = described.map_err(|error| {
                staged_files::discard(run, &large_files);
                Failure::All(error)
            })?;
        }
        let (decision, expires_at) = approved.unzip();
        let is_only_event = decision.is_none() && is_only_event(&calls, &items);
        let merged = merged_fork(run, &calls, &items);
        let rows = calls.iter().zip(items).map(|(call, item)| committed(call, item, is_only_event));
        let (mut entries, answers): (Vec<_>, Vec<_>) = rows.unzip();
        note_decision(&mut entries, decision.as_ref());
        if let Some(first) = entries.iter_mut().find(|entry| entry.draft.mutates) {
            (first.approval_decision, first.disk, first.own_disk) = (decision, disk_change, own_change);
            (first.objects, first.left_paths) = (stored.objects, stored.left_paths);
        }
        // The command comes before the change set that it has made.
        let event = calls.iter().find_map(|call| call.event.as_deref().cloned());
        let event_id = event.as_ref().map(|event| event.draft.tool_call_id.clone());
        let preceding = if is_only_event {
            entries.clear();
            0
        } else {
            // The change from outside comes before the calls, which build on it.
            usize::from(found.is_some()) + usize::from(event.is_some()) + usize::from(merged.is_some())
        };
        entries.splice(0..0, found.into_iter().chain(event));
        complete(&mut entries, run, merged);
        failpoint::hit("transaction.staged");
        // Opening the run and waiting for its locks take time, and callers see an approval as expired from then on.
        if expires_at.is_some_and(|expires_at| expires_at <= now()) {
            staged_files::discard(run, &large_files);
            return Err(Failure::left_out(approval_not_pending()));
        }
        let records = match engine.record(entries).await {
            Ok(records) => records,
            Err(NotRecorded::Rejected(Appended::Repeated(_))) if is_only_event => {
                staged_files::discard(run, &large_files);
                return answer_of_event(engine, run, event_id, answers).await;
            }
            Err(NotRecorded::Rejected(Appended::Reused(index))) => {
                let reused = NotRecorded::Rejected(Appended::Reused(index.saturating_sub(preceding)));
                return Err(undo(engine, run, &calls, large_files, reused).await);
            }
            Err(error) => return Err(undo(engine, run, &calls, large_files, error).await),
        };
        for record in records.iter().filter(|record| record.run_id == run.run_id) {
            run.known.add(record);
            run.seen_versions.add(record);
        }
        usage.settle();
        disk.settle(disk_change);
        let recorded = answers.into_iter().zip(&records[preceding.min(records.len())..]);
        let answers = recorded.map(|(answer, record)| answer.recorded(record.seq, record.hash)).collect();
        let records = records.into_iter().filter(|record| !record.paths_written.is_empty()).collect();
        Ok(Committed { answers, records, files: files.filter(|_| !is_only_event) })
    }
}

/// Returns the entry of the fork that the calls merge.
fn merged_fork(run: &OpenRun, calls: &[OpenedCall], items: &[JudgedItem]) -> Option<Entry> {
    calls.iter().zip(items).find_map(|(call, item)| match item {
        JudgedItem::Change(JudgedChange { plan, .. }) => {
            let fork = plan.merged.as_ref()?;
            Some(lifecycle::merged((&fork.run_id, fork.seq), &run.run_id, &call.caller, &call.tool_call_id))
        }
        JudgedItem::Read(_) => None,
    })
}

/// Adds to the entries of an approved call what its decision says.
fn note_decision(entries: &mut [Entry], decision: Option<&DecidedApproval>) {
    let Some(decision) = decision else { return };
    for entry in entries {
        if entry.draft.mutates {
            let person = decision.on_behalf_of.as_ref();
            entry.draft.reasons.extend(person.map(|name| format!("onBehalfOf:{name}")));
        }
        // The record of the request says what is left out, and counts it.
        entry.draft.set_left([].into_iter());
    }
}

/// Adds to entries what those of one run have in common, and the entry of a fork that they merge.
fn complete(entries: &mut Vec<Entry>, run: &OpenRun, merged: Option<Entry>) {
    for entry in &mut *entries {
        entry.epoch = run.epoch;
        if entry.usage != Usage::default() {
            entry.run_budget.clone_from(&run.rules.policy().run_budget);
        }
    }
    // First, so that the last record is one of this run.
    entries.splice(0..0, merged);
}

/// Returns the answer to a change set without changes whose command an earlier attempt recorded.
async fn answer_of_event(
    engine: &Engine,
    run: &OpenRun,
    event: Option<ToolCallId>,
    answers: Vec<Answer>,
) -> Result<Committed, Failure> {
    let recorded = match &event {
        Some(id) => engine.ledger.call(&run.run_id, id).await.map_err(Failure::left_out)?,
        None => None,
    };
    let seq = recorded.map_or(0, |event| event.seq);
    let answers = answers.into_iter().map(|answer| answer.recorded(seq, None)).collect();
    Ok(Committed { answers, records: Vec::new(), files: None })
}

/// Whether the calls are one change set that changes and leaves nothing, so that the record of its command says all.
fn is_only_event(calls: &[OpenedCall], items: &[JudgedItem]) -> bool {
    let ([call], [JudgedItem::Change(JudgedChange { plan, .. })]) = (calls, items) else { return false };
    let has_left = plan.output.get("left").and_then(Value::as_array).is_some_and(|left| !left.is_empty());
    call.event.is_some() && plan.is_changeset && plan.paths().is_empty() && !has_left
}

/// Removes the staged files of entries that the ledger did not append, and returns the reason.
async fn undo(
    engine: &Engine,
    run: &OpenRun,
    calls: &[OpenedCall],
    large_files: Vec<String>,
    error: NotRecorded,
) -> Failure {
    let failure = match error {
        NotRecorded::Failed(error @ LedgerError::RunMoved(_)) => Failure::left_out(error),
        NotRecorded::Failed(error @ LedgerError::ObjectNotReserved(_)) => Failure::All(error.into()),
        NotRecorded::Failed(error) => {
            // The commit may have taken effect nevertheless. The next call reconciles before it plans.
            run.accounting.set_uncertain(large_files);
            run.seen_versions.clear();
            return Failure::left_out(error);
        }
        NotRecorded::Rejected(rejected) => {
            if let Appended::Repeated(_) = rejected {
                // An earlier attempt with an uncertain outcome is recorded. Its steps may not be applied yet.
                run.accounting.set_dirty();
            }
            engine.failure_of(calls, NotRecorded::Rejected(rejected)).await
        }
    };
    staged_files::discard(run, &large_files);
    failure
}

/// Returns the entry of a call that takes effect, and its answer without its record. The answer names no artifact if only the event of the
/// call's command is recorded.
pub(crate) fn committed(call: &Call, item: JudgedItem, is_only_event: bool) -> (Entry, Answer) {
    let JudgedChange { plan, reasons, usage } = match item {
        JudgedItem::Change(change) => change,
        JudgedItem::Read(mut output) => {
            let entry = read_entry(call, &mut output);
            return (entry, Answer::of_read(call.tool_call_id.clone(), output));
        }
    };
    let artifact_id = new_artifact_id();
    let uris = if is_only_event { Vec::new() } else { vec![format!("artifact://{}/{artifact_id}", call.run_id)] };
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.artifact_uris.clone_from(&uris);
    draft.diff_sha256 = Some(Sha256::of(&plan.diff));
    draft.reasons = reasons;
    set_left(&mut draft, &plan);
    let steps = match plan.accepted {
        None => {
            (draft.paths_written, draft.files) = (plan.paths(), plan.record_files());
            plan.steps()
        }
        // Nothing is written: the history goes on with what was found.
        Some(ref accepted) => {
            (draft.paths_written, draft.files) = (accepted.paths(), accepted.files.clone());
            accepted.steps.clone()
        }
    };
    let ChangePlan { output, summary, warnings, diff, .. } = plan;
    let output = ChangeOutput { members: output, artifact_uris: uris, summary, warnings };
    let mut entry = call.entry(draft, Some(stored(&output)));
    entry.steps = steps;
    entry.artifact = Some(Artifact { artifact_id, diff });
    // People's changes take nothing from the agent's budget.
    entry.usage = if call.made_by() == By::Agent { usage } else { Usage::default() };
    (entry, Answer::new(call.tool_call_id.clone(), Box::new(output)))
}

/// Returns the entry of a dry run, and its answer without its record.
pub(crate) fn dry_run(call: &Call, item: JudgedItem) -> (Entry, Answer) {
    let JudgedChange { plan, reasons, .. } = match item {
        JudgedItem::Change(change) => change,
        read @ JudgedItem::Read(_) => return committed(call, read, false),
    };
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = plan.paths();
    draft.reasons = reasons;
    draft.reasons.push("dryRun".to_owned());
    set_left(&mut draft, &plan);
    let ChangePlan { mut output, summary, warnings, .. } = plan;
    for (name, value) in [("applied", false), ("dryRun", true)] {
        if output.get(name).is_some_and(Value::is_boolean) {
            output.insert(name.to_owned(), Value::from(value));
        }
    }
    let summary = format!("dry run: would have {summary}");
    let output = ChangeOutput { members: output, artifact_uris: Vec::new(), summary, warnings };
    let entry = call.entry(draft, Some(stored(&output)));
    (entry, Answer::new(call.tool_call_id.clone(), Box::new(output)))
}

/// Returns the reply to a repetition of a call with this output.
fn stored(output: &ChangeOutput) -> Reply {
    // JSON names and values always serialise.
    Reply { status: DONE, body: serde_json::to_string(output).unwrap_or_default() }
}

/// Adds what the call leaves out because it is denied.
pub(crate) fn set_left(draft: &mut Draft, plan: &ChangePlan) {
    draft.set_left(plan.left.iter().map(|(path, rule)| (path.as_str(), rule.as_str())));
}
