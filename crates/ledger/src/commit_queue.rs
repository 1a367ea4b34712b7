//! The queue of jobs for a backend's writer. Jobs that arrive during a commit share the next one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::{LedgerError, Result};

/// Maximum number of queued jobs; further callers wait.
const MAX_QUEUED: usize = 1024;

/// How long after a commit of reads alone, which does not sync the log, the log is synced. With the sync itself this takes less than the
/// 50 ms of which a power cut may lose the reads.
pub(crate) const SYNC_DELAY: Duration = Duration::from_millis(20);

/// Records the size and the duration of a commit of `jobs` jobs.
pub(crate) fn count_commit(jobs: usize, duration: Duration) {
    metrics::histogram!("workspaced_commit_duration_seconds").record(duration);
    #[expect(clippy::cast_precision_loss, reason = "at most the length of the queue")]
    metrics::histogram!("workspaced_commit_group_jobs").record(jobs as f64);
}

/// The sending half of a queue of jobs `J`. The writer has the receiving half.
pub(crate) struct CommitQueue<J> {
    /// `None` after the queue was closed: the writer ends when every sender is dropped.
    jobs: Mutex<Option<mpsc::Sender<J>>>,
}

impl<J> CommitQueue<J> {
    /// Creates a queue. Returns it with the receiving half.
    pub(crate) fn new() -> (Self, mpsc::Receiver<J>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        (Self { jobs: Mutex::new(Some(sender)) }, receiver)
    }

    /// Enqueues the job that `job` creates with the sender for its result, and waits for the result.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the queue is closed; `InDoubt` if the writer ends without sending the result.
    pub(crate) async fn submit<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> J) -> Result<T> {
        let closed = || LedgerError::Unavailable("the ledger is closed".into());
        let (result, receiver) = oneshot::channel();
        let job = job(result);
        let jobs = self.jobs.lock().clone().ok_or_else(closed)?;
        jobs.send(job).await.map_err(|_| closed())?;
        drop(jobs);
        // The writer may have committed the job before it ended.
        receiver.await.map_err(|_| LedgerError::InDoubt("the ledger's writer has ended".into()))?
    }

    /// Rejects further jobs. The writer ends after the queued ones.
    pub(crate) fn close(&self) {
        self.jobs.lock().take();
    }
}
