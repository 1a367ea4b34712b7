//! The quota of a run's history: what its calls, reads included, add to the database and to the object store.
//!
//! The ledger counts, and refuses a call in the transaction that would record it. Here a call of a full run is refused before it does any
//! work. Such refusals are recorded in a small reserve; once that is used up, they are answered without a record.

use std::borrow::Borrow;

use ledger::{EventQuota, HistoryExcess};
use model::{Code, RUN_TOKEN_ACTOR, Refusal};

use crate::call::{Call, OpenedCall};
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::run::quota::max_disk_bytes_exceeded;
use crate::{CallError, metrics};

impl Engine {
    /// Checks that the history of a run has room for `calls`, which add `object_bytes` to the object store. Calls of operators are not
    /// bounded: nobody is locked out.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub(crate) async fn check_history(
        &self,
        run: &OpenRun,
        calls: &[OpenedCall],
        object_bytes: u64,
    ) -> Result<(), CallError> {
        if !calls.iter().any(|call| is_bounded(call)) {
            return Ok(());
        }
        if let Some((limit, actual)) = self.node.full(object_bytes) {
            return Err(max_disk_bytes_exceeded(limit, actual).into());
        }
        if run.history.exceeded(calls.len(), object_bytes, false).is_none() {
            return Ok(());
        }
        // The archive and the collector give bytes back, and may do so in another process.
        if let Some(stored) = self.ledger.run(&run.run_id).await? {
            run.history.set(stored.run.disk.history_bytes, stored.run.head_seq);
        }
        match run.history.exceeded(calls.len(), object_bytes, false) {
            Some(excess) => Err(history_exceeded(excess).into()),
            None => Ok(()),
        }
    }

    /// Returns the refusal of `calls` whose run, or the whole service, has no room for the record of another refusal. It depends on
    /// nothing that the calls name, because it leaves no record.
    pub(crate) fn unrecorded_refusal<C: Borrow<Call>>(&self, calls: &[C]) -> Option<Refusal> {
        let is_bounded = calls.iter().any(|call| is_bounded(call.borrow()));
        let first = calls.first().filter(|_| is_bounded)?.borrow();
        if let Some((limit, actual)) = self.node.reserve_used() {
            return Some(without_record(max_disk_bytes_exceeded(limit, actual)));
        }
        let run = self.runs.get(&first.run_id)?;
        run.history.exceeded(calls.len(), 0, true).map(unrecorded)
    }
}

fn is_bounded(call: &Call) -> bool {
    call.caller.actor.starts_with(RUN_TOKEN_ACTOR)
}

/// The refusal of a call for which the history of its run has no room.
pub(crate) fn history_exceeded(excess: HistoryExcess) -> Refusal {
    let HistoryExcess { is_bytes, limit, actual } = excess;
    let (what, reason) =
        if is_bytes { ("bytes of history", "quota:maxHistoryBytes") } else { ("records", "quota:maxRecords") };
    let message = format!("the run would have {actual} {what}; the quota is {limit}");
    let hint = "This run cannot record any more calls, reads included: ask the orchestrator for a new run.";
    Refusal::new(Code::QuotaExceeded, message, hint).with_details(|details| {
        details.reasons = vec![reason.to_owned()];
        (details.limit, details.actual) = (Some(limit), Some(actual));
    })
}

/// The refusal of a call that cannot be recorded any more, not even as refused.
pub(crate) fn unrecorded(excess: HistoryExcess) -> Refusal {
    without_record(history_exceeded(excess))
}

fn without_record(mut refusal: Refusal) -> Refusal {
    metrics::refusal_unrecorded();
    refusal.message.push_str("; the reserve for the records of refusals is used up, so that this one is not recorded");
    refusal
}

/// The refusal of events or uploads that exceed a bound of their run.
pub(crate) fn events_exceeded(quota: EventQuota) -> Refusal {
    let EventQuota { is_bytes, limit, actual } = quota;
    let (what, reason) = if is_bytes { ("bytes of events", "quota:eventBytes") } else { ("events", "quota:events") };
    let message = format!("the run would have {actual} {what} and uploaded artifacts; it may have {limit}");
    Refusal::new(Code::QuotaExceeded, message, "Record less, or go on in a new run.").with_details(|details| {
        details.reasons = vec![reason.to_owned()];
        (details.limit, details.actual) = (Some(limit), Some(actual));
    })
}
