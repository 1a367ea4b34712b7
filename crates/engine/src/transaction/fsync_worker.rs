//! Syncs changed files behind the answers, and lets the ledger forget their steps.

use std::sync::Arc;
use std::time::Duration;

use ledger::Ledger;
use model::RunId;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use workspace::Applied;

use crate::engine::OpenRun;
use crate::transaction;

/// Changes that may wait for their sync; a mutation beyond waits with its answer.
const MAX_WAITING: usize = 1024;
/// Changes that are synced together.
const MAX_BATCH: usize = 512;
/// How long the first change of a batch waits for others.
const GATHER: Duration = Duration::from_millis(100);

/// How long the ledger is left alone that could not forget.
const AGAIN: Duration = Duration::from_secs(1);

/// A change that is in the tree, but may not be on the disk yet.
struct Waiting {
    run_id: RunId,
    seqs: Vec<u64>,
    applied: Applied,
}

/// The way to the task that syncs.
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

    /// Hands over what the records `seqs` have changed together; waits while too many are waiting.
    pub async fn push(&self, live: &OpenRun, seqs: Vec<u64>, applied: Applied) {
        let sender = self.sender.lock().await.clone();
        let Some(sender) = sender else { return };
        let waiting = Waiting { run_id: live.run_id.clone(), seqs: seqs.clone(), applied };
        if sender.send(waiting).await.is_err() {
            // The task has ended with the engine; the next start does the steps again.
            tracing::warn!(run.id = %live.run_id, ?seqs, "a change was left to the next start to sync");
        }
    }

    /// Syncs what waits, then ends the task.
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
    // What is synced and the ledger has not forgotten yet. Kept until it has: were later steps of the same file
    // forgotten alone, the next start would take their outcome for a change from outside.
    let mut synced = Vec::new();
    loop {
        let received = receiver.recv_many(&mut batch, MAX_BATCH);
        match if synced.is_empty() { Ok(received.await) } else { tokio::time::timeout(AGAIN, received).await } {
            Ok(0) => break,
            Ok(_) => gather(&mut receiver, &mut batch).await,
            Err(_) => {}
        }
        let (mut done, mut applied) = (Vec::new(), Vec::new());
        for one in batch.drain(..) {
            done.extend(one.seqs.into_iter().map(|seq| (one.run_id.clone(), seq)));
            applied.push(one.applied);
        }
        if let Err(error) = tokio::task::spawn_blocking(move || transaction::sync(&applied)).await {
            tracing::error!(%error, "changes could not be synced; the next start does them again");
            return;
        }
        synced.extend(done);
        forget(ledger.as_ref(), &mut synced).await;
    }
    forget(ledger.as_ref(), &mut synced).await;
}

/// Lets the ledger forget what is `synced`; what it cannot forget now stays for the next time.
async fn forget(ledger: &dyn Ledger, synced: &mut Vec<(RunId, u64)>) {
    if synced.is_empty() {
        return;
    }
    failpoint::hit("syncer.synced");
    match ledger.prune(synced).await {
        Ok(()) => synced.clear(),
        Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "steps could not be forgotten yet"),
    }
    failpoint::hit("syncer.forgotten");
}

async fn gather(receiver: &mut mpsc::Receiver<Waiting>, batch: &mut Vec<Waiting>) {
    let until = tokio::time::Instant::now() + GATHER;
    while batch.len() < MAX_BATCH {
        let room = MAX_BATCH - batch.len();
        match tokio::time::timeout_at(until, receiver.recv_many(batch, room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
