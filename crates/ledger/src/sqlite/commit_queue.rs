//! Leader-writes group commit. A caller that finds the writer idle commits its own job, because to wake another thread takes
//! as long as half a commit. Jobs that arrive during a commit are committed together by a thread.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;

use super::convert::unavailable;
use super::writer::{Job, Writer};
use crate::Result;

/// The queue of jobs, and the writer that callers and the thread share.
///
/// No job is left in the queue: a job that arrives while the writer is locked is seen by whoever holds the lock, who looks at
/// the queue again after unlocking and wakes the thread.
pub(crate) struct CommitQueue {
    /// `None` after the end.
    writer: Arc<Mutex<Option<Writer>>>,
    jobs: mpsc::Sender<Job>,
    /// Dropped to end the thread.
    wake: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitQueue {
    /// Starts the thread. It holds `lock_file` until the last commit, so that the next process sees every commit.
    pub(crate) fn start(writer: Writer, jobs: mpsc::Sender<Job>, lock_file: File) -> Result<Self> {
        let writer = Arc::new(Mutex::new(Some(writer)));
        let (wake, woken) = sync_channel(1);
        let (shared, queue) = (Arc::clone(&writer), jobs.clone());
        let run = move || {
            write_when_woken(&shared, &queue, &woken);
            drop(lock_file);
        };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { writer, jobs, wake: Mutex::new(Some(wake)), thread: Mutex::new(Some(thread)) })
    }

    /// Enqueues `job`, and commits it if the writer is idle. Waits while the queue is full.
    ///
    /// # Errors
    ///
    /// If the writer has ended.
    pub(crate) async fn submit(&self, job: Job) -> std::result::Result<(), mpsc::error::SendError<Job>> {
        self.jobs.send(job).await?;
        if may_block() {
            self.write_if_idle();
        } else {
            self.wake();
        }
        Ok(())
    }

    fn write_if_idle(&self) {
        // Whoever holds the lock looks at the queue again.
        let Some(mut writer) = self.writer.try_lock() else { return };
        let Some(open) = writer.as_mut() else { return };
        // Only a lone job, and only if the last group was one: under load, the threads of the runtime must not wait for a disk.
        let alone = open.is_calm() && self.jobs.max_capacity() - self.jobs.capacity() == 1;
        if alone {
            open.write_waiting();
        }
        let done = alone && !open.has_deferred();
        drop(writer);
        if !done || is_waiting(&self.jobs) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = &*self.wake.lock() {
            // If the channel is full, the thread is being woken already.
            let _ = wake.try_send(());
        }
    }

    /// Commits the queued jobs and ends. Further jobs are rejected.
    pub(crate) async fn end(&self) {
        drop(self.wake.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn write_when_woken(writer: &Mutex<Option<Writer>>, jobs: &mpsc::Sender<Job>, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        loop {
            let mut writer = writer.lock();
            let wrote = writer.as_mut().is_some_and(Writer::write_waiting);
            let more = writer.as_ref().is_some_and(Writer::has_deferred);
            drop(writer);
            if !more && !is_waiting(jobs) {
                break;
            }
            if !wrote {
                // A sender has reserved capacity but has not sent its job yet.
                std::thread::yield_now();
            }
        }
    }
    let last = writer.lock().take();
    if let Some(writer) = last {
        writer.end();
    }
}

/// Returns whether jobs are queued, or about to be.
fn is_waiting(jobs: &mpsc::Sender<Job>) -> bool {
    jobs.capacity() < jobs.max_capacity()
}

/// Returns whether this thread may block while other threads run the runtime's tasks.
fn may_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
