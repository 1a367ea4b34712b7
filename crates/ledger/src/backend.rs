//! The interface to a database system. Except for appends, the ledger is implemented once on top of it.

pub(crate) mod node_sql;
pub(crate) mod object_sql;

use std::future::Future;

use model::RunId;
use shared_pool::SharedPool;
use tokio::sync::watch;

use crate::Result;
use crate::entry::Appended;
use crate::node::Node;
use crate::packed::PreparedEntry;
use crate::statement::{PageColumns, Param, RowReader, Rows, Statement};
use crate::stored::{ConnectionCounts, LedgerPage, PageSize, SettledRun};
use node_sql::NodeSql;
use object_sql::ObjectSql;

/// Changes a row, so that the commit writes to the log.
pub(crate) const PROBE: &str = "INSERT INTO setting (name, value) VALUES ('probe', '0') \
    ON CONFLICT (name) DO UPDATE SET value = CASE setting.value WHEN '0' THEN '1' ELSE '0' END";

/// The part of a path that the index of `record_path` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKey {
    /// The whole path.
    Path,
    /// The first [`PATH_KEY_CHARS`](crate::filter::PATH_KEY_CHARS) characters.
    Prefix,
}

/// A database system.
pub(crate) trait Backend: Send + Sync + 'static {
    /// The statements that read the clock of the database.
    const NODE_SQL: NodeSql;
    /// The part of a path that its index has.
    const PATH_KEY: PathKey;
    /// The statements about objects that read the clock of the database.
    const OBJECT_SQL: ObjectSql;
    /// Maximum number of records whose steps are pruned in one transaction.
    const PRUNE_BATCH: usize;

    /// Executes the statements that create the entries' run, if it is new, and appends all entries or none. Concurrent appends
    /// share a commit.
    fn append(
        &self,
        creation: Vec<Statement>,
        entries: Vec<PreparedEntry>,
    ) -> impl Future<Output = Result<Appended>> + Send;

    /// Returns the rows of a query, from one snapshot.
    fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
    ) -> impl Future<Output = Result<Vec<T>>> + Send;

    /// Returns the first rows of a query, from one snapshot, until a page of `size` is full. The `LIMIT` of `sql` must be
    /// [`PageSize::query_limit`].
    fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        params: Vec<Param<'static>>,
        read: fn(&dyn RowReader) -> Result<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> impl Future<Output = Result<LedgerPage<T>>> + Send;

    /// Runs `statements` in one transaction. Returns how many rows the first one changed that does not check an owner. `touched` is
    /// the run whose row or head they may change.
    fn transact(&self, touched: Option<RunId>, statements: Vec<Statement>) -> impl Future<Output = Result<u64>> + Send;

    /// As [`transact`](Self::transact), while no other transaction of any process writes. For what every process writes at its start.
    fn transact_alone(&self, statements: Vec<Statement>) -> impl Future<Output = Result<u64>> + Send;

    /// As [`transact`](Self::transact), with a connection of its own, so that no other caller delays it.
    fn transact_apart(&self, statement: Statement) -> impl Future<Output = Result<u64>> + Send;

    /// Writes rows to tables that no append reads, in one transaction, after the statement `first`. It may run concurrently with
    /// appends.
    fn write(&self, first: Option<Statement>, rows: Vec<Rows<'static>>) -> impl Future<Output = Result<()>> + Send;

    /// Removes the steps of these records from the journal, except those of runs that `node` does not own.
    fn prune_owned(&self, node: &Node, done: &[(RunId, u64)]) -> impl Future<Output = Result<()>> + Send;

    /// See [`Ledger::settled_run`](crate::Ledger::settled_run).
    fn settled_run(&self, run: &RunId) -> impl Future<Output = Result<Option<SettledRun>>> + Send;

    /// From now on, rejects writes if the database belongs to another instance than `instance`.
    fn fence(&self, instance: &str);

    /// From now on, this process is the node `node`.
    fn set_node(&self, node: Node);

    /// Returns the node that this process is.
    fn node(&self) -> Option<&Node>;

    /// Returns a position up to which every later query sees every record that will ever be there.
    fn settled_position(&self) -> impl Future<Output = Result<i64>> + Send;

    /// Returns a receiver of the newest settled position.
    fn newest_position(&self) -> watch::Receiver<i64>;

    /// Returns the permits of queries for pages, which read many rows. Callers share them, and connections are left for all else.
    fn page_queries(&self) -> &SharedPool;

    /// Returns the number of connections in use.
    fn connections(&self) -> ConnectionCounts;

    /// Checks that the database responds and, as far as that is known, accepts writes.
    fn ping(&self) -> impl Future<Output = Result<()>> + Send;

    /// See [`Ledger::can_delete_archived`](crate::Ledger::can_delete_archived).
    fn can_delete_archived(&self) -> impl Future<Output = Result<bool>> + Send;

    /// Commits everything that was submitted, then closes the database.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
