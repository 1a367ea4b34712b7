//! What is done again: after a kill, after a commit whose fate is not known, after a disk that failed for a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ledger::JournalEntry;
use model::{LogicalPath, RunId, Sha256, Step};
use workspace::{Applied, Replay};

use super::{bound, history, large, needs_repair};
use crate::CallError;
use crate::engine::{Engine, OpenRun, run_not_found};
use crate::history::snapshot::damaged_step;
use crate::runs::path_locks::{PathGuard, PathLocks};

/// Steps that the journal holds and that are not all in the tree yet. Dropped without being closed, it has the next
/// mutation look.
pub(super) struct OpenJournal<'a>(Option<&'a PathLocks>);

impl<'a> OpenJournal<'a> {
    pub(super) fn new(lane: &'a PathLocks) -> Self {
        Self(Some(lane))
    }

    pub(super) fn close(mut self) {
        self.0 = None;
    }
}

impl Drop for OpenJournal<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.0 {
            lane.set_unsettled(true);
        }
    }
}

/// Enters the lane for `paths`, once nothing is left that the ledger holds and the tree has not seen.
pub(super) async fn enter_settled<'a>(
    engine: &Engine,
    live: &'a Arc<OpenRun>,
    paths: Vec<LogicalPath>,
) -> Result<PathGuard<'a>, CallError> {
    loop {
        let pass = live.lane.enter(paths.clone()).await;
        if !live.lane.is_unsettled() {
            return Ok(pass);
        }
        drop(pass);
        // Alone in the lane: steps of a mutation that is under way must not be taken for left ones.
        let _alone = live.lane.enter(vec![LogicalPath::root()]).await;
        if live.lane.is_unsettled() {
            settle(engine, live).await.map_err(CallError::unsettled)?;
        }
    }
}

/// Does again whatever steps of the run the ledger still keeps. The caller is alone in the lane.
async fn settle(engine: &Engine, live: &Arc<OpenRun>) -> Result<(), CallError> {
    // A commit that is in doubt is waited for: what it has left is pending, and what it used up counts, or nothing of it is
    // ever there.
    let settled = engine.ledger.settled_run(&live.run_id).await?.ok_or_else(run_not_found)?;
    discard_doubtful(engine, live, &settled.journal).await?;
    let head = (settled.stored.run.head_seq, settled.stored.run.head_hash);
    redo(engine, live, settled.journal, head).await?;
    // Whose call it was has not told: what it changed, and what it used up, is known to the tree and the ledger alone.
    live.changed.forget();
    live.lane.start_anew(settled.stored.usage);
    live.disk.set_held(settled.stored.run.disk);
    live.waiting.set_pending(settled.stored.run.counts.pending_approvals);
    let written = history::written(engine, &live.run_id).await?;
    live.workspace.add_written(&Vec::from_iter(written));
    live.lane.set_unsettled(false);
    Ok(())
}

/// Removes the staged files of calls whose commits were in doubt and did not take place.
async fn discard_doubtful(engine: &Engine, live: &Arc<OpenRun>, open: &[JournalEntry]) -> Result<(), CallError> {
    let mut doubtful = live.lane.take_doubtful();
    let named: Vec<_> = open.iter().flat_map(|open| large::names(&open.steps)).collect();
    doubtful.retain(|name| !named.contains(name));
    if doubtful.is_empty() {
        return Ok(());
    }
    let run = Arc::clone(live);
    let discard = move || {
        large::discard_named(&run, &doubtful);
        Ok(())
    };
    engine.blocking(discard).await
}

