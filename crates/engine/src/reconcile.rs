//! Reconciliation: applies recorded changes that a run's tree lacks after a kill, an uncertain commit or a temporary error of
//! the disk.
//!
//! A run is dirty while the ledger may have journal steps that the tree lacks. A call that locks paths of a dirty run, or
//! reads it, reconciles it first: every target of a journal step has its old or its new version, and gets the new one. If a
//! target has another version, this run needs repair.

mod journal_check;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ledger::{JournalEntry, LedgerError};
use model::{LogicalPath, RunId, Sha256, Step};
use workspace::{ChainPoint, Replay};

use crate::CallError;
use crate::call_error::refusals::{needs_repair, run_not_found};
use crate::clock::now;
use crate::engine::Engine;
use crate::history::content_history::damaged_step;
use crate::run::fsync_worker::{abort_on_failed_fsync, fsync};
use crate::run::known_versions::KnownVersions;
use crate::run::open_run::OpenRun;
use crate::run::path_locks::PathGuard;
use crate::run::staged_files;

/// Locks `paths` once the tree has every recorded change.
///
/// # Errors
///
/// If a recorded change cannot be applied now.
pub(crate) async fn lock(
    engine: &Arc<Engine>,
    run: &Arc<OpenRun>,
    paths: Vec<LogicalPath>,
) -> Result<PathGuard, CallError> {
    loop {
        let guard = run.path_locks.lock(paths.clone()).await;
        if !run.accounting.is_dirty() {
            return Ok(guard);
        }
        drop(guard);
        // With the whole run locked, no pending step belongs to a mutation in progress.
        let all = lock_all(run).await;
        if run.accounting.is_dirty() {
            let (owned, engine_clone) = (Arc::clone(run), Arc::clone(engine));
            // The guard moves into the task, so that the run stays locked if the client disconnects.
            let task = async move {
                let reconciled = reconcile(&engine_clone, &owned).await;
                drop(all);
                reconciled
            };
            engine.detached(task).await.map_err(CallError::earlier_unapplied)?;
        }
    }
}

/// Reconciles the run if it is dirty.
///
/// # Errors
///
/// If a recorded change cannot be applied now.
pub(crate) async fn lock_if_dirty(engine: &Arc<Engine>, run: &Arc<OpenRun>) -> Result<(), CallError> {
    if run.accounting.is_dirty() {
        drop(lock(engine, run, Vec::new()).await?);
    }
    Ok(())
}

/// Ensures that a read sees no partially applied change: the tree has every recorded change, or none that cannot be applied
/// now.
///
/// # Errors
///
/// If a change is partially applied.
pub(crate) async fn ensure_consistent(engine: &Arc<Engine>, run: &Arc<OpenRun>) -> Result<(), CallError> {
    match lock_if_dirty(engine, run).await {
        Ok(()) => Ok(()),
        Err(error) => unless_partially_applied(engine, run, error).await,
    }
}

/// As [`ensure_consistent`], and locks the whole run. The caller must hold no lock of the run.
///
/// # Errors
///
/// If a change is partially applied.
pub(crate) async fn lock_consistent(engine: &Arc<Engine>, run: &Arc<OpenRun>) -> Result<PathGuard, CallError> {
    match lock(engine, run, vec![LogicalPath::root()]).await {
        Ok(guard) => Ok(guard),
        Err(error) => {
            let guard = lock_all(run).await;
            unless_partially_applied(engine, run, error).await?;
            Ok(guard)
        }
    }
}

/// Waits until the tree has every recorded change and no mutation is in progress. The caller must hold no lock of the run.
///
/// # Errors
///
/// If a change cannot be applied now.
pub(crate) async fn apply_all(engine: &Arc<Engine>, run: &Arc<OpenRun>) -> Result<(), CallError> {
    lock(engine, run, vec![LogicalPath::root()]).await.map(drop)
}

async fn lock_all(run: &OpenRun) -> PathGuard {
    run.path_locks.lock(vec![LogicalPath::root()]).await
}

/// Returns `error`, which prevented recorded changes from being applied, if one of them is partially applied.
async fn unless_partially_applied(engine: &Engine, run: &Arc<OpenRun>, error: CallError) -> Result<(), CallError> {
    for entry in engine.ledger.pending_journal(Some(&run.run_id)).await? {
        let run = Arc::clone(run);
        let is_partial = move || run.workspace.is_partially_applied(&entry.steps).map_err(CallError::from);
        if engine.blocking(is_partial).await? {
            return Err(error);
        }
    }
    Ok(())
}

