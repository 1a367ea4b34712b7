//! SQLite: one writer, a few readers, and a thread that checkpoints the write-ahead log.
//!
//! Every commit syncs the log. After a sync that failed nobody knows what is on disk, and a second sync may report success all
//! the same, so the process aborts and recovers at its next start.

mod append_state;
mod ballast;
mod commit_queue;
mod convert;
mod open;
mod read_pool;
mod wal_checkpointer;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use tokio::sync::{mpsc, oneshot, watch};

use self::ballast::BallastFile;
use self::commit_queue::CommitQueue;
use self::convert::is_full;
use self::read_pool::ReadPool;
use self::wal_checkpointer::WalCheckpointer;
use self::writer::{Job, Writer};
use crate::backend::{Backend, PageColumns, Param, RowReader, Statement};
use crate::rows::{self, RUN, STEPS_OF_RUN};
use crate::table::Rows;
use crate::{Appended, Entry, LedgerError, Page, PageSize, Result, SettledRun};

/// Maximum number of queued jobs; further callers wait to submit theirs.
const MAX_QUEUED: usize = 1024;

/// Changes a row, so that there is something to commit.
const PROBE: &str = "INSERT INTO setting (name, value) VALUES ('probe', '0') \
    ON CONFLICT (name) DO UPDATE SET value = CASE value WHEN '0' THEN '1' ELSE '0' END";

/// A ledger in one file, which no other process may use.
pub(crate) struct Sqlite {
    queue: CommitQueue,
    readers: ReadPool,
    newest: watch::Receiver<i64>,
    /// Whether the last commit failed.
    fails: Arc<AtomicBool>,
}

impl Sqlite {
    /// Opens or creates the database at `path`, and its folder. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let lock_file = open::lock(path)?;
        let opened = match open::migrated(path) {
            Err(error) if is_full(&error) && ballast::remove(path) => open::migrated(path),
            opened => opened,
        };
        let (jobs, receiver) = mpsc::channel(MAX_QUEUED);
        let checkpointer = WalCheckpointer::start(path)?;
        let (writer, newest) = Writer::new(opened?, BallastFile::new(path), checkpointer, receiver)?;
        let fails = writer.fails();
        let queue = CommitQueue::start(writer, jobs, lock_file)?;
        Ok(Self { queue, readers: ReadPool::new(path), newest, fails })
    }

    async fn submit<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job + Send) -> Result<T> {
        let closed = || LedgerError::Unavailable("the ledger is closed".into());
        let (answer, answered) = oneshot::channel();
        self.queue.submit(job(answer)).await.map_err(|_| closed())?;
        // The writer may have committed the job before it ended.
        answered.await.map_err(|_| LedgerError::InDoubt("the ledger's writer has ended".into()))?
    }
}

impl Backend for Sqlite {
    // Small, because other jobs wait meanwhile and nobody waits for this one.
    const PRUNE_BATCH: usize = 64;

    async fn append(&self, entries: Vec<Entry>) -> Result<Appended> {
        self.submit(|answer| Job::Append { entries, answer }).await
    }

    async fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
    ) -> Result<Vec<T>> {
        let sql = sql.into();
        self.readers.query(move |connection| convert::fetch(connection, &sql, &params, read)).await
    }

    async fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
        size: PageSize,
        _columns: PageColumns,
    ) -> Result<Page<T>> {
        let sql = sql.into();
        self.readers.query(move |connection| convert::fetch_page(connection, &sql, &params, read, size)).await
    }

    async fn transact(&self, touched: Option<RunId>, statements: Vec<Statement>) -> Result<u64> {
        self.submit(|answer| Job::Transact { touched, statements, answer }).await
    }

    async fn write(&self, rows: Vec<Rows<'static>>) -> Result<()> {
        self.transact(None, rows.into_iter().flat_map(Rows::statements).collect()).await.map(drop)
    }

    /// Waits for nothing: no other process has the file open, and this one answers no caller before it knows the outcome of
    /// the commit.
    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        let Some((_, stored)) = self.fetch(RUN, vec![run.as_str().into()], rows::run).await?.pop() else {
            return Ok(None);
        };
        let steps = self.fetch(STEPS_OF_RUN, vec![run.as_str().into()], rows::step).await?;
        Ok(Some(SettledRun { stored, journal: rows::journal(steps) }))
    }

    fn fence(&self, _instance: &str) {
        // The lock file excludes other processes.
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    async fn ping(&self) -> Result<()> {
        self.fetch("SELECT 1", Vec::new(), |_| Ok(())).await?;
        if self.fails.load(Ordering::Acquire) {
            // Only a commit shows whether commits succeed again.
            self.transact(None, vec![Statement::new(PROBE, [])]).await?;
        }
        Ok(())
    }

    async fn close(&self) {
        self.readers.close();
        self.queue.end().await;
    }
}
