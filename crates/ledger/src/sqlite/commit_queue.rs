//! The queue of the thread that writes. Jobs that arrive during a commit share the next one.

use std::fs::File;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::convert::unavailable;
use super::writer::{Job, Writer};
use crate::Result;

/// The queue of jobs, and the thread that commits them.
pub(crate) struct CommitQueue {
    /// Taken at the end: the thread ends when no sender is left.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitQueue {
    /// Starts the thread. It holds `lock_file` until the last commit, so that the next process sees every commit.
    pub(crate) fn start(writer: Writer, jobs: mpsc::Sender<Job>, lock_file: File) -> Result<Self> {
        let run = move || {
            writer.run();
            drop(lock_file);
        };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Enqueues `job`. Waits while the queue is full.
    ///
    /// # Errors
    ///
    /// If the writer has ended.
    pub(crate) async fn submit(&self, job: Job) -> std::result::Result<(), mpsc::error::SendError<Job>> {
        let jobs = self.jobs.lock().clone();
        match jobs {
            Some(jobs) => jobs.send(job).await,
            None => Err(mpsc::error::SendError(job)),
        }
    }

    /// Commits the queued jobs and ends. Further jobs are rejected.
    pub(crate) async fn end(&self) {
        drop(self.jobs.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}
