//! SQLite: one writer, a few readers, and a thread that checkpoints the write-ahead log.
//!
//! Every commit syncs the log, except one of reads alone, which `log_sync` does shortly after. After a failed sync the state on disk is
//! unknown, and a second sync may falsely report success, so the process aborts and recovers from the log at the next start.

mod append_state;
mod ballast;
mod connection;
pub(crate) mod dump;
mod log_sync;
mod wal_checkpointer;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use model::RunId;
use parking_lot::Mutex;
use shared_pool::{Parties, SharedPool};
use tokio::sync::watch;

use self::ballast::BallastFile;
use self::connection::{ReadPool, unavailable};
use self::log_sync::LogSync;
use self::wal_checkpointer::WalCheckpointer;
use self::writer::{SqliteJob, SqliteWriter};
use crate::backend::node_sql::{self, NodeSql};
use crate::backend::object_sql::{self, ObjectSql};
use crate::backend::{Backend, PROBE, PathKey};
use crate::commit_queue::CommitQueue;
use crate::packed::PreparedEntry;
use crate::rows::{self, RUN, STEPS_OF_RUN};
use crate::statement::{PageColumns, Param, RowReader, Rows, Statement};
use crate::{Appended, ConnectionCounts, LedgerError, LedgerPage, Node, PageSize, Result, SettledRun};

/// Removes the steps of the record `$2` of the run `$1`, if the process `$4` of the node `$3` owns it.
const PRUNE_OWNED: &str = "DELETE FROM step WHERE seq = $2 AND run_no = (SELECT h.run_no FROM run_head h \
    JOIN run ON run.run_no = h.run_no WHERE run_id = $1 AND owner_node = $3 AND owner_incarnation = $4)";

/// A ledger in one file, which no other process may use.
pub(crate) struct Sqlite {
    queue: CommitQueue<SqliteJob>,
    writer: Mutex<Option<JoinHandle<()>>>,
    readers: ReadPool,
    page_queries: SharedPool,
    newest: watch::Receiver<i64>,
    refuses_changes: Arc<AtomicBool>,
    /// The node that this process is.
    node: Arc<OnceLock<Node>>,
}

impl Sqlite {
    /// Opens or creates the database at `path`, and its folder. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let lock_file = connection::lock(path)?;
        let opened = match connection::migrated(path) {
            Err(error) if error.is_disk_full() && ballast::remove(path) => connection::migrated(path),
            opened => opened,
        };
        let (queue, jobs) = CommitQueue::new();
        let checkpointer = WalCheckpointer::start(path)?;
        let node = Arc::default();
        let opened = opened?;
        let log_sync = LogSync::start(path)?;
        let (writer, newest) =
            SqliteWriter::new(opened, BallastFile::new(path), checkpointer, log_sync, jobs, Arc::clone(&node))?;
        let refuses_changes = writer.refuses_changes();
        let run = move || {
            writer.run();
            // Held until the last commit, so that the next process reads every commit.
            drop(lock_file);
        };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(run).map_err(unavailable)?;
        let writer = Mutex::new(Some(thread));
        Ok(Self {
            queue,
            writer,
            readers: ReadPool::new(path),
            page_queries: page_queries(),
            newest,
            refuses_changes,
            node,
        })
    }

    /// Opens the database at `path` for reading, while another process may have it open. Jobs are rejected. Blocks.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self> {
        dump::check(path)?;
        let (queue, _) = CommitQueue::new();
        queue.close();
        let (_, newest) = watch::channel(0);
        let (writer, refuses_changes) = (Mutex::default(), Arc::default());
        let (readers, page_queries) = (ReadPool::new(path), page_queries());
        Ok(Self { queue, writer, readers, page_queries, newest, refuses_changes, node: Arc::default() })
    }
}

/// Permits for three quarters of the connections that read.
fn page_queries() -> SharedPool {
    SharedPool::new("page_query", connection::MAX_READERS as u64 * 3 / 4)
}