/// Does the steps of some records again, for whose paths the caller holds the pass.
pub(super) async fn apply_again(engine: &Engine, live: &Arc<OpenRun>, seqs: &[u64]) -> Result<(), CallError> {
    // Should this fail too, the next call does it again.
    live.lane.set_unsettled(true);
    let settled = engine.ledger.settled_run(&live.run_id).await?.ok_or_else(run_not_found)?;
    let (mut open, head) = (settled.journal, (settled.stored.run.head_seq, settled.stored.run.head_hash));
    open.retain(|steps| seqs.contains(&steps.seq));
    if !is_sound(engine, live, &open, head).await? {
        return Err(needs_repair().into());
    }
    let steps: Vec<Step> = open.into_iter().flat_map(|open| open.steps).collect();
    let run = Arc::clone(live);
    match engine.blocking(move || run.workspace.replay(&steps).map_err(CallError::from)).await? {
        Replay::Done(applied) => {
            // Not forgotten here: steps of one file are forgotten in their order.
            engine.syncer.push(live, seqs.to_vec(), applied).await;
            Ok(())
        }
        Replay::ChangedOutside(paths) => {
            mark_for_repair(engine, live, &paths).await?;
            Err(needs_repair().into())
        }
    }
}

/// Waits until the tree holds all that the audit says of it.
async fn settled(engine: &Engine, live: &Arc<OpenRun>) -> Result<(), CallError> {
    if live.lane.is_unsettled() {
        drop(enter_settled(engine, live, Vec::new()).await?);
    }
    Ok(())
}

/// Makes sure that the tree may be looked at: it holds all that is recorded, or, where the disk does not let that in now,
/// nothing of it. Half a change is never shown.
pub async fn whole(engine: &Engine, live: &Arc<OpenRun>) -> Result<(), CallError> {
    match settled(engine, live).await {
        Ok(()) => Ok(()),
        Err(error) => unless_half_done(engine, live, error).await,
    }
}

/// As [`whole`], for one who holds the whole tree from then on, so that nothing changes in it. Waits for all that is under
/// way: not for callers that hold anything in the lane.
pub async fn enter_whole<'a>(engine: &Engine, live: &'a Arc<OpenRun>) -> Result<PathGuard<'a>, CallError> {
    match enter_settled(engine, live, vec![LogicalPath::root()]).await {
        Ok(alone) => Ok(alone),
        Err(error) => {
            let alone = live.lane.enter(vec![LogicalPath::root()]).await;
            unless_half_done(engine, live, error).await?;
            Ok(alone)
        }
    }
}

/// Waits until the tree holds every change that is recorded by now, and nobody is about to make another: not for callers
/// that hold anything in the lane.
///
/// # Errors
///
/// Where the disk does not take one of them.
pub async fn all_applied(engine: &Engine, live: &Arc<OpenRun>) -> Result<(), CallError> {
    enter_settled(engine, live, vec![LogicalPath::root()]).await.map(drop)
}

/// `error`, why pending changes could not be finished, where the tree has a part of one of them.
async fn unless_half_done(engine: &Engine, live: &Arc<OpenRun>, error: CallError) -> Result<(), CallError> {
    for open in engine.ledger.pending_journal(Some(&live.run_id)).await? {
        let run = Arc::clone(live);
        if engine.blocking(move || run.workspace.is_partially_applied(&open.steps).map_err(CallError::from)).await? {
            return Err(error);
        }
    }
    Ok(())
}

/// Finishes, run by run, what a disk or a store that failed for a while has left.
pub async fn settle_left(engine: &Engine) {
    for live in engine.runs.unsettled() {
        if let Err(error) = settled(engine, &live).await {
            // The next round tries again, and so does the run's next call.
            tracing::warn!(run.id = %live.run_id, error = &error as &dyn std::error::Error, "a change is unfinished");
        }
    }
}

/// Does steps again, in order, of the run whose chain ends at `head`. Where they cannot be, the run needs repair.
async fn redo(
    engine: &Engine,
    live: &Arc<OpenRun>,
    open: Vec<JournalEntry>,
    head: (u64, Sha256),
) -> Result<(), CallError> {
    if !is_sound(engine, live, &open, head).await? {
        return Ok(());
    }
    // A file that several calls changed is only looked at in its last state: earlier ones were overwritten.
    let merged = merge(open);
    let Some(seq) = merged.as_ref().map(|(seqs, _)| seqs.clone()) else { return Ok(()) };
    let steps = merged.map(|(_, steps)| steps).unwrap_or_default();
    let (run, staged) = (Arc::clone(live), large::names(&steps));
    let done = engine.blocking(move || run.workspace.replay(&steps).map_err(CallError::from)).await?;
    match done {
        Replay::Done(applied) => {
            let run = Arc::clone(live);
            engine
                .blocking(move || {
                    sync(&[applied]);
                    // What a file that was moved into the tree before was exchanged for.
                    large::discard_named(&run, &staged);
                    Ok(())
                })
                .await?;
            let done: Vec<_> = seq.into_iter().map(|seq| (live.run_id.clone(), seq)).collect();
            Ok(engine.ledger.prune(&done).await?)
        }
        Replay::ChangedOutside(paths) => mark_for_repair(engine, live, &paths).await,
    }
}

