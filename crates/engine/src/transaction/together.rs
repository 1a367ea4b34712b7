//! Calls that are one change: planned one upon another, judged together, journalled and recorded in one transaction.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::{AppendedAll, ApprovalDecision, Entry};
use model::{Code, Decision, LogicalPath, Record, Refusal, RunState, Usage, Verdict};
use serde_json::{Map, Value};

use super::{
    First, Judged, bring_in, changed_meanwhile, denied, done_answer, dry_entry, entry_of, first_answer, needs_repair,
    recover, with_history,
};
use crate::CallError;
use crate::call::disclosure::Disclosure;
use crate::call::{
    Answer, CallContext, failed_entry, forbidden, is_unmet, read_entry, refusal_of, refused_entry, run_not_open, splice,
};
use crate::engine::{Engine, OpenRun, took_too_long};
use crate::runs::path_locks::PathGuard;
use crate::tools::{ReadOutput, ToolRun};

use plan::{Outlook, plan_all};
pub(super) use plan::{Part, Plan};

/// What became of calls that are one change, in their order.
#[derive(Debug)]
pub struct Outcomes {
    /// What each is answered.
    pub answers: Vec<Result<Answer, CallError>>,
    /// The place of the one that the others were left out for.
    pub failed: Option<usize>,
}

/// Why nothing is done.
pub(super) enum Failure {
    /// One call is at fault.
    At(usize, CallError),
    /// No single call is.
    All(CallError),
    /// It is recorded already, or cannot be.
    Said(CallError),
}

impl Failure {
    /// Of calls that could not be recorded as they were meant to be.
    pub(super) fn of_recording(error: CallError) -> Self {
        if is_unmet(&error) { Self::All(error) } else { Self::Said(error) }
    }

    /// The error, whichever call it is of.
    pub(super) fn into_error(self) -> CallError {
        match self {
            Self::At(_, error) | Self::All(error) | Self::Said(error) => error,
        }
    }
}

/// A call and its own members.
pub type Call = (CallContext, Result<Map<String, Value>, Refusal>);

impl Engine {
    /// Carries out `calls` as one change, or none of them; each has its record.
    pub async fn call_together(&self, calls: Vec<Call>) -> Result<Outcomes, CallError> {
        let disclosures: Vec<_> = calls.iter().map(|(head, _)| Disclosure::of(head)).collect();
        let Outcomes { answers, failed } = self.call_together_undisclosed(calls).await?;
        let answers = disclosures.iter().zip(answers).map(|(disclosure, answer)| disclosure.apply(answer));
        Ok(Outcomes { answers: answers.collect(), failed })
    }

    async fn call_together_undisclosed(&self, calls: Vec<Call>) -> Result<Outcomes, CallError> {
        let (heads, inputs): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let Some(first) = heads.first() else { return Ok(Outcomes { answers: Vec::new(), failed: None }) };
        let lacking = heads.iter().position(|head| !head.may());
        if let Some(place) = lacking {
            let refusal = forbidden(heads[place].tool.permissions);
            return self.leave(&heads, &[], Failure::At(place, refusal.into())).await;
        }
        let live = match self.live(&first.run_id).await {
            Ok(live) => live,
            Err(CallError::Refused(refusal)) if matches!(refusal.code, Code::RunClosed | Code::RunNeedsRepair) => {
                return self.leave(&heads, &[], Failure::All(refusal.into())).await;
            }
            Err(error) => return Err(error),
        };
        let mut members = Vec::with_capacity(inputs.len());
        for (place, input) in inputs.into_iter().enumerate() {
            match input {
                Ok(input) => members.push(input),
                Err(refusal) => return self.leave(&heads, &[], Failure::At(place, refusal.into())).await,
            }
        }
        let engine = self.clone();
        self.detached(async move { engine.carry_out_together(heads, &live, members).await }).await
    }