impl Backend for Sqlite {
    const NODE_SQL: NodeSql = node_sql::SQLITE;
    const PATH_KEY: PathKey = PathKey::Path;
    const OBJECT_SQL: ObjectSql = object_sql::SQLITE;
    // Small, because other jobs wait for this transaction, but no caller waits for its result.
    const PRUNE_BATCH: usize = 64;

    async fn append(&self, creation: Vec<Statement>, entries: Vec<PreparedEntry>) -> Result<Appended> {
        self.queue.submit(|result| SqliteJob::Append { creation, entries, result }).await
    }

    async fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
    ) -> Result<Vec<T>> {
        let sql = sql.into();
        self.readers.query(move |connection| connection::fetch(connection, &sql, &params, read)).await
    }

    async fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> Result<LedgerPage<T>> {
        let sql = sql.into();
        let _permit = self.page_queries.acquire(Parties::current(), 1).await;
        self.readers
            .query(move |connection| connection::fetch_page(connection, &sql, &params, read, size, columns.sizes))
            .await
    }

    async fn transact(&self, touched: Option<RunId>, statements: Vec<Statement>) -> Result<u64> {
        self.queue.submit(|result| SqliteJob::Transact { touched, statements, result }).await
    }

    async fn transact_alone(&self, statements: Vec<Statement>) -> Result<u64> {
        self.transact(None, statements).await
    }

    async fn transact_apart(&self, statement: Statement) -> Result<u64> {
        self.transact(None, vec![statement]).await
    }

    async fn write(&self, first: Option<Statement>, rows: Vec<Rows<'static>>) -> Result<()> {
        let rows = rows.into_iter().flat_map(Rows::statements);
        self.transact(None, first.into_iter().chain(rows).collect()).await.map(drop)
    }

    async fn prune_owned(&self, node: &Node, done: &[(RunId, u64)]) -> Result<()> {
        let (node_id, incarnation) = (Param::from(node.node_id.as_str()), Param::from(node.incarnation));
        let prune = |(run, seq): &(RunId, u64)| {
            Statement::new(PRUNE_OWNED, [run.as_str().into(), (*seq).into(), node_id.clone(), incarnation.clone()])
        };
        self.transact(None, done.iter().map(prune).collect()).await.map(drop)
    }

    /// Need not wait: no other process has the file open, and this one returns to no caller before it knows the outcome of the
    /// commit.
    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        let Some((_, stored)) = self.fetch(RUN.sql, vec![run.as_str().into()], RUN.read).await?.pop() else {
            return Ok(None);
        };
        let steps = self.fetch(STEPS_OF_RUN.sql, vec![run.as_str().into()], STEPS_OF_RUN.read).await?;
        Ok(Some(SettledRun { stored, journal: rows::journal(steps) }))
    }

    fn fence(&self, _instance: &str) {
        // The lock file excludes other processes.
    }

    fn set_node(&self, node: Node) {
        self.node.get_or_init(|| node);
    }

    fn node(&self) -> Option<&Node> {
        self.node.get()
    }

    /// Records become visible in order.
    async fn settled_position(&self) -> Result<i64> {
        Ok(i64::MAX)
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    fn page_queries(&self) -> &SharedPool {
        &self.page_queries
    }

    fn connections(&self) -> ConnectionCounts {
        self.readers.connections()
    }

    async fn ping(&self) -> Result<()> {
        self.fetch("SELECT 1", Vec::new(), |_| Ok(())).await?;
        if self.refuses_changes.load(Ordering::Acquire) {
            // Only a commit shows whether commits succeed again.
            self.transact(None, vec![Statement::new(PROBE, [])]).await?;
            if self.refuses_changes.load(Ordering::Acquire) {
                return Err(LedgerError::database_full(ballast::DISK_FULL));
            }
        }
        Ok(())
    }

    async fn can_delete_archived(&self) -> Result<bool> {
        // SQLite has no roles.
        Ok(true)
    }

    async fn close(&self) {
        self.readers.close();
        self.queue.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // A panic of the thread has been logged.
            let _ = tokio::task::spawn_blocking(move || writer.join()).await;
        }
    }
}
