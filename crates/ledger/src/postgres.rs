//! PostgreSQL: one writer with its own connection, and a pool for everything else.
//!
//! Transactions lock what they change in one order: the writers' lock (shared, see `fence`), the row of a new run, the heads of runs
//! by number, operators' tokens by number, then all other rows. Commits of different runs do not wait for each other. Those that
//! deadlock nevertheless are repeated. `positions` says how readers miss no record although commits have no order.

mod address;
mod append_state;
mod connection;
pub(crate) mod dump;
mod fence;
mod open;
mod positions;
mod settled_position;
mod writer;

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use model::RunId;
use parking_lot::Mutex;
use shared_pool::{Parties, SharedPool};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, Transaction};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use self::address::AddressReader;
use self::address::PostgresAddress;
use self::connection::{failed, is_conflict};
use self::fence::{BEGIN, EnterMode, WriterFence};
pub(crate) use self::open::check_url;
use self::settled_position::SettledPosition;
use self::writer::{PostgresJob, PostgresWriter};
use crate::backend::node_sql::{self, NodeSql};
use crate::backend::object_sql::{self, ObjectSql};
use crate::backend::{Backend, PathKey};
use crate::commit_queue::CommitQueue;
use crate::packed::PreparedEntry;
use crate::statement::{PageColumns, Param, RowReader, Rows, Statement, to_count, to_int};
use crate::{Appended, ConnectionCounts, LedgerError, LedgerPage, Node, PageSize, Result, SettledRun};

/// Whether the role may delete from the append-only tables.
const CAN_DELETE_ARCHIVED: &str = "SELECT bool_and(has_table_privilege(name, 'DELETE')) \
    FROM unnest(ARRAY['audit_record', 'record_path', 'call_reply', 'artifact', 'upload']) AS name";

/// Removes the steps of the records `$2` of the runs `$1` that the process `$4` of the node `$3` owns.
const PRUNE_OWNED: &str = "DELETE FROM step USING unnest($1::text[], $2::bigint[]) AS v (run_id, seq) \
    JOIN run ON run.run_id = v.run_id JOIN run_head h ON h.run_no = run.run_no \
    WHERE step.run_no = run.run_no AND step.seq = v.seq AND h.owner_node = $3 AND h.owner_incarnation = $4";

/// A ledger in a database that other programs may use too.
pub(crate) struct Postgres {
    queue: CommitQueue<PostgresJob>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// The task that looks for the settled position, which is aborted with the ledger.
    watcher: Mutex<JoinSet<()>>,
    pool: PgPool,
    page_queries: SharedPool,
    /// The connection of [`transact_apart`](Backend::transact_apart), between two calls.
    apart: tokio::sync::Mutex<Option<PgConnection>>,
    address: Arc<PostgresAddress>,
    fence: Arc<WriterFence>,
    newest: watch::Receiver<i64>,
}

impl Postgres {
    /// Connects to the database at `url` and migrates its schema.
    pub(crate) async fn open(url: &str, reader: Option<AddressReader>) -> Result<Self> {
        let address = Arc::new(PostgresAddress::open(url, reader).await?);
        let mut connection = address.connect().await?;
        open::migrate(&mut connection).await?;
        open::complete_sequence(&mut connection).await?;
        positions::check_marks(&mut connection).await?;
        let position = positions::settled_at_open(&mut connection).await?;
        positions::prepare(&mut connection).await?;
        let (queue, jobs) = CommitQueue::new();
        let (settled, newest) = SettledPosition::new(position);
        let pool = open::pool(address.options());
        let fence = Arc::<WriterFence>::default();
        let mut watcher = JoinSet::new();
        watcher.spawn(Arc::clone(&settled).watch(Arc::clone(&address), pool.clone(), Arc::clone(&fence)));
        let writer = tokio::spawn(
            PostgresWriter::new(Arc::clone(&address), connection, Arc::clone(&fence), jobs, settled).run(),
        );
        let (writer, watcher, apart) = (Mutex::new(Some(writer)), Mutex::new(watcher), tokio::sync::Mutex::default());
        Ok(Self { queue, writer, watcher, pool, page_queries: page_queries(), apart, address, fence, newest })
    }

    /// Connects to the database at `url` for reading, while a service may use it. Jobs are rejected. Fails if the database has
    /// another schema than this program.
    pub(crate) async fn open_to_read(url: &str) -> Result<Self> {
        let address = Arc::new(PostgresAddress::open(url, None).await?);
        let mut connection = address.connect().await?;
        open::check_schema(&mut connection).await?;
        // If this fails, the server closes the connection.
        drop(connection.close().await);
        let (queue, _) = CommitQueue::new();
        queue.close();
        let (_, newest) = watch::channel(0);
        let pool = open::pool(open::read_only(address.options()));
        let (writer, watcher, apart) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        let page_queries = page_queries();
        Ok(Self { queue, writer, watcher, pool, page_queries, apart, address, fence: Arc::default(), newest })
    }