/// Repeats every journal step that the ledger still has. The caller has locked the whole run.
async fn reconcile(engine: &Engine, run: &Arc<OpenRun>) -> Result<(), CallError> {
    let mut change = run.tree_states.begin();
    change.begin_to_apply();
    // Waits for uncertain commits: their steps are now pending, or will never be.
    let settled = engine.ledger.settled_run(&run.run_id).await?.ok_or_else(run_not_found)?;
    discard_uncertain_files(engine, run, &settled.journal).await?;
    let stored = settled.stored;
    replay_journal(engine, run, settled.journal, (stored.run.head_seq, stored.run.head_hash)).await?;
    // The calls that made these changes have not updated the state in memory, so it is read from the ledger.
    run.disk.set_held(stored.run.disk.tree());
    run.history.set(stored.run.disk.history_bytes, stored.run.head_seq);
    run.pending_approvals.set(stored.run.counts.pending_approvals);
    run.known.replace(KnownVersions::load(engine.ledger.as_ref(), &run.run_id).await?);
    run.workspace.add_written(&run.known.paths());
    let reconciled = Arc::clone(run);
    engine.blocking(move || Ok(reconciled.workspace.hide_removed(&reconciled.known.removed())?)).await?;
    run.accounting.set_reconciled(stored.usage);
    Ok(())
}

/// Removes the staged files of calls whose uncertain commits were rolled back.
async fn discard_uncertain_files(
    engine: &Engine,
    run: &Arc<OpenRun>,
    journal: &[JournalEntry],
) -> Result<(), CallError> {
    let named: Vec<_> = journal.iter().flat_map(|entry| staged_files::names(&entry.steps)).collect();
    let mut files = run.accounting.take_uncertain_files();
    files.retain(|name| !named.contains(name));
    if files.is_empty() {
        return Ok(());
    }
    let run = Arc::clone(run);
    let discard = move || {
        staged_files::discard(&run, &files);
        Ok(())
    };
    engine.blocking(discard).await
}

/// Repeats all steps of `journal`, in order. `head` is that of the run's chain. If they cannot be repeated, the run needs
/// repair.
async fn replay_journal(
    engine: &Engine,
    run: &Arc<OpenRun>,
    journal: Vec<JournalEntry>,
    head: (u64, Sha256),
) -> Result<(), CallError> {
    if journal.is_empty() || !is_intact(engine, run, &journal, head).await? {
        return Ok(());
    }
    let done: Vec<_> = journal.iter().map(|entry| (run.run_id.clone(), entry.seq)).collect();
    // A file that several calls changed is compared only with its last version, since earlier ones were overwritten.
    let steps: Vec<Step> = journal.into_iter().flat_map(|entry| entry.steps).collect();
    let (tree, staged) = (Arc::clone(run), staged_files::names(&steps));
    let head = ChainPoint { seq: head.0, hash: head.1 };
    match engine.blocking(move || replay(&tree, &steps, head)).await? {
        Replay::Done(applied) => {
            let run = Arc::clone(run);
            let finish = move || {
                fsync(&[applied]);
                // With the whole run locked, the tree has every change of the chain.
                run.tree_note.reach(head).inspect_err(abort_on_failed_fsync)?;
                // The old content of a large file that was exchanged with the new one before.
                staged_files::discard(&run, &staged);
                Ok(())
            };
            engine.blocking(finish).await?;
            Ok(engine.ledger.prune(&done).await?)
        }
        Replay::ChangedOutside(paths) => mark_for_repair(engine, run, &paths).await,
    }
}

/// Repeats the steps of some records, whose paths the caller has locked.
///
/// # Errors
///
/// If they cannot be repeated now. The next call of the run tries again.
pub(crate) async fn replay_records(
    engine: &Engine,
    run: &Arc<OpenRun>,
    records: &[ChainPoint],
) -> Result<(), CallError> {
    run.accounting.set_dirty();
    let settled = engine.ledger.settled_run(&run.run_id).await?.ok_or_else(run_not_found)?;
    let (mut journal, head) = (settled.journal, (settled.stored.run.head_seq, settled.stored.run.head_hash));
    journal.retain(|entry| records.iter().any(|record| record.seq == entry.seq));
    if !is_intact(engine, run, &journal, head).await? {
        return Err(needs_repair().into());
    }
    let steps: Vec<Step> = journal.into_iter().flat_map(|entry| entry.steps).collect();
    let Some(last) = records.last().copied() else { return Ok(()) };
    let tree = Arc::clone(run);
    match engine.blocking(move || replay(&tree, &steps, last)).await? {
        Replay::Done(applied) => {
            // Not pruned here: steps of one file are pruned in their order.
            engine.fsync_worker.push(run, records.to_vec(), applied).await;
            Ok(())
        }
        Replay::ChangedOutside(paths) => {
            mark_for_repair(engine, run, &paths).await?;
            Err(needs_repair().into())
        }
    }
}

/// Repeats `steps`, the last of which belong to the record `last` or to earlier ones.
fn replay(run: &OpenRun, steps: &[Step], last: ChainPoint) -> Result<Replay, CallError> {
    run.tree_note.begin(last)?;
    Ok(run.workspace.replay(steps)?)
}

/// Reconciles the dirty open runs, after a temporary error of the disk or the database.
pub(crate) async fn reconcile_dirty_runs(engine: &Arc<Engine>) {
    for run in engine.runs.dirty() {
        if let Err(error) = lock_if_dirty(engine, &run).await {
            // The next round and the run's next call try again.
            tracing::warn!(run.id = %run.run_id, error = &error as &dyn std::error::Error, "a recorded change cannot be applied yet");
        }
    }
}