    async fn carry_out_together(
        &self,
        heads: Vec<CallContext>,
        live: &Arc<OpenRun>,
        members: Vec<Map<String, Value>>,
    ) -> Result<Outcomes, CallError> {
        let client_supplied_id: BTreeSet<_> =
            heads.iter().filter(|head| head.client_supplied_id).map(|head| &head.tool_call_id).collect();
        let mut turns = Vec::new();
        // In one order for all, so that no two batches wait for each other.
        for id in &client_supplied_id {
            turns.push(live.claims.enter(id).await);
        }
        if !client_supplied_id.is_empty() && live.lane.is_unsettled() {
            drop(recover::enter_settled(self, live, Vec::new()).await?);
        }
        let mut told = Vec::with_capacity(heads.len());
        for head in &heads {
            told.push(first_answer(self, head).await?);
        }
        let is_new = |place: &usize| matches!(told[*place], First::New);
        if let Some(place) = (0..heads.len()).find(|place| !is_new(place)) {
            let mut changes = (0..heads.len()).filter(|place| heads[*place].tool.mutates());
            if changes.any(|place| matches!(told[place], First::New | First::Reused)) {
                let reused = told.iter().position(|first| matches!(first, First::Reused)).unwrap_or(place);
                let error = reused_in_batch(&heads[reused]).into();
                return self.leave(&heads, &[], Failure::At(reused, error)).await;
            }
            return self.tell_again(heads, told, members).await;
        }
        let mut parts = Vec::with_capacity(heads.len());
        for (place, members) in members.into_iter().enumerate() {
            match self.part(&heads[place], live, members).await {
                Ok(part) => parts.push(part),
                Err(error) => {
                    let paths: Vec<_> = parts.iter().map(Part::paths).collect();
                    return self.leave(&heads, &paths, Failure::At(place, error)).await;
                }
            }
        }
        let paths: Vec<_> = parts.iter().map(Part::paths).collect();
        let done = match self.prepare_together(&heads, live, parts).await {
            Ok((_pass, plan)) => self.finish_together(&heads, live, plan).await,
            Err(failure) => Err(failure),
        };
        match done {
            Ok(together) => Ok(together),
            Err(failure) => self.leave(&heads, &paths, failure).await,
        }
    }

    /// Every change was answered before: each is answered so again, and reads are done afresh.
    async fn tell_again(
        &self,
        heads: Vec<CallContext>,
        told: Vec<First>,
        members: Vec<Map<String, Value>>,
    ) -> Result<Outcomes, CallError> {
        let mut answers = Vec::with_capacity(heads.len());
        for ((head, told), members) in heads.into_iter().zip(told).zip(members) {
            answers.push(match told {
                First::Answered(told) => told.map_err(CallError::from),
                First::New | First::Reused => {
                    let read = self.read_call(head, Ok(members)).await;
                    read.map(|(told, id)| Answer { body: splice(&id, &told.output), head: None })
                }
            });
        }
        let others = |answer: &Result<Answer, CallError>| matches!(answer, Err(error) if !error.is(Code::BatchNotDone));
        let failed = answers.iter().position(others);
        Ok(Outcomes { answers, failed })
    }

