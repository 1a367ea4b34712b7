//! Fencing: rejects writes to a database that another instance has taken over, or that has lost acknowledged commits. Also the
//! read that waits for commits in doubt.

use std::collections::HashMap;
use std::sync::OnceLock;

use model::{RunId, Sha256};
use parking_lot::Mutex;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::connection::{PooledConnection, failed};
use crate::error::Fence as Reason;
use crate::rows::{self, RUN, STEPS_OF_RUN};
use crate::run_head::RunHead;
use crate::{LedgerError, Node, Result, SettledRun};

/// Maximum number of runs whose heads are cached.
const MAX_HEADS: usize = 4096;
/// Locks the rows of a run, in the order in which commits lock them.
const LOCK_ROWS: [&str; 2] = [
    "SELECT 1 FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) FOR UPDATE",
    "SELECT 1 FROM run WHERE run_id = $1 FOR UPDATE",
];
/// Selects the instance that the database belongs to, and the position of its last record.
macro_rules! select_owner {
    () => {
        "SELECT (SELECT value FROM setting WHERE name = 'instance'), (SELECT coalesce(max(position), 0) FROM audit_record)"
    };
}
const OWNER: &str = select_owner!();
/// Begins a transaction in which each statement reads what was committed before it, regardless of the server's configuration.
macro_rules! begin {
    () => {
        "BEGIN ISOLATION LEVEL READ COMMITTED"
    };
}
pub(crate) const BEGIN: &str = begin!();
/// The lock timeout is shorter than the default, because the waiting caller holds a connection of the pool.
const BEGIN_SETTLED: &str = concat!(begin!(), "; SET LOCAL lock_timeout = '3s'");
/// Acquires the lock of writers, which the transaction holds until its end.
macro_rules! lock_shared {
    () => {
        "SELECT pg_advisory_xact_lock_shared(7022364301936348777); "
    };
}
/// Acquires the lock of writers exclusively.
macro_rules! lock_exclusive {
    () => {
        "SELECT pg_advisory_xact_lock(7022364301936348777); "
    };
}
pub(crate) const LOCK_EXCLUSIVE: &str = lock_exclusive!();

/// How a writing transaction starts. Each mode is one message to the server. No other instance can take over until the transaction
/// ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EnterMode {
    /// Begins the transaction, as [`BEGIN`] does. Allows concurrent writers.
    Begin,
    /// Allows concurrent writers.
    Shared,
    /// Waits for all other writers, and excludes them.
    Exclusive,
}

impl EnterMode {
    fn sql(self) -> &'static str {
        match self {
            Self::Begin => concat!(begin!(), "; ", lock_shared!(), select_owner!()),
            Self::Shared => concat!(lock_shared!(), select_owner!()),
            Self::Exclusive => concat!(lock_exclusive!(), select_owner!()),
        }
    }
}

/// A transaction in which this process may write to the database. Only [`WriterFence::enter`] creates one, and every function that
/// writes takes one.
pub(crate) struct FencedTx<'c> {
    connection: &'c mut PgConnection,
}

impl FencedTx<'_> {
    /// Returns the connection to write with.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.connection
    }
}

/// The state that the database must have for this process to write to it.
#[derive(Debug, Default)]
pub(crate) struct WriterFence {
    expected: Mutex<ExpectedWriter>,
    /// The node that this process is.
    node: OnceLock<Node>,
}

#[derive(Debug, Default)]
struct ExpectedWriter {
    /// The instance of this process, after it has taken over the database.
    instance: Option<String>,
    /// The last position that this process committed.
    position: i64,
    /// The heads that this process committed last.
    heads: HashMap<RunId, (u64, Sha256)>,
}

impl WriterFence {
    /// Requires from now on that the database belongs to `instance`.
    pub(crate) fn set_instance(&self, instance: &str) {
        self.expected.lock().instance = Some(instance.to_owned());
    }

    /// Makes this process the node `node`, unless it is one already.
    pub(crate) fn set_node(&self, node: Node) {
        self.node.get_or_init(|| node);
    }