    /// Runs `statements` in one transaction, again if it conflicts with another one. Returns how many rows the first one changed.
    async fn run_transaction(&self, statements: &[Statement], mode: EnterMode) -> Result<u64> {
        let mut connection = self.address.acquire(&self.pool).await?;
        for _ in 1..writer::MAX_ATTEMPTS {
            match self.complete(connection.begin(BEGIN).await?, statements, mode).await {
                Err(error) if is_conflict(&error) => {}
                done => return done,
            }
        }
        self.complete(connection.begin(BEGIN).await?, statements, mode).await
    }

    /// Executes `statements` in a transaction that has begun, and commits it.
    async fn complete(
        &self,
        mut tx: Transaction<'_, sqlx::Postgres>,
        statements: &[Statement],
        mode: EnterMode,
    ) -> Result<u64> {
        let mut fenced = self.fence.enter(&mut tx, mode).await?;
        if matches!(mode, EnterMode::Exclusive) {
            positions::advance(fenced.connection()).await?;
        }
        let mut first = None;
        for statement in statements {
            let changed = execute_checked(fenced.connection(), statement).await?;
            if statement.check.is_none() {
                first.get_or_insert(changed);
            }
        }
        // The transaction may be durable, regardless of the error.
        tx.commit().await.map_err(|error| LedgerError::InDoubt(Box::new(error)))?;
        Ok(first.unwrap_or(0))
    }

    async fn transact_in(&self, statements: &[Statement], mode: EnterMode) -> Result<u64> {
        let done = tokio::time::timeout(writer::TIMEOUT, self.run_transaction(statements, mode)).await;
        // The COMMIT may have been sent.
        done.unwrap_or_else(|_| Err(LedgerError::InDoubt("the database does not respond".into())))
    }
}

/// Executes a statement, and returns how many rows it changed. Fails if what it checks does not hold.
pub(crate) async fn execute_checked(connection: &mut PgConnection, statement: &Statement) -> Result<u64> {
    let query = connection::bind(sqlx::query(statement.sql), statement.params.clone());
    let changed = query.execute(connection).await.map_err(failed)?.rows_affected();
    match statement.check.as_ref().filter(|_| changed == 0) {
        Some(check) => Err(check.failed()),
        None => Ok(changed),
    }
}

/// Returns a query for the rows of `sql` that are preceded by fewer bytes of texts than parameter number `bytes`. The server knows
/// the lengths without reading the texts. The last column is the number of all rows of `sql`.
fn page_sql(sql: &str, bytes: usize, columns: PageColumns) -> String {
    let PageColumns { order, text_order, descending, texts, sizes } = columns;
    let direction = if descending { " DESC" } else { "" };
    let order = text_order.into_iter().chain([order]).map(|column| format!("{column}{direction}"));
    let order = order.collect::<Vec<_>>().join(", ");
    let texts = texts.iter().map(|text| format!("octet_length({text})"));
    let sizes = sizes.iter().map(|size| format!("least(greatest({size}, 0), 2147483647)"));
    let length = texts.chain(sizes).collect::<Vec<_>>().join(" + ");
    format!(
        "SELECT * FROM (SELECT listed.*, coalesce(sum({length}) OVER (ORDER BY {order} \
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS page_bytes, count(*) OVER () AS page_rows \
         FROM ({sql}) AS listed) AS page WHERE page_bytes < ${bytes} ORDER BY {order}"
    )
}

/// Applies a timeout. The server's own timeouts have no effect if the connection is lost.
async fn with_timeout<T>(work: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(writer::TIMEOUT, work).await;
    done.map_err(|_| LedgerError::Unavailable("the database does not respond".into()))
}

/// Permits for three quarters of the pool's connections.
fn page_queries() -> SharedPool {
    SharedPool::new("page_query", u64::from(open::MAX_POOL) * 3 / 4)
}

impl Backend for Postgres {
    const NODE_SQL: NodeSql = node_sql::POSTGRES;
    const PATH_KEY: PathKey = PathKey::Prefix;
    const OBJECT_SQL: ObjectSql = object_sql::POSTGRES;
    const PRUNE_BATCH: usize = 4096;

    async fn append(&self, creation: Vec<Statement>, entries: Vec<PreparedEntry>) -> Result<Appended> {
        self.queue.submit(|result| PostgresJob { creation, entries, result }).await
    }