    /// Takes one call's input apart, with the earlier calls that it asks for.
    pub(super) async fn part(
        &self,
        head: &CallContext,
        live: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<Part, CallError> {
        match head.tool.run {
            ToolRun::Read(parse) => {
                let tool = head.parse_read(parse, members)?;
                if tool.looks_back().is_some() {
                    let message = "a batch that stands or falls together looks at no earlier record";
                    return Err(Refusal::invalid(message, "Send the read with atSeq by itself.").into());
                }
                Ok(Part::Look(tool))
            }
            ToolRun::Mutation(parse) => Ok(Part::Change(with_history(self, live, parse(members)?).await?)),
        }
    }

    /// Plans and judges, alone in the run.
    pub(super) async fn prepare_together<'a>(
        &self,
        heads: &[CallContext],
        live: &'a Arc<OpenRun>,
        parts: Vec<Part>,
    ) -> Result<(PathGuard<'a>, Plan), Failure> {
        let first = parts.iter().position(|part| matches!(part, Part::Change(_)));
        let at = |refusal: Refusal| {
            first.map_or(Failure::All(refusal.clone().into()), |place| Failure::At(place, refusal.into()))
        };
        let pass = recover::enter_settled(self, live, vec![LogicalPath::root()]).await.map_err(Failure::All)?;
        match live.state() {
            RunState::Open | RunState::AwaitingApproval => {}
            RunState::Closed if first.is_none() => {}
            state @ (RunState::Preparing | RunState::Closed | RunState::Deleted) => {
                return Err(at(run_not_open(state)));
            }
        }
        if first.is_some() && live.needs_repair.load(Ordering::Acquire) {
            return Err(at(needs_repair()));
        }
        super::know_written(self, live).await.map_err(Failure::All)?;
        let _place = self.write_place().await.map_err(Failure::All)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let patience = self.limits.request_timeout;
        let planning = {
            let (live, heads, cancel) = (Arc::clone(live), heads.to_vec(), Arc::clone(&cancel));
            self.blocking(move || Ok(plan_all(&live, &heads, parts, &cancel)))
        };
        tokio::pin!(planning);
        let planned = tokio::select! {
            planned = &mut planning => planned,
            () = tokio::time::sleep(patience) => {
                // Only reads look at it: what has been planned by now is worth nothing without them.
                cancel.store(true, Ordering::Relaxed);
                planning.await
            }
        };
        match planned.map_err(Failure::All)? {
            Err(Failure::At(place, CallError::Internal(cause))) if cancel.load(Ordering::Relaxed) => {
                tracing::warn!(error = &*cause as &(dyn std::error::Error + 'static), "a batch was broken off");
                Err(Failure::At(place, took_too_long(patience).into()))
            }
            planned => Ok((pass, planned?)),
        }
    }

    /// Does what the plan's decision says.
    async fn finish_together(
        &self,
        heads: &[CallContext],
        live: &Arc<OpenRun>,
        plan: Plan,
    ) -> Result<Outcomes, Failure> {
        let dry_run = heads.iter().any(|head| head.dry_run);
        match plan.decision.verdict {
            Verdict::Allow if dry_run => self.tell_together(heads, plan).await,
            Verdict::Allow => self.commit_together(heads, live, plan, None).await,
            Verdict::RequireApproval => super::approve::ask_together(self, heads, live, plan, dry_run).await,
            Verdict::Deny => {
                let Decision { refusal, reasons, .. } = plan.decision;
                Err(Failure::All(refusal.unwrap_or_else(|| denied(reasons)).into()))
            }
        }
    }

    /// Answers what the calls would do.
    async fn tell_together(&self, heads: &[CallContext], plan: Plan) -> Result<Outcomes, Failure> {
        let mut rows = Vec::with_capacity(heads.len());
        for (head, outlook) in heads.iter().zip(plan.outlooks) {
            rows.push(match outlook {
                Outlook::Change(judged) => {
                    let (entry, told) = dry_entry(head, judged);
                    Row::Change(Box::new(entry), told)
                }
                Outlook::Look(told) => Row::look(head, told),
            });
        }
        let (answers, _) = self.record_rows(heads, rows).await?;
        Ok(Outcomes { answers, failed: None })
    }

    /// Stages, journals and records, applies, answers.
    pub(super) async fn commit_together(
        &self,
        heads: &[CallContext],
        live: &Arc<OpenRun>,
        plan: Plan,
        approval_decision: Option<ApprovalDecision>,
    ) -> Result<Outcomes, Failure> {
        let (steps, disk, change) = (plan.ahead.steps(), plan.disk, plan.change);
        let run = Arc::clone(live);
        let staged = self
            .blocking(move || {
                run.workspace.add_ignored_to_base(&run.rules, steps.iter().map(|step| &step.path))?;
                run.workspace.stage(&steps, &BTreeMap::new()).map_err(CallError::from)
            })
            .await;
        let staged = staged.map_err(Failure::All)?;
        if let Some(changed) = staged.changed_outside().first() {
            let touches =
                |outlook: &Outlook| matches!(outlook, Outlook::Change(one) if one.planned.at(changed).is_some());
            let place = plan.outlooks.iter().position(touches).unwrap_or(0);
            return Err(Failure::At(place, changed_meanwhile(staged.changed_outside()).into()));
        }
        let mut used = Usage::default();
        let mut rows = Vec::with_capacity(heads.len());
        for (head, outlook) in heads.iter().zip(plan.outlooks) {
            rows.push(match outlook {
                Outlook::Change(Judged { planned, decision, usage, .. }) => {
                    used.add(&usage);
                    let steps = planned.changes.to_steps();
                    let (entry, told) = entry_of(head, planned, decision, steps, usage);
                    Row::Change(Box::new(entry), told)
                }
                Outlook::Look(told) => Row::look(head, told),
            });
        }
        if let Some(Row::Change(first, _)) = rows.iter_mut().find(|row| matches!(row, Row::Change(..))) {
            (first.approval_decision, first.disk) = (approval_decision, change);
        }
        live.lane.reserve(&used);
        failpoint::hit("pipeline.staged");
        let (answers, records) = match self.record_rows(heads, rows).await {
            Ok(done) => done,
            Err(failure) => {
                live.lane.release(&used);
                // The commit may have come through all the same; the next mutation looks before it plans.
                live.lane.set_unsettled(true);
                return Err(failure);
            }
        };
        disk.settle(change);
        let written: Vec<_> = records.into_iter().filter(|record| !record.paths_written.is_empty()).collect();
        bring_in(self, live, staged, &written).await.map_err(Failure::Said)?;
        Ok(Outcomes { answers, failed: None })
    }

    /// Records rows, all or none, and tells the answers.
    async fn record_rows(
        &self,
        heads: &[CallContext],
        rows: Vec<Row>,
    ) -> Result<(Vec<Result<Answer, CallError>>, Vec<Record>), Failure> {
        let entries = rows.iter().map(|row| row.entry().clone()).collect();
        let records = self.record_together(heads, entries).await.map_err(Failure::of_recording)?;
        let mut answered = records.iter();
        let mut answers = Vec::with_capacity(rows.len());
        for (head, row) in heads.iter().zip(rows) {
            answers.push(Ok(match row {
                Row::Look(_, answer) => {
                    answered.next();
                    answer
                }
                Row::Change(_, told) => {
                    let (seq, hash) = answered.next().map_or((0, None), |record| (record.seq, record.hash));
                    done_answer(head, &told, seq, hash)
                }
            }));
        }
        Ok((answers, records))
    }

    /// Appends `entries`, all or none.
    pub(super) async fn record_together(
        &self,
        heads: &[CallContext],
        entries: Vec<Entry>,
    ) -> Result<Vec<Record>, CallError> {
        let ids: Vec<_> = entries.iter().map(|entry| entry.draft.tool_call_id.clone()).collect();
        match self.append_all(entries).await? {
            AppendedAll::Recorded(records) => Ok(records),
            AppendedAll::NotPending => Err(super::not_pending().into()),
            AppendedAll::Repeated(_) => Err(super::repeated().into()),
            AppendedAll::PreconditionFailed(unmet) => Err(refusal_of(unmet).into()),
            AppendedAll::Reused(place) => {
                let head = heads.iter().find(|head| head.tool_call_id == ids[place]);
                match head {
                    Some(head) => Err(self.record_reused(head).await),
                    None => Err(CallError::Internal("a call has no head".into())),
                }
            }
        }
    }

    /// Records that nothing was done, and why, and tells each call so.
    async fn leave(
        &self,
        heads: &[CallContext],
        paths: &[Vec<LogicalPath>],
        failure: Failure,
    ) -> Result<Outcomes, CallError> {
        let (failed, error) = match failure {
            Failure::At(place, error) => (Some(place), error),
            Failure::All(error) => (None, error),
            Failure::Said(error) => return Err(error),
        };
        let none = Vec::new();
        let mut answers = Vec::with_capacity(heads.len());
        let mut entries = Vec::with_capacity(heads.len());
        for (place, head) in heads.iter().enumerate() {
            let paths = paths.get(place).unwrap_or(&none);
            let answer = match (failed, &error) {
                (Some(other), error) if other != place => not_done(other, error),
                (_, CallError::Refused(refusal)) => refusal.clone().redacted(),
                (_, CallError::Internal(_)) => {
                    entries.push(failed_entry(head, paths));
                    answers.push(None);
                    continue;
                }
            };
            let mut entry = refused_entry(head, paths, &answer);
            if error.is_retryable() || answer.code == Code::ToolCallIdReused {
                // It may be tried again under the same IDs, or the ID is another call's.
                (entry.reply, entry.client_supplied_id) = (None, false);
            }
            entries.push(entry);
            answers.push(Some(answer));
        }
        let records = self.record_together(heads, entries).await?;
        let mut error = Some(error);
        let tell = |(answer, record): (Option<Refusal>, Record)| match answer {
            Some(refusal) => Err(refusal.recorded(record.seq, record.hash).into()),
            None => Err(error.take().unwrap_or_else(|| CallError::Internal("a batch failed".into()))),
        };
        Ok(Outcomes { answers: answers.into_iter().zip(records).map(tell).collect(), failed })
    }
}

/// What is recorded of one call, with its answer.
enum Row {
    Change(Box<Entry>, String),
    Look(Box<Entry>, Answer),
}

impl Row {
    fn look(head: &CallContext, mut told: ReadOutput) -> Self {
        let entry = read_entry(head, &mut told);
        Self::Look(Box::new(entry), Answer { body: splice(&head.tool_call_id, &told.output), head: None })
    }

    fn entry(&self) -> &Entry {
        match self {
            Self::Change(entry, _) | Self::Look(entry, _) => entry,
        }
    }
}

/// The refusal of a call that is left out for the one at `place`.
fn not_done(place: usize, error: &CallError) -> Refusal {
    let code = match error {
        CallError::Refused(refusal) => refusal.code,
        CallError::Internal(_) => Code::Internal,
    };
    let message = format!("nothing was done: call {place} of the batch was refused with {code}");
    let hint = "Look at that call's answer, mend it, and send the whole batch again under new IDs.";
    Refusal::new(Code::BatchNotDone, message, hint)
        .with_details(|details| details.reasons = vec![format!("batch:{place}:{code}")])
}

/// A call that was made before, and not together with these.
fn reused_in_batch(head: &CallContext) -> Refusal {
    Refusal::new(
        Code::ToolCallIdReused,
        format!(
            "the tool call ID `{}` belongs to an earlier call, which was not made together with these",
            head.tool_call_id
        ),
        "Repeat a batch as it was, with an ID for every change; or give every call a new ID.",
    )
}
