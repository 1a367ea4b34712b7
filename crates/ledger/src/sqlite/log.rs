//! The thread that copies the log back into the database, so that no answer waits for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::convert::{is_lost_sync, unavailable};
use super::open;
use crate::Result;

/// Pages in the log that are not in the database yet, from which they are copied. Few: while they are synced, the next
/// commit's sync waits behind them.
const COPY_PAGES: i64 = 500;
/// Pages from which the log shall begin anew. It can do so only where all of it has been copied and nothing was written
/// since, so that the writer copies the last few pages itself; all of them where twice as many have come together, since
/// then more is written than can be copied.
const MAX_PAGES: i64 = 8000;
/// The last few pages: everybody waits while they are copied and synced.
const LAST_PAGES: i64 = 128;
/// How much longer the log gets until the writer tries again: readers may have kept it from beginning anew.
const PACE_PAGES: i64 = 500;
/// Pages from which all of the log is copied where the disk is short of room, so that it need not grow.
const SHORT_PAGES: i64 = 200;

/// How far the log has got.
#[derive(Clone, Copy, Debug)]
struct Log {
    pages: i64,
    copied: i64,
}

/// The way to the thread.
pub(super) struct LogKeeper {
    wake: SyncSender<()>,
    /// Whether it copies, or is about to.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// The length of the log at which the writer copies next.
    next_own: i64,
}

impl LogKeeper {
    /// Starts the thread, with a connection of its own.
    pub(super) fn start(path: &Path) -> Result<Self> {
        let connection = open::log_keeper(path)?;
        let (wake, woken) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&busy);
        let run = move || copy_when_woken(&connection, &woken, &told);
        let thread = std::thread::Builder::new().name("ledger-log".to_owned()).spawn(run).map_err(unavailable)?;
        Ok(Self { wake, busy, thread, next_own: MAX_PAGES })
    }

    /// Sees to it, after a commit of `writer`, that the log stays short.
    pub(super) fn after_commit(&mut self, writer: &Connection, is_short_of_room: bool) {
        if self.busy.load(Ordering::Acquire) {
            return;
        }
        let seen = progress(writer, "PRAGMA wal_checkpoint(NOOP)").and_then(|log| {
            if log.pages < MAX_PAGES {
                self.next_own = MAX_PAGES;
            }
            let (behind, is_long) = (log.pages - log.copied, log.pages >= self.next_own);
            if is_short_of_room && behind >= SHORT_PAGES {
                progress(writer, "PRAGMA wal_checkpoint(PASSIVE)")?;
            } else if is_long && (behind < LAST_PAGES || log.pages >= 2 * MAX_PAGES) {
                self.next_own = log.pages + PACE_PAGES;
                progress(writer, "PRAGMA wal_checkpoint(PASSIVE)")?;
            } else if is_long || behind >= COPY_PAGES {
                self.busy.store(true, Ordering::Release);
                if self.wake.try_send(()).is_err() {
                    // A thread that has panicked takes no more work.
                    self.busy.store(false, Ordering::Release);
                    progress(writer, "PRAGMA wal_checkpoint(PASSIVE)")?;
                }
            }
            Ok(())
        });
        told(seen);
    }

    /// Waits for what is under way.
    pub(super) fn end(self) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the thread that copies the log panicked");
        }
    }
}

fn copy_when_woken(connection: &Connection, woken: &Receiver<()>, busy: &AtomicBool) {
    while woken.recv().is_ok() {
        told(progress(connection, "PRAGMA wal_checkpoint(PASSIVE)").map(drop));
        busy.store(false, Ordering::Release);
    }
}

fn told(done: rusqlite::Result<()>) {
    if let Err(error) = done {
        end_on_lost_sync(&error);
        tracing::warn!(error = &error as &dyn std::error::Error, "the log could not be copied back yet");
    }
}

/// Carries a checkpoint out; readers and the writer go on meanwhile.
fn progress(connection: &Connection, pragma: &str) -> rusqlite::Result<Log> {
    let mut sql = connection.prepare_cached(pragma)?;
    sql.query_row([], |row| Ok(Log { pages: row.get(1)?, copied: row.get(2)? }))
}

/// A sync must not be tried again: the kernel may have dropped what it could not write, and say yes the second time.
pub(super) fn end_on_lost_sync(error: &rusqlite::Error) {
    if is_lost_sync(error) {
        tracing::error!(error = error as &dyn std::error::Error, "a sync failed: ending, to recover from the log");
        std::process::abort();
    }
}
