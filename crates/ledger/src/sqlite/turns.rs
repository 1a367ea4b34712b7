//! Whose turn it is to write.

use std::fs::File;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;

use super::convert::unavailable;
use super::writer::{Job, Writer};
use crate::Result;

/// The writer, for one at a time: whoever has handed a job in while nobody wrote, and the thread, for what came meanwhile.
///
/// No job is left lying: one that was handed in while somebody wrote is seen by that one, who looks once more behind its turn
/// and wakes the thread.
pub(super) struct Turns {
    /// `None` once it has ended.
    writer: Arc<Mutex<Option<Writer>>>,
    jobs: mpsc::Sender<Job>,
    /// `None` at the end: the thread writes what is left, then.
    wake: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Turns {
    /// Starts the thread. `held` until the last commit, so that the next process finds all of it.
    pub(super) fn start(writer: Writer, jobs: mpsc::Sender<Job>, held: File) -> Result<Self> {
        let writer = Arc::new(Mutex::new(Some(writer)));
        let (wake, woken) = sync_channel(1);
        let (shared, waiting) = (Arc::clone(&writer), jobs.clone());
        let run = move || {
            write_when_woken(&shared, &waiting, &woken);
            drop(held);
        };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { writer, jobs, wake: Mutex::new(Some(wake)), thread: Mutex::new(Some(thread)) })
    }

    /// Hands `job` in, and writes it where nobody else writes; waits while too many are waiting.
    ///
    /// # Errors
    ///
    /// Where the writer has ended.
    pub(super) async fn take(&self, job: Job) -> std::result::Result<(), mpsc::error::SendError<Job>> {
        self.jobs.send(job).await?;
        if may_block() {
            self.write_once();
        } else {
            self.wake();
        }
        Ok(())
    }

    fn write_once(&self) {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Who writes looks once more.
            Err(TryLockError::WouldBlock) => return,
        };
        let Some(open) = writer.as_mut() else { return };
        // Once, since this caller waits for its own answer only. Where calls come one by one nobody waits behind it, and one
        // thread at most is kept; where they come together, each thread has better to do than to wait for a disk.
        let mine = open.is_calm() && self.jobs.max_capacity() - self.jobs.capacity() == 1;
        if mine {
            open.write_waiting();
        }
        let mine = mine && !open.has_more();
        drop(writer);
        if !mine || is_waiting(&self.jobs) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = &*lock(&self.wake) {
            // One that is full wakes it already.
            let _ = wake.try_send(());
        }
    }

    /// Writes what waits, and ends; nobody can hand in any more.
    pub(super) async fn end(&self) {
        drop(lock(&self.wake).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // The thread has no panic to tell of that was not logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn write_when_woken(writer: &Mutex<Option<Writer>>, jobs: &mpsc::Sender<Job>, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        loop {
            let mut writer = lock(writer);
            let wrote = writer.as_mut().is_some_and(Writer::write_waiting);
            let more = writer.as_ref().is_some_and(Writer::has_more);
            drop(writer);
            if !more && !is_waiting(jobs) {
                break;
            }
            if !wrote {
                // Somebody is about to hand in.
                std::thread::yield_now();
            }
        }
    }
    let last = lock(writer).take();
    if let Some(writer) = last {
        writer.end();
    }
}

/// Whether jobs wait, or are about to.
fn is_waiting(jobs: &mpsc::Sender<Job>) -> bool {
    jobs.capacity() < jobs.max_capacity()
}

/// Whether this thread may write while others see to the runtime's tasks.
fn may_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// A panic while it was held leaves a transaction at most, which the writer undoes.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
