//! A thread that syncs the write-ahead log shortly after a commit that did not: that of a group of reads, whose callers do not wait
//! for the disk.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::connection::{unavailable, with_suffix};
use crate::Result;
use crate::commit_queue::SYNC_DELAY;

/// The handle of the thread.
pub(crate) struct LogSync {
    wake: SyncSender<()>,
    /// Whether the log has commits that were not synced.
    is_behind: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LogSync {
    /// Starts the thread for the database at `path`, whose write-ahead log exists.
    pub(crate) fn start(path: &Path) -> Result<Self> {
        // SQLite holds no lock on the log, which closing this handle would release, and never replaces the file.
        let log = File::open(with_suffix(path, "-wal")).map_err(unavailable)?;
        let (wake, woken) = sync_channel(1);
        let is_behind = Arc::new(AtomicBool::new(false));
        let behind = Arc::clone(&is_behind);
        let run = move || sync_when_woken(&log, &woken, &behind);
        let thread = std::thread::Builder::new().name("ledger-sync".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { wake, is_behind, thread })
    }

    /// Called after a commit. If it did not sync the log, the thread does so after [`SYNC_DELAY`].
    pub(crate) fn after_commit(&self, is_synced: bool) {
        // A commit that syncs does not clear it: one that has written nothing has synced nothing.
        if !is_synced && !self.is_behind.swap(true, Ordering::AcqRel) {
            // A full channel has woken the thread already.
            let _ = self.wake.try_send(());
        }
    }

    /// Syncs what is left, and waits for the thread.
    pub(crate) fn end(self) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs the write-ahead log panicked");
        }
    }
}

/// Syncs the log after each wake-up, until the handle is dropped.
fn sync_when_woken(log: &File, woken: &Receiver<()>, is_behind: &AtomicBool) {
    while woken.recv().is_ok() {
        // Ends early if the handle is dropped.
        let _ = woken.recv_timeout(SYNC_DELAY);
        // Cleared first: a commit during the sync needs another one.
        if is_behind.swap(false, Ordering::AcqRel)
            && let Err(error) = log.sync_data()
        {
            // As after a failed commit: a second sync may report success although the kernel has discarded the pages.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a sync failed: the process aborts and recovers from the log at the next start"
            );
            std::process::abort();
        }
    }
}
