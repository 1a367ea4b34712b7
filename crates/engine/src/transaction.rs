//! The transaction: the one way in which a run changes.
//!
//! A transaction is 1 to n calls of one run. It passes through consuming states, each a type and a file, so that no step
//! can be skipped: [`Parsed`] → `Planned` → `Judged` → `Staged` → `Committed` → applied.
//!
//! Journal steps and audit records become durable in one commit, before a byte of the tree changes. After a crash or an
//! error the steps can be repeated until they are done. Files are synced after the answer, and only then does the ledger prune
//! their steps.

mod apply;
mod approved;
pub(crate) mod ask;
mod commit;
pub(crate) mod conflict;
mod judge;
pub(crate) mod large_contents;
pub(crate) mod lookup;
mod outside;
mod overlay;
mod parse;
mod plan;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::DecidedApproval;
use model::{Approval, Code, Decision, EvidenceFact, Refusal, RunState, Verdict};
use workspace::Workspaces;

use crate::CallError;
use crate::call::Outcomes;
use crate::call::answer::StoredAnswer;
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call};
use crate::call_error::refusals::{needs_repair, run_not_open, timed_out};
use crate::engine::Engine;
use crate::reconcile;
use crate::run::open_run::OpenRun;
use crate::run::path_locks::PathGuard;
use crate::tool::Scope;
use crate::transaction::approved::ApprovedChange;
use crate::transaction::commit::Committed;
use crate::transaction::judge::Judged;
use crate::transaction::large_contents::ObjectChanges;
use crate::transaction::parse::{Loaded, lock_ids};
use crate::transaction::plan::Planned;
use crate::transaction::stage::Staged;

pub(crate) use parse::{Operation, Parsed};

/// How far a transaction is prepared.
enum Goal {
    /// To the policy's decision.
    Judge,
    /// To staged contents, if the decision is allow.
    Stage,
    /// To staged contents, also if the changes need approval, provided that they are what a person has approved.
    StageApproved(ApprovedChange),
}

/// A prepared transaction.
enum Prepared {
    Judged(Box<Judged>),
    Staged(Box<Staged>),
}

