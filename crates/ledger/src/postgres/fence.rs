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
/// Keeps another instance from taking over until the transaction ends.
const SHARE_INSTANCE: &str = "SELECT value FROM setting WHERE name = 'instance' FOR SHARE";
const LOOK: &str = "SELECT (SELECT value FROM setting WHERE name = 'instance'), \
    (SELECT coalesce(max(position), 0) FROM audit_record)";

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

    /// Refused unless the database is this instance's.
    pub(super) fn check_instance(&self, found: Option<&str>) -> Result<()> {
        match &self.lock().instance {
            Some(own) if found != Some(own) => Err(LedgerError::Fenced(Why::TakenOver)),
            _ => Ok(()),
        }
    }

    /// Refused where the database, whose last record is at `position`, lacks what this process has committed to it.
    pub(super) fn check_position(&self, position: i64) -> Result<()> {
        if position < self.lock().position {
            return Err(LedgerError::Fenced(Why::WentBackwards));
        }
        Ok(())
    }

    /// The same for the heads of `runs`; those that are not in `heads` are not in the database.
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

    /// Begins to hold the instance's name in the transaction of `connection`; refused unless it is this instance's. For what
    /// is written without the writer's lock.
    pub(super) async fn hold(&self, connection: &mut PgConnection) -> Result<()> {
        if self.lock().instance.is_none() {
            return Ok(());
        }
        let found = sqlx::query(SHARE_INSTANCE).fetch_optional(connection).await.map_err(failed)?;
        let found = found.map(|row| row.try_get::<String, _>(0)).transpose().map_err(failed)?;
        self.check_instance(found.as_deref())
    }

    /// Refused where a commit would be.
    pub(super) async fn look(&self, pool: &PgPool) -> Result<()> {
        let row = sqlx::query(LOOK).fetch_one(pool).await.map_err(failed)?;
        let (instance, position): (Option<String>, i64) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        self.check_position(position)?;
        self.check_instance(instance.as_deref())
    }

    fn lock(&self) -> MutexGuard<'_, Expected> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Ledger::settled`](crate::Ledger::settled). Every commit of a run updates one of the two rows before it can be in
/// doubt, and holds its lock until the outcome is decided and can be seen.
pub(super) async fn settled(pool: &PgPool, run: &RunId) -> Result<Option<SettledRun>> {
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
    Ok(Some(SettledRun { stored, open: rows::by_record(steps) }))
}
