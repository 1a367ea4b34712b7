//! Syncs changed files after the answers, notes in the folders of their runs how far the trees are on the disk, and then prunes their
//! journal steps. The journal therefore always reaches back to the note.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Epoch, JournalledRun, Ledger};
use model::RunId;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use workspace::{Applied, ChainPoint, TreeNoteFile, sync_notes};

use crate::metrics;
use crate::run::open_run::OpenRun;

/// The maximum number of changes that wait for their sync. Answers of further mutations are delayed.
const MAX_WAITING: usize = 1024;
/// The maximum number of changes that are synced together.
const MAX_BATCH: usize = 512;
/// How long the first change of a batch waits for more.
const GATHER: Duration = Duration::from_millis(100);

/// How long to wait before pruning is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A change that is in the tree, but may not be on the disk yet.
struct UnsyncedChange {
    change: JournalledChange,
    applied: Applied,
}

/// What the journal has of a change.
struct JournalledChange {
    run_id: RunId,
    /// The epoch under which the run was opened, if several nodes share the ledger.
    epoch: Option<Epoch>,
    note: Arc<TreeNoteFile>,
    /// The records that have made the change together.
    records: Vec<ChainPoint>,
}

/// The handle of the task that syncs.
pub struct FsyncWorker {
    sender: Mutex<Option<mpsc::Sender<UnsyncedChange>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl FsyncWorker {
    /// Starts the task.
    pub fn start(ledger: Arc<dyn Ledger>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let task = tokio::spawn(run(ledger, receiver));
        Self { sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    /// Queues what `records` have changed together. Waits while the queue is full.
    pub async fn push(&self, run: &OpenRun, records: Vec<ChainPoint>, applied: Applied) {
        let sender = self.sender.lock().await.clone();
        let Some(sender) = sender else { return };
        let seqs: Vec<_> = records.iter().map(|record| record.seq).collect();
        let change = JournalledChange {
            run_id: run.run_id.clone(),
            epoch: run.epoch,
            note: Arc::clone(&run.tree_note),
            records,
        };
        if sender.send(UnsyncedChange { change, applied }).await.is_err() {
            // The task has ended with the engine. The next start repeats the steps.
            tracing::warn!(run.id = %run.run_id, ?seqs, "a change was not synced: the next start repeats it");
        }
    }

    /// Syncs what is queued, then ends the task.
    pub async fn close(&self) {
        drop(self.sender.lock().await.take());
        if let Some(task) = self.task.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the syncing task failed");
        }
    }
}

async fn run(ledger: Arc<dyn Ledger>, mut receiver: mpsc::Receiver<UnsyncedChange>) {
    let mut batch = Vec::new();
    // Synced and not pruned yet.
    let mut synced = Vec::new();
    loop {
        let received = receiver.recv_many(&mut batch, MAX_BATCH);
        match if synced.is_empty() { Ok(received.await) } else { tokio::time::timeout(RETRY_DELAY, received).await } {
            Ok(0) => break,
            Ok(_) => gather(&mut receiver, &mut batch).await,
            Err(_) => {}
        }
        let (changes, applied): (Vec<_>, Vec<_>) = batch.drain(..).map(|one| (one.change, one.applied)).unzip();
        if let Err(error) = tokio::task::spawn_blocking(move || fsync(&applied)).await {
            tracing::error!(%error, "changes could not be synced: the next start repeats them");
            return;
        }
        synced.extend(changes);
        settle(ledger.as_ref(), &mut synced).await;
    }
    settle(ledger.as_ref(), &mut synced).await;
}

/// Notes how far the trees of the `synced` changes are on the disk, and prunes the steps up to there. What cannot be pruned now stays for
/// the next attempt: also a change whose run has an earlier one that is not synced yet.
async fn settle(ledger: &dyn Ledger, synced: &mut Vec<JournalledChange>) {
    if synced.is_empty() {
        return;
    }
    failpoint::hit("fsync.synced");
    if let Err(error) = try_settle(ledger, synced).await {
        tracing::warn!(error = &*error as &dyn std::error::Error, "journal steps could not be pruned yet");
    }
    failpoint::hit("fsync.pruned");
}

async fn try_settle(
    ledger: &dyn Ledger,
    synced: &mut Vec<JournalledChange>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runs: HashSet<_> = synced.iter().map(|change| change.run_id.clone()).collect();
    let journalled = ledger.journalled(&Vec::from_iter(runs)).await?;
    let journalled: HashMap<_, _> = journalled.into_iter().map(|found| (found.run.clone(), found)).collect();
    let owned = |change: &JournalledChange| {
        let found = journalled.get(&change.run_id)?;
        change.epoch.is_none_or(|epoch| epoch == found.epoch).then_some(found)
    };
    // Of a run that another node has taken meanwhile, that node repeats the steps.
    synced.retain(|change| owned(change).is_some());
    let first_unsynced = first_unsynced(synced, &journalled);
    let is_noted = |run: &RunId, seq: u64| first_unsynced.get(run).is_none_or(|first| seq < *first);
    let (mut notes, mut done) = (Vec::new(), Vec::new());
    for change in synced.iter() {
        let records = change.records.iter().filter(|record| is_noted(&change.run_id, record.seq));
        done.extend(records.clone().map(|record| (change.run_id.clone(), record.seq)));
        notes.extend(records.max_by_key(|record| record.seq).map(|last| (Arc::clone(&change.note), *last)));
    }
    let noted = tokio::task::spawn_blocking(move || sync_notes(notes).inspect_err(abort_on_failed_fsync)).await;
    noted.map_err(io::Error::other).flatten()?;
    failpoint::hit("fsync.noted");
    ledger.prune(&done).await?;
    synced.retain_mut(|change| {
        change.records.retain(|record| !is_noted(&change.run_id, record.seq));
        !change.records.is_empty()
    });
    Ok(())
}

/// Returns the first record of each run that has steps in the journal and is not among the `synced` ones, if there is one.
fn first_unsynced(synced: &[JournalledChange], journalled: &HashMap<RunId, JournalledRun>) -> HashMap<RunId, u64> {
    let records = synced.iter().flat_map(|change| change.records.iter().map(|record| (&change.run_id, record.seq)));
    let is_synced: HashSet<_> = records.collect();
    let first = |(run, found): (&RunId, &JournalledRun)| {
        let seq = found.seqs.iter().find(|seq| !is_synced.contains(&(run, **seq)))?;
        Some((run.clone(), *seq))
    };
    journalled.iter().filter_map(first).collect()
}

async fn gather(receiver: &mut mpsc::Receiver<UnsyncedChange>, batch: &mut Vec<UnsyncedChange>) {
    let until = tokio::time::Instant::now() + GATHER;
    while batch.len() < MAX_BATCH {
        let limit = MAX_BATCH - batch.len();
        match tokio::time::timeout_at(until, receiver.recv_many(batch, limit)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Syncs what was applied. A sync that failed must not be repeated, since the kernel may have dropped the data: the process
/// ends, and the next start repeats the steps from the journal.
pub fn fsync(applied: &[Applied]) {
    let started = Instant::now();
    if let Err(error) = Applied::sync_all(applied) {
        abort_after(&error);
    }
    metrics::synced(started.elapsed());
}

/// Ends the process if `error` comes from a sync that failed.
pub fn abort_on_failed_fsync(error: &std::io::Error) {
    if workspace::is_fsync_failure(error) {
        abort_after(error);
    }
}

fn abort_after(error: &std::io::Error) -> ! {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "fsync failed: the process ends, and the next start repeats the changes from the journal"
    );
    std::process::abort();
}