    async fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
    ) -> Result<Vec<T>> {
        // Only this crate builds SQL, and values are never part of it.
        let query = connection::bind(sqlx::query(AssertSqlSafe(sql.into())), params);
        let read_all = async {
            // Row by row, because the values that are kept of a row may be far smaller than the row.
            let mut connection = self.address.acquire(&self.pool).await?;
            let (mut rows, mut found) = (query.fetch(&mut *connection), Vec::new());
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                found.push(read(&row)?);
            }
            Ok(found)
        };
        with_timeout(read_all).await?
    }

    async fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        mut params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> Result<LedgerPage<T>> {
        let sql = page_sql(&sql.into(), params.len() + 1, columns);
        // At least one row is queried, which shows whether any exist.
        params.push(size.bytes.max(1).into());
        let query = connection::bind(sqlx::query(AssertSqlSafe(sql)), params);
        let _permit = self.page_queries.acquire(Parties::current(), 1).await;
        let fetched = async {
            let mut connection = self.address.acquire(&self.pool).await?;
            query.fetch_all(&mut *connection).await.map_err(failed)
        };
        let rows = with_timeout(fetched).await??;
        let all = rows.first().map_or(Ok(0), |row| row.int(row.len() - 1)).map(to_count)?;
        let max = if size.bytes == 0 { 0 } else { size.rows as usize };
        let items: Vec<T> = rows.iter().take(max).map(|row| read(row)).collect::<Result<_>>()?;
        Ok(LedgerPage { more: all > items.len() as u64, items, resume: None })
    }

    async fn transact(&self, _touched: Option<RunId>, statements: Vec<Statement>) -> Result<u64> {
        self.transact_in(&statements, EnterMode::Shared).await
    }

    async fn transact_alone(&self, statements: Vec<Statement>) -> Result<u64> {
        self.transact_in(&statements, EnterMode::Exclusive).await
    }

    async fn transact_apart(&self, statement: Statement) -> Result<u64> {
        let mut apart = self.apart.lock().await;
        let mut connection = match apart.take() {
            Some(connection) => connection,
            None => self.address.connect().await?,
        };
        let transaction = async {
            let tx = connection.begin_with(BEGIN).await.map_err(failed)?;
            self.complete(tx, std::slice::from_ref(&statement), EnterMode::Shared).await
        };
        let done = tokio::time::timeout(writer::TIMEOUT, transaction).await;
        let done = done.unwrap_or_else(|_| Err(LedgerError::InDoubt("the database does not respond".into())));
        if done.is_ok() {
            *apart = Some(connection);
        }
        done
    }

    async fn write(&self, first: Option<Statement>, rows: Vec<Rows<'static>>) -> Result<()> {
        with_timeout(async {
            let mut connection = self.address.acquire(&self.pool).await?;
            let mut tx = connection.begin(BEGIN).await?;
            let mut fenced = self.fence.enter(&mut tx, EnterMode::Shared).await?;
            if let Some(first) = &first {
                execute_checked(fenced.connection(), first).await?;
            }
            for rows in rows.iter().filter(|rows| !rows.is_empty()) {
                connection::write_rows(fenced.connection(), &[rows]).await.map_err(failed)?;
            }
            tx.commit().await.map_err(failed)
        })
        .await?
    }

    async fn prune_owned(&self, node: &Node, done: &[(RunId, u64)]) -> Result<()> {
        let (runs, seqs): (Vec<&str>, Vec<i64>) = done.iter().map(|(run, seq)| (run.as_str(), to_int(*seq))).unzip();
        with_timeout(async {
            let mut connection = self.address.acquire(&self.pool).await?;
            let mut tx = connection.begin(BEGIN).await?;
            let mut fenced = self.fence.enter(&mut tx, EnterMode::Shared).await?;
            let query =
                sqlx::query(PRUNE_OWNED).bind(runs).bind(seqs).bind(&node.node_id).bind(to_int(node.incarnation));
            query.execute(fenced.connection()).await.map_err(failed)?;
            tx.commit().await.map_err(failed)
        })
        .await?
    }

    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        with_timeout(async { fence::settled_run(&mut self.address.acquire(&self.pool).await?, run).await }).await?
    }

    fn fence(&self, instance: &str) {
        self.fence.set_instance(instance);
    }

    fn set_node(&self, node: Node) {
        self.fence.set_node(node);
    }

    fn node(&self) -> Option<&Node> {
        self.fence.node()
    }

    async fn settled_position(&self) -> Result<i64> {
        let queried = with_timeout(async { positions::settled(&mut *self.address.acquire(&self.pool).await?).await });
        // A mark may be older than its positions, and then below what was settled before. A caller that skips what was published
        // must get all of it.
        Ok(queried.await??.max(*self.newest.borrow()))
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    fn page_queries(&self) -> &SharedPool {
        &self.page_queries
    }

    fn connections(&self) -> ConnectionCounts {
        let max = usize::try_from(self.pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let idle = self.pool.num_idle();
        let open = usize::try_from(self.pool.size()).unwrap_or(usize::MAX);
        ConnectionCounts { max, used: open.saturating_sub(idle), idle }
    }

    async fn ping(&self) -> Result<()> {
        with_timeout(async { self.fence.check_owner(&mut *self.address.acquire(&self.pool).await?).await }).await?
    }

    async fn can_delete_archived(&self) -> Result<bool> {
        Ok(self.fetch(CAN_DELETE_ARCHIVED, Vec::new(), |row| row.bool(0)).await? == [true])
    }

    async fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the ledger's writer panicked");
        }
        let mut watcher = std::mem::take(&mut *self.watcher.lock());
        watcher.shutdown().await;
        self.pool.close().await;
    }
}