/// Reconciles all runs at the start, before the service listens. Returns the number of journal entries found. If that
/// fails for a run, its next call tries again, or it needs repair.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn reconcile_all(engine: &Arc<Engine>) -> Result<usize, CallError> {
    let mut found = 0;
    for run_id in engine.ledger.runs_with_pending_journal().await? {
        if !engine.was_of_this_node(&run_id).await? {
            // Its owner, or the next one, applies them.
            continue;
        }
        match reconcile_at_start(engine, &run_id).await {
            Ok(count) => found += count,
            // Another node applies them.
            Err(CallError::Moved(_)) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(run.id = %run_id, error, "the run's pending changes could not be applied");
            }
        }
    }
    Ok(found)
}

async fn reconcile_at_start(engine: &Arc<Engine>, run_id: &RunId) -> Result<usize, CallError> {
    if engine.is_elsewhere(run_id).await? {
        // Opening the run makes its tree with them.
        return Ok(0);
    }
    let run = engine.open(run_id).await?;
    let found = engine.ledger.pending_journal(Some(run_id)).await?.len();
    reconcile(engine, &run).await?;
    let needs_repair = run.needs_repair.load(Ordering::Acquire);
    tracing::info!(run.id = %run_id, needs_repair, "pending changes were applied");
    Ok(found)
}

/// Whether the contents of pending changes are intact and match the records of the chain. If not, nothing is applied, and this
/// run needs repair.
async fn is_intact(
    engine: &Engine,
    run: &OpenRun,
    journal: &[JournalEntry],
    head: (u64, Sha256),
) -> Result<bool, CallError> {
    let damaged: Option<Box<dyn std::error::Error + Send + Sync>> = match damaged_step(journal) {
        Some(damaged) => Some(damaged.into()),
        None => journal_check::find_mismatch(engine.ledger.as_ref(), &run.run_id, journal, head).await?.map(Into::into),
    };
    let Some(damaged) = damaged else { return Ok(true) };
    tracing::error!(
        run.id = %run.run_id,
        error = &*damaged as &(dyn std::error::Error + 'static),
        "a pending change does not match its record and is not applied"
    );
    set_needs_repair(engine, run).await?;
    Ok(false)
}

/// Marks the run as changed from outside at `changed` while a change was pending.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn mark_for_repair(engine: &Engine, run: &OpenRun, changed: &[LogicalPath]) -> Result<(), CallError> {
    let paths: Vec<_> = changed.iter().map(LogicalPath::as_str).collect();
    tracing::error!(run.id = %run.run_id, ?paths, "changed from outside while a change was pending: the run needs repair");
    set_needs_repair(engine, run).await
}

async fn set_needs_repair(engine: &Engine, run: &OpenRun) -> Result<(), CallError> {
    run.needs_repair.store(true, Ordering::Release);
    let marked = engine.ledger.set_needs_repair(&run.run_id, true, &now()).await;
    if let (Err(LedgerError::RunMoved(_)), Some(epoch)) = (&marked, run.epoch) {
        engine.runs.lose(&run.run_id, epoch);
    }
    Ok(marked?)
}

/// Number of attempts without a lock.
const MAX_ATTEMPTS: u32 = 4;
/// A read that has taken longer is not attempted again without a lock: it would most likely be disturbed again.
const MAX_UNLOCKED: Duration = Duration::from_millis(200);
/// The wait for a change that is being applied, which takes less than a millisecond per file.
const PAUSE: Duration = Duration::from_micros(300);

/// The result of the attempts without a lock: that of the read, or the read itself if changes have disturbed every attempt.
type Attempted<T, R> = Result<Result<T, CallError>, R>;

impl Engine {
    /// Runs `read`, which may block and looks at several files of the run's tree, so that all of them are as they were at one record.
    ///
    /// `read` is called again if a change was applied during it. After a few attempts the run is locked, in order of arrival with
    /// its mutations, so that neither readers nor writers wait for ever.
    ///
    /// The caller must hold no lock of the run.
    ///
    /// # Errors
    ///
    /// As for `read`; if a recorded change is partially applied and cannot be completed now.
    pub(crate) async fn read_one_state<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        read: impl FnMut() -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let tried = Arc::clone(run);
        let read = match self.blocking(move || Ok(attempt(&tried, read))).await? {
            Ok(done) => return done,
            Err(read) => read,
        };
        let _locked = lock_consistent(self, run).await?;
        self.blocking(read).await
    }
}

fn attempt<T, R: FnMut() -> Result<T, CallError>>(run: &OpenRun, mut read: R) -> Attempted<T, R> {
    let started = Instant::now();
    for _ in 0..MAX_ATTEMPTS {
        // The tree of a dirty run may lack a part of a change.
        let Some(version) = run.tree_states.version_at_record().filter(|_| !run.accounting.is_dirty()) else {
            #[expect(clippy::disallowed_methods, reason = "on a thread that may block")]
            std::thread::sleep(PAUSE);
            continue;
        };
        let done = read();
        if run.tree_states.is_unchanged(version) {
            return Ok(done);
        }
        if started.elapsed() > MAX_UNLOCKED {
            break;
        }
    }
    Err(read)
}
