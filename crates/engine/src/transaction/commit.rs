//! The fifth state of a transaction: journal steps, records, artifacts, replies and the approval decision are durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{Appended, DecidedApproval, LedgerError};
use model::{LogicalPath, Record, Step, Usage};

use crate::CallError;
use crate::call::history_quota::history_exceeded;
use crate::call::record::Failure;
use crate::call::{Answer, OpenedCall};
use crate::call_error::refusals::refusal_of;
use crate::call_error::refusals::{already_recorded, approval_not_pending};
use crate::clock::latest;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::run::staged_files;
use crate::transaction::entries::committed;
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
        let Self { calls, mut items, files, large_files, usage, disk, disk_change } = self;
        let found = if outside::is_found(&items) {
            // Boxed, so that the future of any other call is smaller.
            Box::pin(outside::describe(engine, run, &calls, &mut items)).await
        } else {
            Ok(None)
        };
        let found = found.map_err(|error| {
            staged_files::discard(run, &large_files);
            Failure::All(error)
        })?;
        let (decision, expires_at) = approved.unzip();
        let rows = calls.iter().zip(items).map(|(call, item)| committed(call, item));
        let (mut entries, answers): (Vec<_>, Vec<_>) = rows.unzip();
        for entry in entries.iter_mut().filter(|entry| entry.usage != Usage::default()) {
            entry.run_budget.clone_from(&run.rules.policy().run_budget);
        }
        let person = decision.as_ref().and_then(|decision| decision.on_behalf_of.as_ref());
        for entry in entries.iter_mut().filter(|entry| entry.draft.mutates) {
            entry.draft.reasons.extend(person.map(|name| format!("onBehalfOf:{name}")));
        }
        if let Some(first) = entries.iter_mut().find(|entry| entry.draft.mutates) {
            (first.approval_decision, first.disk) = (decision, disk_change);
            (first.objects, first.left_paths) = (stored.objects, stored.left_paths);
        }
        // The change from outside comes first: the calls build on it.
        let preceding = usize::from(found.is_some());
        entries.splice(0..0, found);
        for entry in &mut entries {
            entry.epoch = run.epoch;
        }
        let modes: BTreeMap<LogicalPath, u32> =
            entries.iter().flat_map(|entry| &entry.steps).filter_map(mode_of).collect();
        failpoint::hit("transaction.staged");
        // Opening the run and waiting for its locks take time, and callers see an approval as expired from then on.
        if expires_at.is_some_and(|expires_at| expires_at <= latest()) {
            staged_files::discard(run, &large_files);
            return Err(Failure::left_out(approval_not_pending()));
        }
        let records = match engine.append(entries).await {
            Ok(Appended::Recorded(records)) => Vec::from(records),
            Ok(Appended::Reused(index)) => {
                let reused = Ok(Appended::Reused(index.saturating_sub(preceding)));
                return Err(undo(engine, run, &calls, large_files, reused).await);
            }
            not_recorded => return Err(undo(engine, run, &calls, large_files, not_recorded).await),
        };
        for record in &records {
            run.known.add(record, &modes);
        }
        usage.settle();
        disk.settle(disk_change);
        for record in &records {
            run.seen_versions.add(record);
        }
        let complete = |((call, answer), record): ((&OpenedCall, _), &Record)| {
            crate::transaction::entries::PendingAnswer::complete(answer, call, record.seq, record.hash)
        };
        let answers = calls.iter().zip(answers).zip(&records[preceding.min(records.len())..]).map(complete).collect();
        let records = records.into_iter().filter(|record| !record.paths_written.is_empty()).collect();
        Ok(Committed { answers, records, files })
    }
}

/// Returns the permission bits of the file that a step leaves.
fn mode_of(step: &Step) -> Option<(LogicalPath, u32)> {
    step.after.as_ref().map(|content| (step.path.clone(), content.mode))
}

/// Removes the staged files of entries that the ledger did not append, and returns the reason.
async fn undo(
    engine: &Engine,
    run: &OpenRun,
    calls: &[OpenedCall],
    large_files: Vec<String>,
    appended: ledger::Result<Appended>,
) -> Failure {
    let error = match appended {
        Err(error @ LedgerError::RunMoved(_)) => Failure::left_out(error),
        Err(error @ LedgerError::ObjectNotReserved(_)) => Failure::All(error.into()),
        Err(error) => {
            // The commit may have taken effect nevertheless. The next call reconciles before it plans.
            run.accounting.set_uncertain(large_files);
            run.seen_versions.clear();
            return Failure::left_out(error);
        }
        Ok(Appended::Repeated(_)) => {
            // An earlier attempt with an uncertain outcome is recorded. Its steps may not be applied yet.
            run.accounting.set_dirty();
            Failure::left_out(already_recorded())
        }
        Ok(Appended::Reused(index)) => Failure::Recorded(engine.record_reused_id(&calls[index]).await),
        Ok(Appended::NotPending) => Failure::left_out(approval_not_pending()),
        Ok(Appended::PreconditionFailed(failed)) => Failure::All(refusal_of(failed).into()),
        Ok(Appended::HistoryQuotaExceeded(excess)) => Failure::All(history_exceeded(excess).into()),
        Ok(Appended::Recorded(_)) => return Failure::left_out(already_recorded()),
        Ok(other @ (Appended::Unchanged | Appended::NoSuchToken | Appended::EventQuotaExceeded(_))) => {
            Failure::left_out(CallError::Internal(format!("the ledger rejected a mutation as {other:?}").into()))
        }
    };
    staged_files::discard(run, &large_files);
    error
}
