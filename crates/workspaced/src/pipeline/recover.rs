//! What is done again: after a kill, after a commit whose fate is not known, after a disk that failed for a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ledger::OpenSteps;
use model::{LogicalPath, Step};
use workspace::{Applied, Redo};

use super::needs_repair;
use crate::CallError;
use crate::lane::Pass;
use crate::service::{LiveRun, Service};

/// Enters the lane for `paths`, once nothing is left that the ledger holds and the tree has not seen.
pub(super) async fn enter_settled<'a>(
    service: &Service,
    live: &'a Arc<LiveRun>,
    paths: Vec<LogicalPath>,
) -> Result<Pass<'a>, CallError> {
    loop {
        let pass = live.lane.enter(paths.clone()).await;
        if !live.lane.is_unsettled() {
            return Ok(pass);
        }
        drop(pass);
        // Alone in the lane: steps of a mutation that is under way must not be taken for left ones.
        let _alone = live.lane.enter(vec![LogicalPath::root()]).await;
        if live.lane.is_unsettled() {
            settle(service, live).await?;
        }
    }
}

/// Does again whatever steps of the run the ledger still keeps. The caller is alone in the lane.
async fn settle(service: &Service, live: &Arc<LiveRun>) -> Result<(), CallError> {
    let open = service.0.ledger.open_steps(Some(&live.run_id)).await?;
    redo(service, live, open).await?;
    live.lane.set_unsettled(false);
    Ok(())
}

/// Does the steps of some records again, for whose paths the caller holds the pass.
pub(super) async fn apply_again(service: &Service, live: &Arc<LiveRun>, seqs: &[u64]) -> Result<(), CallError> {
    // Should this fail too, the next mutation does it again.
    live.lane.set_unsettled(true);
    let mut open = service.0.ledger.open_steps(Some(&live.run_id)).await?;
    open.retain(|steps| seqs.contains(&steps.seq));
    if redo(service, live, open).await?.is_empty() { Ok(()) } else { Err(needs_repair().into()) }
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
            service
                .blocking(move || {
                    sync(&[applied]);
                    Ok(())
                })
                .await?;
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
        if changed.is_empty() {
            live.lane.set_unsettled(false);
            let run = Arc::clone(&live);
            service.blocking(move || Ok(run.workspace.clear_tmp()?)).await?;
        }
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

pub(super) async fn mark_for_repair(
    service: &Service,
    live: &LiveRun,
    changed: &[LogicalPath],
) -> Result<(), CallError> {
    let paths: Vec<_> = changed.iter().map(LogicalPath::as_str).collect();
    tracing::error!(run.id = %live.run_id, ?paths, "changed from outside while a change was pending: the run needs repair");
    live.needs_repair.store(true, Ordering::Release);
    Ok(service.0.ledger.set_needs_repair(&live.run_id, true).await?)
}

/// Syncs what was applied. A sync that fails must not be tried again, since the kernel may have dropped the data: the
/// process ends, and the next start does the steps again from the journal.
pub(crate) fn sync(applied: &[Applied]) {
    if let Err(error) = Applied::sync_all(applied) {
        tracing::error!(error = &error as &dyn std::error::Error, "a sync failed: ending, to recover from the journal");
        std::process::abort();
    }
}
