//! What keeps commits apart from a database that is another instance's, or that has lost what was acknowledged; and how a
//! read waits for commits whose outcome nobody knows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{RunId, Sha256};
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Connection as _, PgConnection, Row as _};

use super::convert::failed;
use crate::error::Fence as Why;
use crate::group::RunHead;
use crate::store::STEPS_OF_RUN;
use crate::{LedgerError, Result, SettledRun, rows};

/// Runs whose heads are remembered at most.
const MAX_HEADS: usize = 4096;
/// The wait for a commit that is in doubt is shorter than for others: whoever waits keeps a connection of the pool.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '3s'";
/// The order in which commits lock these rows.
const LOCK_ROWS: [&str; 2] = [
    "SELECT 1 FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) FOR UPDATE",
    "SELECT 1 FROM run WHERE run_id = $1 FOR UPDATE",
];
/// Where the database stands: the instance that it is of, and its last record.
macro_rules! look {
    () => {
        "SELECT (SELECT value FROM setting WHERE name = 'instance'), (SELECT coalesce(max(position), 0) FROM audit_record)"
    };
}
const LOOK: &str = look!();
/// Lets one writer in, until its transaction ends.
macro_rules! lock {
    () => {
        "SELECT pg_advisory_xact_lock(7022364301936348777); "
    };
}

/// How a transaction that writes begins, in one message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entrance {
    /// Alone, in a transaction that is not begun yet.
    Begin,
    /// Alone.
    Alone,
    /// Beside whoever writes records; no other instance takes over until it ends.
    Beside,
}

impl Entrance {
    fn sql(self) -> &'static str {
        match self {
            Self::Begin => concat!("BEGIN; ", lock!(), look!()),
            Self::Alone => concat!(lock!(), look!()),
            Self::Beside => concat!("SELECT 1 FROM setting WHERE name = 'instance' FOR SHARE; ", look!()),
        }
    }
}

/// The transaction of a connection, once it is known that this process may write to the database: whatever writes takes one,
/// and [`Fence::enter`] alone makes it.
pub(super) struct FencedTx<'c> {
    connection: &'c mut PgConnection,
    position: i64,
}

impl FencedTx<'_> {
    /// The position of the newest record.
    pub(super) fn position(&self) -> i64 {
        self.position
    }

    /// The connection, to write with.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.connection
    }
}

/// What the database has to hold for this process to write to it.
#[derive(Debug, Default)]
pub(super) struct Fence(Mutex<Expected>);

#[derive(Debug, Default)]
struct Expected {
    /// The instance that this process is, once it has taken the database over.
    instance: Option<String>,
    /// The last position that this process has committed.
    position: i64,
    /// The heads that it has committed.
    heads: HashMap<RunId, (u64, Sha256)>,
}

impl Fence {
    /// The database is this instance's from here on.
    pub(super) fn set_instance(&self, instance: &str) {
        self.lock().instance = Some(instance.to_owned());
    }

    /// Begins to write, unless the database is another instance's or lacks what this process has committed to it.
    pub(super) async fn enter<'c>(&self, connection: &'c mut PgConnection, entrance: Entrance) -> Result<FencedTx<'c>> {
        // Before the database is asked: whatever is committed meanwhile may be seen, or not.
        let committed = self.lock().position;
        let rows = sqlx::raw_sql(entrance.sql()).fetch_all(&mut *connection).await.map_err(failed)?;
        let position = self.check(rows.last(), committed)?;
        Ok(FencedTx { connection, position })
    }

    /// What [`LOOK`] has found, which must not be behind `committed`: the position of the newest record.
    fn check(&self, found: Option<&PgRow>, committed: i64) -> Result<i64> {
        let found = found.ok_or_else(|| LedgerError::Internal("the database does not tell where it stands".into()))?;
        let (instance, position): (Option<String>, i64) =
            (found.try_get(0).map_err(failed)?, found.try_get(1).map_err(failed)?);
        if position < committed {
            return Err(LedgerError::Fenced(Why::WentBackwards));
        }
        match &self.lock().instance {
            Some(own) if instance.as_ref() != Some(own) => Err(LedgerError::Fenced(Why::TakenOver)),
            _ => Ok(position),
        }
    }

    /// Refused where the heads of `runs` are behind what this process has committed; those that are not in `heads` are not in the database.
    pub(super) fn check_heads(&self, runs: &[&RunId], heads: &HashMap<RunId, RunHead>) -> Result<()> {
        let expected = self.lock();
        let is_behind = |run: &&RunId| {
            let Some((seq, hash)) = expected.heads.get(*run) else { return false };
            heads.get(*run).is_none_or(|head| head.seq < *seq || head.seq == *seq && head.hash != *hash)
        };
        if runs.iter().any(is_behind) {
            return Err(LedgerError::Fenced(Why::WentBackwards));
        }
        Ok(())
    }

    /// Remembers what was committed.
    pub(super) fn acknowledge<'a>(&self, position: i64, heads: impl Iterator<Item = (&'a RunId, &'a RunHead)>) {
        let mut expected = self.lock();
        expected.position = position;
        for (run, head) in heads {
            if expected.heads.len() >= MAX_HEADS && !expected.heads.contains_key(run) {
                // The position is still compared.
                expected.heads.clear();
            }
            expected.heads.insert(run.clone(), (head.seq, head.hash));
        }
    }

    /// Refused where a commit would be.
    pub(super) async fn look(&self, pool: &PgPool) -> Result<()> {
        let committed = self.lock().position;
        let found = sqlx::query(LOOK).fetch_one(pool).await.map_err(failed)?;
        self.check(Some(&found), committed).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Expected> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Ledger::settled_run`](crate::Ledger::settled_run). Every commit of a run updates one of the two rows before it can be in
/// doubt, and holds its lock until the outcome is decided and can be seen.
pub(super) async fn settled_run(pool: &PgPool, run: &RunId) -> Result<Option<SettledRun>> {
    let mut connection = pool.acquire().await.map_err(failed)?;
    let mut tx = connection.begin_with(BEGIN).await.map_err(failed)?;
    for lock in LOCK_ROWS {
        sqlx::query(lock).bind(run.as_str()).execute(&mut *tx).await.map_err(failed)?;
    }
    let stored = sqlx::query(rows::RUN).bind(run.as_str()).fetch_optional(&mut *tx).await.map_err(failed)?;
    let steps = sqlx::query(STEPS_OF_RUN).bind(run.as_str()).fetch_all(&mut *tx).await.map_err(failed)?;
    // Not committed: that could wait for the standby that the commit in doubt waits for.
    tx.rollback().await.map_err(failed)?;
    let Some(stored) = stored else { return Ok(None) };
    let (_, stored) = rows::run(&stored)?;
    let steps = steps.iter().map(|row: &PgRow| rows::step(row)).collect::<Result<_>>()?;
    Ok(Some(SettledRun { stored, journal: rows::by_record(steps) }))
}