impl Engine {
    /// Executes a transaction: all of its calls take effect, or none does. Each has its record.
    ///
    /// # Errors
    ///
    /// If the calls are recorded already, or cannot be recorded.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
    ) -> Result<Outcomes, RecordedError> {
        let calls = Arc::clone(&transaction.calls);
        // Two calls under one ID must not both find that it is new.
        let _ids = lock_ids(&calls, run).await;
        let mut scopes: Arc<[Scope]> = Arc::default();
        match self.attempt(run, transaction, &mut scopes).await {
            Ok(outcomes) => Ok(outcomes),
            Err(failure) => {
                let failure = match &*scopes {
                    [scope] => failure.with_note(scope.refusal_note),
                    _ => failure,
                };
                let paths: Vec<_> = scopes.iter().map(|scope| scope.paths.as_slice()).collect();
                Box::pin(self.record_failure(&calls, &paths, failure)).await
            }
        }
    }

    /// Returns the outcomes of a repetition; the transaction itself if it is new.
    async fn answered_before(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
    ) -> Result<Result<Outcomes, Parsed>, Failure> {
        let calls = Arc::clone(&transaction.calls);
        if !calls.iter().any(|call| call.client_supplied_id) {
            return Ok(Err(transaction));
        }
        // The change of a stored answer may be journalled and not applied yet. The answer is given once it is applied.
        reconcile::lock_if_dirty(self, run).await.map_err(unless_refused)?;
        let mut stored = Vec::with_capacity(calls.len());
        for call in &*calls {
            stored.push(self.stored_answer(call).await.map_err(Failure::left_out)?);
        }
        if stored.iter().all(|stored| matches!(stored, StoredAnswer::None)) {
            return Ok(Err(transaction));
        }
        let mut changes = calls.iter().zip(&stored).filter(|(call, _)| call.tool.mutates());
        if changes.any(|(_, stored)| !matches!(stored, StoredAnswer::Found(_))) {
            let is_other = |stored: &StoredAnswer| matches!(stored, StoredAnswer::OtherCall);
            let is_found = |stored: &StoredAnswer| !matches!(stored, StoredAnswer::None);
            let index = stored.iter().position(is_other).or_else(|| stored.iter().position(is_found)).unwrap_or(0);
            if calls.len() == 1 {
                return Err(Failure::Recorded(self.record_reused_id(&calls[index]).await));
            }
            return Err(Failure::Call(index, reused_in_batch(&calls[index]).into()));
        }
        Ok(Ok(self.repeat_answers(run, transaction, stored).await))
    }

    /// Returns the stored answer of each mutation. Reads are executed again.
    async fn repeat_answers(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
        stored: Vec<StoredAnswer>,
    ) -> Outcomes {
        let mut answers = Vec::with_capacity(stored.len());
        for ((call, operation), stored) in transaction.calls.iter().zip(transaction.operations).zip(stored) {
            answers.push(match (stored, operation) {
                (StoredAnswer::Found(Err(refusal)), _) if refusal.details.seq.is_none() => {
                    Err(self.record_error(call, &[], refusal.into()).await)
                }
                (StoredAnswer::Found(answer), _) => answer.map_err(RecordedError::left_out),
                (_, Ok(Operation::Read(tool))) => {
                    let read = self.read(call.clone(), run, tool).await;
                    read.map(|(output, id)| Answer::of_read(id, output))
                }
                (_, Ok(Operation::Mutation(_))) => {
                    Err(RecordedError::left_out(CallError::Internal("a mutation has no stored answer".into())))
                }
                (_, Err(refusal)) => Err(self.record_error(call, &[], refusal.into()).await),
            });
        }
        let is_cause = |answer: &Result<Answer, RecordedError>| matches!(answer, Err(error) if !error.as_error().is(Code::BatchNotDone));
        let failed = answers.iter().position(is_cause);
        Outcomes { answers, failed }
    }

    /// Executes a transaction. `scopes` are set to those that are known, also if it fails.
    async fn attempt(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
        scopes: &mut Arc<[Scope]>,
    ) -> Result<Outcomes, Failure> {
        let transaction = match self.answered_before(run, transaction).await? {
            Ok(outcomes) => return Ok(outcomes),
            Err(transaction) => transaction,
        };
        let calls = Arc::clone(&transaction.calls);
        self.check_history(run, &calls, 0).await?;
        let loaded = transaction.load(self, run).await.map_err(|(known, failure)| {
            *scopes = known.into();
            failure
        })?;
        *scopes = Arc::clone(&loaded.scopes);
        let is_dry_run = calls.iter().any(|call| call.dry_run);
        let goal = if is_dry_run { Goal::Judge } else { Goal::Stage };
        let (_guard, prepared) = self.prepare(run, loaded, goal).await?;
        let judged = match prepared {
            Prepared::Staged(staged) => {
                let answers = self.commit_and_apply(run, *staged, None).await?;
                return Ok(Outcomes { answers: answers.into_iter().map(Ok).collect(), failed: None });
            }
            Prepared::Judged(judged) => *judged,
        };
        // Boxed, so that the future of a call that changes something is smaller.
        match judged.decision.verdict {
            Verdict::Allow => Box::pin(self.record_dry_run(run, judged)).await,
            Verdict::RequireApproval => {
                let errors = Box::pin(judged.ask(self, run, is_dry_run)).await?;
                Ok(Outcomes { answers: errors.into_iter().map(Err).collect(), failed: None })
            }
            Verdict::Deny => Err(judged.into_denial()),
        }
    }

    /// Commits and applies staged calls; `approved` is the decision of the approval that they waited for, with the time when that expires.
    async fn commit_and_apply(
        &self,
        run: &Arc<OpenRun>,
        staged: Staged,
        approved: Option<(DecidedApproval, String)>,
    ) -> Result<Vec<Answer>, Failure> {
        // Boxed, so that the future of any other call is smaller.
        let (staged, stored) = match &self.objects {
            Some(objects) => Box::pin(staged.store_large(self, objects, run)).await?,
            None => (staged, ObjectChanges::default()),
        };
        let mut change = run.tree_states.begin();
        let committed: Committed = staged.commit(self, run, approved, stored).await?;
        if let Some(record) = committed.records.last() {
            change.commit(record.seq);
        }
        committed.apply(self, run, change).await.map_err(Failure::left_out)
    }

    async fn record_dry_run(&self, run: &OpenRun, judged: Judged) -> Result<Outcomes, Failure> {
        let calls = Arc::clone(&judged.calls);
        let rows = calls.iter().zip(judged.items).map(|(call, item)| commit::dry_run(call, item));
        let (entries, answers): (Vec<_>, Vec<_>) = rows.unzip();
        let records = self.record_calls(&calls, entries).await?;
        for record in &*records {
            run.seen_versions.add(record);
        }
        let answers =
            answers.into_iter().zip(records).map(|(answer, record)| Ok(answer.recorded(record.seq, record.hash)));
        Ok(Outcomes { answers: answers.collect(), failed: None })
    }

    /// Locks the paths, then plans, judges and, depending on `goal`, stages on one thread that may block.
    async fn prepare(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        mut loaded: Loaded,
        goal: Goal,
    ) -> Result<(PathGuard, Prepared), Failure> {
        let first_mutation = loaded.first_mutation();
        let refuse = |refusal: Refusal| match first_mutation {
            Some(index) => Failure::Call(index, refusal.into()),
            None => Failure::All(refusal.into()),
        };
        let guard = reconcile::lock(self, run, loaded.paths_to_lock()).await.map_err(unless_refused)?;
        match run.state() {
            RunState::Open | RunState::AwaitingApproval => {}
            RunState::Closed if first_mutation.is_none() => {}
            state @ (RunState::Preparing | RunState::Closed | RunState::Deleted) => {
                return Err(refuse(run_not_open(state)));
            }
        }
        if first_mutation.is_some() && run.needs_repair.load(Ordering::Acquire) {
            return Err(refuse(needs_repair()));
        }
        if loaded.is_of_command() {
            // Boxed, so that the future of any other call is smaller.
            Box::pin(loaded.load_changed_since(self, run)).await.map_err(Failure::All)?;
        }
        let expected = loaded.expected_versions();
        match self.prepare_locked(run, loaded, goal).await {
            // The lock is held, so the present version is the one that the call was planned with.
            Err(Failure::Call(index, CallError::Refused(refusal))) => {
                let refusal = conflict::add_changes(self, run, &expected[index], refusal).await;
                Err(Failure::Call(index, refusal.into()))
            }
            prepared => Ok((guard, prepared?)),
        }
    }

    async fn prepare_locked(&self, run: &Arc<OpenRun>, loaded: Loaded, goal: Goal) -> Result<Prepared, Failure> {
        let _permit = self.write_permit().await;
        let (has_reads, cancel) = (loaded.has_reads(), Arc::new(AtomicBool::new(false)));
        let work = {
            let (run, workspaces, cancel) = (Arc::clone(run), Arc::clone(&self.workspaces), Arc::clone(&cancel));
            self.blocking(move || {
                let planned = loaded.plan(&run, &cancel);
                Ok(goal.reach(planned, &run, &workspaces))
            })
        };
        tokio::pin!(work);
        let limit = self.limits.request_timeout;
        let prepared = tokio::select! {
            prepared = &mut work => prepared,
            () = tokio::time::sleep(limit), if has_reads => {
                cancel.store(true, Ordering::Relaxed);
                work.await
            }
        };
        match prepared.map_err(Failure::All)? {
            Err(Failure::Call(index, CallError::Internal(cause))) if cancel.load(Ordering::Relaxed) => {
                tracing::warn!(error = &*cause as &(dyn std::error::Error + 'static), "a batch was cancelled");
                Err(Failure::Call(index, timed_out(limit).into()))
            }
            prepared => prepared,
        }
    }

    /// Executes a transaction that a person has approved, if it still makes the approved changes. Returns the answers.
    ///
    /// # Errors
    ///
    /// Why nothing was done; not recorded.
    pub(crate) async fn execute_approved(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
        approval: &Approval,
        decision: DecidedApproval,
    ) -> Result<Vec<Answer>, Failure> {
        let loaded = transaction.load(self, run).await.map_err(|(_, failure)| failure)?;
        let approved_calls = decision.edits_after.and_then(|count| usize::try_from(count).ok());
        let calls = approved_calls.unwrap_or(loaded.calls.len());
        let goal = Goal::StageApproved(ApprovedChange::new(approval, calls));
        match self.prepare(run, loaded, goal).await? {
            (_guard, Prepared::Staged(staged)) => {
                let approved = Some((decision, approval.expires_at.clone()));
                self.commit_and_apply(run, *staged, approved).await
            }
            (_guard, Prepared::Judged(judged)) => Err(judged.into_denial()),
        }
    }

    /// Checks that calls which wait for an approval would be applied if they were approved now. Nothing is recorded.
    ///
    /// # Errors
    ///
    /// Why they would not.
    pub(crate) async fn check_approvable(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
        approval: &Approval,
    ) -> Result<(), CallError> {
        let approved = ApprovedChange::new(approval, transaction.calls.len());
        let judged = self.judge(run, transaction).await.map_err(Failure::into_error)?;
        match judged.decision.verdict {
            Verdict::Deny => Err(judged.into_denial().into_error()),
            Verdict::Allow | Verdict::RequireApproval => Ok(approved.check(&judged)?),
        }
    }

    /// Returns the decision about a mutation without making it. Nothing is recorded.
    ///
    /// # Errors
    ///
    /// Why it cannot be planned.
    pub(crate) async fn evaluate(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        transaction: Parsed,
    ) -> Result<Decision, CallError> {
        Ok(self.judge(run, transaction).await.map_err(Failure::into_error)?.decision)
    }

    /// Plans and judges a transaction without executing it. Nothing is recorded.
    async fn judge(self: &Arc<Self>, run: &Arc<OpenRun>, transaction: Parsed) -> Result<Judged, Failure> {
        let loaded = transaction.load(self, run).await.map_err(|(_, failure)| failure)?;
        match self.prepare(run, loaded, Goal::Judge).await? {
            (_guard, Prepared::Judged(judged)) => Ok(*judged),
            (_guard, Prepared::Staged(_)) => Err(Failure::left_out(CallError::Internal("a check was staged".into()))),
        }
    }

    /// Checks an upload by everything that is known before its bytes arrive. A refusal is recorded.
    ///
    /// # Errors
    ///
    /// The refusal, or the stored answer of an earlier call under the same ID.
    pub(crate) async fn check_upload(
        self: &Arc<Self>,
        call: &Call,
        run: &Arc<OpenRun>,
        operation: Operation,
    ) -> Result<(), RecordedError> {
        let call = call.clone().opened(run, EvidenceFact::Missing);
        let paths = operation.scope().paths;
        let _ids = lock_ids(std::slice::from_ref(&call), run).await;
        match self.stored_answer(&call).await.map_err(RecordedError::left_out)? {
            StoredAnswer::None => {}
            // With its bytes the call may be a repetition. Without them this is unknown.
            StoredAnswer::OtherCall => return Ok(()),
            StoredAnswer::Found(Err(refusal)) if refusal.details.seq.is_none() => {
                return Err(self.record_error(&call, &[], refusal.into()).await);
            }
            StoredAnswer::Found(answer) => return answer.map(drop).map_err(RecordedError::left_out),
        }
        if let Err(error) = self.check_history(run, std::slice::from_ref(&call), 0).await {
            return Err(self.record_error(&call, &paths, error).await);
        }
        let failure = match self.judge(run, Parsed::new(vec![(call.clone(), Ok(operation))])).await {
            Ok(judged) if judged.decision.verdict == Verdict::Deny => judged.into_denial(),
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        // The client repeats the call with bytes that are not known yet, so the ID remains unused.
        let call = if failure.as_error().is_retryable() { call.under_new_id() } else { call };
        Err(self.record_error(&call, &paths, failure.into_error()).await)
    }
}

impl Goal {
    fn reach(self, planned: Planned, run: &OpenRun, workspaces: &Workspaces) -> Result<Prepared, Failure> {
        let judging = run.accounting.judge_alone(&run.rules);
        let mut judged = planned.judge(run)?;
        if judged.decision.verdict == Verdict::RequireApproval && !matches!(self, Self::StageApproved(_)) {
            judged.check_waiting_bytes()?;
        }
        if let (Self::Stage, Verdict::RequireApproval) = (&self, judged.decision.verdict) {
            judged.load_contents(workspaces, run).map_err(Failure::All)?;
            judged.find_warnings(run);
        }
        let is_staged = match (&self, judged.decision.verdict) {
            (Self::Judge, _) | (_, Verdict::Deny) | (Self::Stage, Verdict::RequireApproval) => false,
            (Self::Stage, Verdict::Allow) => true,
            (Self::StageApproved(approved), Verdict::Allow | Verdict::RequireApproval) => {
                approved.check(&judged).map_err(|refusal| Failure::All(refusal.into()))?;
                true
            }
        };
        if !is_staged {
            // Nothing needs them any more, and this thread may block.
            judged.discard_staged();
            return Ok(Prepared::Judged(Box::new(judged)));
        }
        let usage = run.accounting.reserve(judged.usage());
        drop(judging);
        Ok(Prepared::Staged(Box::new(judged.stage(run, usage)?)))
    }
}

/// A refusal to lock is recorded. After any other error nothing can be recorded.
fn unless_refused(error: CallError) -> Failure {
    match error {
        CallError::Refused(_) => Failure::All(error),
        CallError::Moved(_) | CallError::Internal(_) => Failure::left_out(error),
    }
}

/// The ID belongs to an earlier call that was not part of the same batch.
fn reused_in_batch(call: &Call) -> Refusal {
    let id = &call.tool_call_id;
    let message = format!("the tool call ID `{id}` belongs to an earlier call that was not part of this batch");
    let hint = "Repeat a batch unchanged, with an ID for every mutation, or give every call a new ID.";
    Refusal::new(Code::ToolCallIdReused, message, hint)
}
