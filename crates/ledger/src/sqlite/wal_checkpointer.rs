//! A thread that checkpoints the write-ahead log: it copies pages of the log into the database file, so that callers do not wait
//! for that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::connection;
use super::connection::{is_failed_sync, unavailable};
use crate::Result;

/// Number of uncopied pages of the log at which the thread copies them. Few, because the next commit waits until they are synced.
const COPY_PAGES: i64 = 500;
/// Length of the log, in pages, at which it should be reset. It can be reset only if all of it is copied and nothing was written
/// since, so the writer copies the last pages itself. At twice this length the writer copies all pages, because then the thread
/// is too slow.
const MAX_PAGES: i64 = 8000;
/// Maximum number of pages that the writer copies below twice [`MAX_PAGES`]. Every caller waits for it.
const LAST_PAGES: i64 = 128;
/// Growth of the log, in pages, before the writer retries: a reader may have prevented the reset.
const RETRY_PAGES: i64 = 500;
/// Number of uncopied pages at which the writer copies them if the disk is nearly full, so that the log need not grow.
const FULL_DISK_PAGES: i64 = 200;
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// The length of the log and of its copied part, in pages.
#[derive(Clone, Copy, Debug)]
struct WalProgress {
    pages: i64,
    copied: i64,
}

/// The handle of the thread.
pub(crate) struct WalCheckpointer {
    wake: SyncSender<()>,
    /// Whether the thread copies pages, or was woken to do so.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// The length of the log at which the writer copies pages next.
    writer_copies_at: i64,
}

impl WalCheckpointer {
    /// Starts the thread, with its own connection.
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let connection = connection::checkpointer(path)?;
        let (wake, woken) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = Arc::clone(&busy);
        let run = move || checkpoint_when_woken(&connection, &woken, &is_busy);
        let thread = std::thread::Builder::new().name("ledger-wal".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { wake, busy, thread, writer_copies_at: MAX_PAGES })
    }

    /// Called after a commit of `writer`: copies pages by `writer` or by the thread, if necessary.
    pub(crate) fn after_commit(&mut self, writer: &Connection, is_disk_full: bool) {
        if self.busy.load(Ordering::Acquire) {
            return;
        }
        let done = checkpoint(writer, "PRAGMA wal_checkpoint(NOOP)").and_then(|log| {
            if log.pages < MAX_PAGES {
                self.writer_copies_at = MAX_PAGES;
            }
            let (uncopied, is_long) = (log.pages - log.copied, log.pages >= self.writer_copies_at);
            if is_disk_full && uncopied >= FULL_DISK_PAGES {
                checkpoint(writer, CHECKPOINT)?;
            } else if is_long && (uncopied < LAST_PAGES || log.pages >= 2 * MAX_PAGES) {
                self.writer_copies_at = log.pages + RETRY_PAGES;
                checkpoint(writer, CHECKPOINT)?;
            } else if is_long || uncopied >= COPY_PAGES {
                self.busy.store(true, Ordering::Release);
                if self.wake.try_send(()).is_err() {
                    // The thread panicked.
                    self.busy.store(false, Ordering::Release);
                    checkpoint(writer, CHECKPOINT)?;
                }
            }
            Ok(())
        });
        log_failure(done);
    }

    /// Waits until the thread has finished.
    pub(crate) fn end(self) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the thread that checkpoints the write-ahead log panicked");
        }
    }
}

/// Checkpoints each time the thread is woken, until the handle is dropped.
fn checkpoint_when_woken(connection: &Connection, woken: &Receiver<()>, busy: &AtomicBool) {
    while woken.recv().is_ok() {
        log_failure(checkpoint(connection, CHECKPOINT).map(drop));
        busy.store(false, Ordering::Release);
    }
}

fn log_failure(done: rusqlite::Result<()>) {
    if let Err(error) = done {
        abort_on_failed_sync(&error);
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "failed to checkpoint the write-ahead log; it is retried"
        );
    }
}

/// Runs a checkpoint, which blocks neither readers nor the writer.
fn checkpoint(connection: &Connection, pragma: &str) -> rusqlite::Result<WalProgress> {
    let mut sql = connection.prepare_cached(pragma)?;
    sql.query_row([], |row| Ok(WalProgress { pages: row.get(1)?, copied: row.get(2)? }))
}

/// Aborts the process after a failed sync. A second sync may report success although the kernel has discarded the pages.
pub(crate) fn abort_on_failed_sync(error: &rusqlite::Error) {
    if is_failed_sync(error) {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "a sync failed: the process aborts and recovers from the log at the next start"
        );
        std::process::abort();
    }
}
