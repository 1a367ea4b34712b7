//! Syncs changed files after the answers, and then prunes their journal steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::Ledger;
use model::RunId;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use workspace::Applied;

use crate::metrics;

/// The maximum number of changes that wait for their sync. Answers of further mutations are delayed.
const MAX_WAITING: usize = 1024;
/// The maximum number of changes that are synced together.
const MAX_BATCH: usize = 512;
/// How long the first change of a batch waits for more.
const GATHER: Duration = Duration::from_millis(100);

/// How long to wait before pruning is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A change that is in the tree, but may not be on the disk yet.
struct Waiting {
    run_id: RunId,
    seqs: Vec<u64>,
    applied: Applied,
}

/// The handle of the task that syncs.
pub struct FsyncWorker {
    sender: Mutex<Option<mpsc::Sender<Waiting>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl FsyncWorker {
    /// Starts the task.
    pub fn start(ledger: Arc<dyn Ledger>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let task = tokio::spawn(run(ledger, receiver));
        Self { sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    /// Queues what the records `seqs` have changed together. Waits while the queue is full.
    pub async fn push(&self, run_id: &RunId, seqs: Vec<u64>, applied: Applied) {
        let sender = self.sender.lock().await.clone();
        let Some(sender) = sender else { return };
        let waiting = Waiting { run_id: run_id.clone(), seqs: seqs.clone(), applied };
        if sender.send(waiting).await.is_err() {
            // The task has ended with the engine. The next start repeats the steps.
            tracing::warn!(run.id = %run_id, ?seqs, "a change was not synced: the next start repeats it");
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

async fn run(ledger: Arc<dyn Ledger>, mut receiver: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::new();
    // Synced and not pruned yet. Steps of one file are pruned in order: if only later ones were pruned, the next start would
    // take their result for a change from outside.
    let mut synced = Vec::new();
    loop {
        let received = receiver.recv_many(&mut batch, MAX_BATCH);
        match if synced.is_empty() { Ok(received.await) } else { tokio::time::timeout(RETRY_DELAY, received).await } {
            Ok(0) => break,
            Ok(_) => gather(&mut receiver, &mut batch).await,
            Err(_) => {}
        }
        let (mut done, mut applied) = (Vec::new(), Vec::new());
        for one in batch.drain(..) {
            done.extend(one.seqs.into_iter().map(|seq| (one.run_id.clone(), seq)));
            applied.push(one.applied);
        }
        if let Err(error) = tokio::task::spawn_blocking(move || fsync(&applied)).await {
            tracing::error!(%error, "changes could not be synced: the next start repeats them");
            return;
        }
        synced.extend(done);
        prune(ledger.as_ref(), &mut synced).await;
    }
    prune(ledger.as_ref(), &mut synced).await;
}

/// Prunes the steps that are `synced`. Those that cannot be pruned now stay for the next attempt.
async fn prune(ledger: &dyn Ledger, synced: &mut Vec<(RunId, u64)>) {
    if synced.is_empty() {
        return;
    }
    failpoint::hit("fsync.synced");
    match ledger.prune(synced).await {
        Ok(()) => synced.clear(),
        Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "journal steps could not be pruned yet"),
    }
    failpoint::hit("fsync.pruned");
}

async fn gather(receiver: &mut mpsc::Receiver<Waiting>, batch: &mut Vec<Waiting>) {
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
