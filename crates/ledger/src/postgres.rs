//! PostgreSQL: one writer on a connection of its own, a pool beside it.
//!
//! Whoever writes holds one advisory lock until the commit, so that positions become visible in their order: a stream that
//! resumes behind a position misses nothing.

mod batch;
mod checkpoint;
mod convert;
mod fence;
mod open;
mod writer;

use std::sync::{Arc, Mutex};

use futures_util::TryStreamExt as _;
use model::RunId;
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::convert::failed;
use self::fence::{Entrance, Fence};
use self::writer::{Job, Writer};
use crate::backend::{Arg, Backend, Columns, PageColumns, Statement, to_count, to_int};
use crate::{AppendedAll, Entry, LedgerError, NewCheckpoint, Page, PageSize, Result, SettledRun};

/// Entries that may wait for the writer; who comes later waits to hand in.
const MAX_WAITING: usize = 1024;
const FORGET: &str = "DELETE FROM step USING run, unnest($1::text[], $2::bigint[]) AS done (run_id, seq) \
    WHERE run.run_id = done.run_id AND step.run_no = run.run_no AND step.seq = done.seq";

/// A ledger in a database that others may use too.
pub(crate) struct Postgres {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    pool: PgPool,
    fence: Arc<Fence>,
    newest: watch::Receiver<i64>,
}

impl Postgres {
    /// Connects to the database at `url` and brings its tables up to date.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let options = open::options(url).await?;
        let mut connection = open::connect(&options).await?;
        open::migrate(&mut connection).await?;
        let position = writer::last_position(&mut connection).await.map_err(failed)?;
        let (jobs, receiver) = mpsc::channel(MAX_WAITING);
        let (told, newest) = watch::channel(position);
        let pool = open::pool(options.clone());
        let fence = Arc::<Fence>::default();
        let writer = tokio::spawn(Writer::new(options, connection, Arc::clone(&fence), receiver, told).run());
        Ok(Self { jobs: Mutex::new(Some(jobs)), writer: Mutex::new(Some(writer)), pool, fence, newest })
    }

    async fn run_transaction(&self, statements: &[Statement]) -> Result<u64> {
        let mut connection = self.pool.acquire().await.map_err(failed)?;
        let mut tx = connection.begin().await.map_err(failed)?;
        let mut fenced = self.fence.enter(&mut tx, Entrance::Alone).await?;
        let mut first = 0;
        for (index, statement) in statements.iter().enumerate() {
            let query = convert::bind(sqlx::query(statement.sql), &statement.args);
            let changed = query.execute(fenced.connection()).await.map_err(failed)?.rows_affected();
            if index == 0 {
                first = changed;
            }
            if statement.required && changed == 0 {
                break;
            }
        }
        // Whatever it was: it may have become durable.
        tx.commit().await.map_err(|error| LedgerError::InDoubt(Box::new(error)))?;
        Ok(first)
    }
}

/// `sql`, but only the rows before which there are fewer bytes of texts than the argument number `bytes`. The lengths are
/// known without reading the texts; the last column is the number of all rows of `sql`.
fn page_sql(sql: &str, bytes: usize, columns: PageColumns) -> String {
    let PageColumns { order, texts } = columns;
    let length: Vec<_> = texts.iter().map(|text| format!("octet_length({text})")).collect();
    let length = length.join(" + ");
    format!(
        "SELECT * FROM (SELECT listed.*, coalesce(sum({length}) OVER (ORDER BY {order} \
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS page_bytes, count(*) OVER () AS page_rows \
         FROM ({sql}) AS listed) AS page WHERE page_bytes < ${bytes} ORDER BY {order}"
    )
}

/// Gives up where nothing comes back: the server's own bounds do not help when the way to it is cut.
async fn in_time<T>(work: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(writer::PATIENCE, work).await;
    done.map_err(|_| LedgerError::Unavailable("the database takes too long".into()))
}

impl Backend for Postgres {
    async fn append(&self, entries: Vec<Entry>) -> Result<AppendedAll> {
        let ended = || LedgerError::Unavailable("the ledger has been closed".into());
        let jobs = self.jobs.lock().ok().and_then(|jobs| jobs.clone()).ok_or_else(ended)?;
        let (answer, answered) = oneshot::channel();
        jobs.send(Job { entries, answer }).await.map_err(|_| ended())?;
        // It may have been written before the writer ended.
        answered.await.map_err(|_| LedgerError::InDoubt("the ledger's writer has ended".into()))?
    }

    async fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
    ) -> Result<Vec<T>> {
        // Built by this crate alone: values are never part of it.
        let query = convert::bind(sqlx::query(AssertSqlSafe(sql.into())), &args);
        let read_all = async {
            // Row by row: what is read of a row may be far smaller than the row.
            let (mut rows, mut found) = (query.fetch(&self.pool), Vec::new());
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                found.push(read(&row)?);
            }
            Ok(found)
        };
        in_time(read_all).await?
    }

    async fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        mut args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> Result<Page<T>> {
        let sql = page_sql(&sql.into(), args.len() + 1, columns);
        // One row is asked for in any case, which says whether there are any.
        args.push(size.bytes.max(1).into());
        let query = convert::bind(sqlx::query(AssertSqlSafe(sql)), &args);
        let rows = in_time(query.fetch_all(&self.pool)).await?.map_err(failed)?;
        let all = rows.first().map_or(Ok(0), |row| row.int(row.len() - 1)).map(to_count)?;
        let most = if size.bytes == 0 { 0 } else { size.rows as usize };
        let items: Vec<T> = rows.iter().take(most).map(|row| read(row)).collect::<Result<_>>()?;
        Ok(Page { more: all > items.len() as u64, items })
    }

    async fn transact(&self, _touched: Option<RunId>, statements: Vec<Statement>) -> Result<u64> {
        let done = tokio::time::timeout(writer::PATIENCE, self.run_transaction(&statements)).await;
        // It may have been told to commit.
        done.unwrap_or_else(|_| Err(LedgerError::InDoubt("the database takes too long".into())))
    }

    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        in_time(fence::settled_run(&self.pool, run)).await?
    }

    fn fence(&self, instance: &str) {
        self.fence.set_instance(instance);
    }

    async fn prune(&self, done: Vec<(RunId, u64)>) -> Result<()> {
        let (runs, seqs): (Vec<&str>, Vec<i64>) = done.iter().map(|(run, seq)| (run.as_str(), to_int(*seq))).unzip();
        in_time(async {
            let mut tx = self.pool.begin().await.map_err(failed)?;
            let mut fenced = self.fence.enter(&mut tx, Entrance::Beside).await?;
            sqlx::query(FORGET).bind(runs).bind(seqs).execute(fenced.connection()).await.map_err(failed)?;
            tx.commit().await.map_err(failed)
        })
        .await?
    }

    async fn append_checkpoint(&self, round: NewCheckpoint) -> Result<()> {
        let mut tx = self.pool.begin().await.map_err(failed)?;
        let mut fenced = self.fence.enter(&mut tx, Entrance::Beside).await?;
        checkpoint::append(&mut fenced, &round).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    async fn ping(&self) -> Result<()> {
        in_time(self.fence.look(&self.pool)).await?
    }

    async fn rest(&self) -> Result<()> {
        // What is held for speed is held by the database.
        Ok(())
    }

    async fn close(&self) {
        if let Ok(mut jobs) = self.jobs.lock() {
            jobs.take();
        }
        let writer = self.writer.lock().ok().and_then(|mut writer| writer.take());
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the ledger's writer failed");
        }
        self.pool.close().await;
    }
}