/// Finishes what a killed process had journalled, before the service listens. Returns how many records' steps there were.
/// Where that fails for a run, it alone is left for its next call, or for its operator.
pub async fn recover(engine: &Engine) -> Result<usize, CallError> {
    let mut found = 0;
    for run in engine.ledger.runs_with_pending_journal().await? {
        match recover_run(engine, &run).await {
            Ok(count) => found += count,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(run.id = %run, error, "the run's pending changes cannot be finished");
            }
        }
    }
    Ok(found)
}

async fn recover_run(engine: &Engine, run_id: &RunId) -> Result<usize, CallError> {
    let live = engine.live(run_id).await?;
    let found = engine.ledger.pending_journal(Some(run_id)).await?.len();
    settle(engine, &live).await?;
    let changed_outside = live.needs_repair.load(Ordering::Acquire);
    tracing::info!(run.id = %run_id, changed_outside, "pending changes were finished");
    Ok(found)
}

/// The records that steps belong to, and the steps in order.
fn merge(open: Vec<JournalEntry>) -> Option<(Vec<u64>, Vec<Step>)> {
    let mut seqs = Vec::new();
    let mut steps = Vec::new();
    for one in open {
        seqs.push(one.seq);
        steps.extend(one.steps);
    }
    (!seqs.is_empty()).then_some((seqs, steps))
}

/// Whether the ledger still keeps what pending changes are to write, and its chain says the same of them. Else nothing of them is done, and the run alone waits
/// for its operator: a whole service that does not start would be a large price for one bad row.
async fn is_sound(
    engine: &Engine,
    live: &OpenRun,
    open: &[JournalEntry],
    head: (u64, Sha256),
) -> Result<bool, CallError> {
    let damaged: Option<Box<dyn std::error::Error + Send + Sync>> = match damaged_step(open) {
        Some(damaged) => Some(damaged.into()),
        None => bound::unbound(engine.ledger.as_ref(), &live.run_id, open, head).await?.map(Into::into),
    };
    let Some(damaged) = damaged else { return Ok(true) };
    tracing::error!(run.id = %live.run_id, error = &*damaged as &(dyn std::error::Error + 'static), "a pending change cannot be finished");
    set_needs_repair(engine, live).await?;
    Ok(false)
}

pub(super) async fn mark_for_repair(engine: &Engine, live: &OpenRun, changed: &[LogicalPath]) -> Result<(), CallError> {
    let paths: Vec<_> = changed.iter().map(LogicalPath::as_str).collect();
    tracing::error!(run.id = %live.run_id, ?paths, "changed from outside while a change was pending: the run needs repair");
    set_needs_repair(engine, live).await
}

async fn set_needs_repair(engine: &Engine, live: &OpenRun) -> Result<(), CallError> {
    live.needs_repair.store(true, Ordering::Release);
    Ok(engine.ledger.set_needs_repair(&live.run_id, true).await?)
}

/// Ends the process where `error` is of a sync that failed.
pub fn end_on_lost_sync(error: &std::io::Error) {
    if workspace::is_fsync_failure(error) {
        tracing::error!(error = error as &dyn std::error::Error, "a sync failed: ending, to recover from the journal");
        std::process::abort();
    }
}

/// Syncs what was applied. A sync that fails must not be tried again, since the kernel may have dropped the data: the
/// process ends, and the next start does the steps again from the journal.
pub fn sync(applied: &[Applied]) {
    if let Err(error) = Applied::sync_all(applied) {
        tracing::error!(error = &error as &dyn std::error::Error, "a sync failed: ending, to recover from the journal");
        std::process::abort();
    }
}