    /// Returns the node that this process is.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.get()
    }

    /// Starts a writing transaction. Fails if the database belongs to another instance or has lost commits of this process.
    pub(crate) async fn enter<'c>(&self, connection: &'c mut PgConnection, mode: EnterMode) -> Result<FencedTx<'c>> {
        // Read before the query, which may not see commits that are made during it.
        let committed = self.expected.lock().position;
        let rows = sqlx::raw_sql(mode.sql()).fetch_all(&mut *connection).await.map_err(failed)?;
        self.check(rows.last(), committed)?;
        Ok(FencedTx { connection })
    }

    /// Checks a row of [`OWNER`], whose position must have reached `committed`.
    fn check(&self, found: Option<&PgRow>, committed: i64) -> Result<()> {
        let found = found.ok_or_else(|| {
            LedgerError::Internal("the database returned no row for its instance and position".into())
        })?;
        let (instance, position): (Option<String>, i64) =
            (found.try_get(0).map_err(failed)?, found.try_get(1).map_err(failed)?);
        if position < committed {
            return Err(LedgerError::Fenced(Reason::LostCommits));
        }
        match &self.expected.lock().instance {
            Some(own) if instance.as_ref() != Some(own) => Err(LedgerError::Fenced(Reason::TakenOver)),
            _ => Ok(()),
        }
    }

    /// Fails if a head of `runs` in the database, given in `heads`, is older than the one that this process committed.
    pub(crate) fn check_heads(&self, runs: &[&RunId], heads: &HashMap<RunId, RunHead>) -> Result<()> {
        let expected = self.expected.lock();
        let is_older = |run: &&RunId| {
            let Some((seq, hash)) = expected.heads.get(*run) else { return false };
            heads.get(*run).is_none_or(|head| head.seq < *seq || head.seq == *seq && head.hash != *hash)
        };
        if runs.iter().any(is_older) {
            return Err(LedgerError::Fenced(Reason::LostCommits));
        }
        Ok(())
    }

    /// Records a commit of this process, which the database must contain from now on. `position` is that of its last record, or 0.
    pub(crate) fn acknowledge<'a>(&self, position: i64, heads: impl Iterator<Item = (&'a RunId, &'a RunHead)>) {
        let mut expected = self.expected.lock();
        expected.position = expected.position.max(position);
        for (run, head) in heads {
            if expected.heads.len() >= MAX_HEADS && !expected.heads.contains_key(run) {
                // The position is still checked.
                expected.heads.clear();
            }
            expected.heads.insert(run.clone(), (head.seq, head.hash));
        }
    }

    /// Fails if a writing transaction would be rejected.
    pub(crate) async fn check_owner(&self, connection: &mut PgConnection) -> Result<()> {
        let committed = self.expected.lock().position;
        let found = sqlx::query(OWNER).fetch_one(connection).await.map_err(failed)?;
        self.check(Some(&found), committed)
    }
}

/// See [`Ledger::settled_run`](crate::Ledger::settled_run). Every commit of a run locks one of the two rows before it can be in
/// doubt, and until its outcome is visible.
pub(crate) async fn settled_run(connection: &mut PooledConnection, run: &RunId) -> Result<Option<SettledRun>> {
    let mut tx = connection.begin(BEGIN_SETTLED).await?;
    for lock in LOCK_ROWS {
        sqlx::query(lock).bind(run.as_str()).execute(&mut *tx).await.map_err(failed)?;
    }
    let stored = sqlx::query(RUN.sql).bind(run.as_str()).fetch_optional(&mut *tx).await.map_err(failed)?;
    let steps = sqlx::query(STEPS_OF_RUN.sql).bind(run.as_str()).fetch_all(&mut *tx).await.map_err(failed)?;
    // A commit could wait for the same standby as the commit in doubt.
    tx.rollback().await.map_err(failed)?;
    let Some(stored) = stored else { return Ok(None) };
    let (_, stored) = (RUN.read)(&stored)?;
    let steps = steps.iter().map(|row| (STEPS_OF_RUN.read)(row)).collect::<Result<_>>()?;
    Ok(Some(SettledRun { stored, journal: rows::journal(steps) }))
}
