//! Positions of records, which transactions take from a sequence and commit in any order.
//!
//! A position is *settled* when every record up to it is visible, or will never exist. A reader that continues after the last record
//! it has read must not read past it, or it would miss the record of a transaction that took a lower position and commits later.
//!
//! A transaction takes its positions after it has locked the heads of its runs, so that the positions of a run's records increase
//! with `seq`. Before, it acquires a shared advisory lock, its *mark*, whose key contains the last position that was taken. The
//! server releases it when the outcome of the transaction is visible. So a transaction in flight has only positions above its mark,
//! and the settled position is the newest visible one, or the lowest mark if that is lower. Marks do not wait for each other.
//!
//! The query takes its snapshot before it reads the marks. A transaction without a mark by then has either ended, or will take
//! positions above every position of the snapshot. Reading the marks is slow, because the server shows the locks of all connections.
//! Therefore each transaction also shares the lock of a key without a position. If the query obtains that lock exclusively, which it
//! does not wait for, no transaction has a mark.
//!
//! A transaction reads the last position and acquires its mark in two steps. If another one takes positions and commits in between,
//! the mark is lower than it could be, and so is the result of the query, for a moment. What was settled remains settled.

use model::RunId;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use super::connection::failed;
use super::fence::{BEGIN, FencedTx};
use crate::chain::LAST_POSITION;
use crate::filter::ZONE_POSITIONS;
use crate::{LedgerError, Result};

/// The high 16 bits of the keys of marks; the others are the position. They depend on the sequence, because schemas of one database
/// share advisory locks. The keys are below those of the other locks of this program.
macro_rules! mark_tag {
    () => {
        "(8192 + ('record_position'::regclass::oid::bigint & 8191))"
    };
}
/// The low 48 bits of a key without a position: above every position.
macro_rules! no_position {
    () => {
        "281474976710655"
    };
}
/// The lowest mark; NULL if no transaction has one.
macro_rules! lowest_mark {
    () => {
        concat!(
            "(SELECT min(((classid::bigint & 65535) << 32) | objid::bigint) FROM pg_locks ",
            "WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = ",
            mark_tag!(),
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
        )
    };
}
/// Selects the settled position.
macro_rules! select_settled {
    () => {
        concat!(
            "SELECT least((SELECT coalesce(max(position), 0) FROM audit_record), ",
            "CASE WHEN NOT pg_try_advisory_xact_lock((",
            mark_tag!(),
            " << 48) | ",
            no_position!(),
            ") THEN ",
            lowest_mark!(),
            " END)"
        )
    };
}

const SETTLED: &str = select_settled!();
/// Plans the query once for a connection that commits.
const PREPARE: &str = concat!("PREPARE settled_position AS ", select_settled!());
/// Commits, and selects the settled position in one message, on a connection that [`prepare`] was called for.
pub(crate) const COMMIT: &str = "COMMIT; EXECUTE settled_position";
/// As [`COMMIT`], without waiting until the log is on disk.
pub(crate) const COMMIT_READS: &str = "SET LOCAL synchronous_commit = off; COMMIT; EXECUTE settled_position";
/// Acquires a mark above every position, which holds back nobody.
const MARK_HIGHEST: &str =
    concat!("SELECT pg_advisory_xact_lock_shared((", mark_tag!(), " << 48) | (", no_position!(), " - 1))");
const NO_MARKS: &str = "it does not show advisory locks in pg_locks as they are acquired, which the order of records depends on: use \
                        PostgreSQL. \"Other databases\" in deploy/scaling.md says which databases lack what";
/// Locks the heads of the runs `$1`, in the order of their numbers, and then takes `$2` positions. Each `WITH` clause needs the
/// result of the one before.
const LOCK_AND_TAKE: &str = concat!(
    "WITH locked AS MATERIALIZED (SELECT h.run_no FROM run_head h JOIN run ON run.run_no = h.run_no ",
    "WHERE run.run_id = ANY($1) ORDER BY h.run_no FOR UPDATE OF h), ",
    "marked AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared((",
    mark_tag!(),
    " << 48) | ",
    no_position!(),
    "), pg_advisory_xact_lock_shared((",
    mark_tag!(),
    " << 48) | last_value) FROM record_position WHERE (SELECT count(*) FROM locked) >= 0) ",
    "SELECT nextval('record_position') FROM marked CROSS JOIN generate_series(1, $2)"
);
/// Adds the zones before position `$1` to the zone map, in order. If another transaction adds them too, waits for it.
const SEAL_ZONES: &str = "INSERT INTO audit_zone (zone, min_timestamp, max_timestamp) \
    SELECT position / 4096, min(timestamp), max(timestamp) FROM audit_record \
    WHERE position >= coalesce((SELECT max(zone) + 1 FROM audit_zone), 0) * 4096 AND position < $1 \
    GROUP BY position / 4096 ORDER BY 1 ON CONFLICT (zone) DO NOTHING";

/// Locks the heads of `runs` and takes `count` positions. Returns the positions in order.
pub(crate) async fn lock_and_take(fenced: &mut FencedTx<'_>, runs: &[&RunId], count: usize) -> Result<Vec<i64>> {
    let query = sqlx::query(LOCK_AND_TAKE)
        .bind(runs.iter().map(|run| run.as_str()).collect::<Vec<_>>())
        .bind(i64::try_from(count).unwrap_or(i64::MAX));
    let rows = query.fetch_all(fenced.connection()).await.map_err(failed)?;
    let mut positions: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(failed)?;
    positions.sort_unstable();
    Ok(positions)
}

/// Fails unless the server shows the marks of transactions in flight: without them, readers would skip records that commit late.
pub(crate) async fn check_marks(connection: &mut PgConnection) -> Result<()> {
    let mut tx = connection.begin_with(BEGIN).await.map_err(failed)?;
    sqlx::query(MARK_HIGHEST).execute(&mut *tx).await.map_err(failed)?;
    let is_shown = sqlx::query(concat!("SELECT ", lowest_mark!(), " IS NOT NULL")).fetch_one(&mut *tx).await;
    let is_shown: bool = is_shown.and_then(|row| row.try_get(0)).map_err(failed)?;
    tx.rollback().await.map_err(failed)?;
    if is_shown { Ok(()) } else { Err(LedgerError::Internal(NO_MARKS.into())) }
}

/// Prepares a connection for [`COMMIT`].
pub(crate) async fn prepare(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(PREPARE).execute(connection).await.map(drop).map_err(failed)
}

/// Returns the settled position.
pub(crate) async fn settled(connection: &mut PgConnection) -> Result<i64> {
    sqlx::query(SETTLED).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(failed)
}

/// Returns the settled position of a database that was just opened. It is not before the newest checkpoint, which covers only
/// settled positions: a transaction can acquire a mark that is a little older than its positions.
pub(crate) async fn settled_at_open(connection: &mut PgConnection) -> Result<i64> {
    let sql = format!(
        "SELECT greatest(least(({LAST_POSITION}), {}), least(({LAST_POSITION}), (SELECT max(position) FROM checkpoint)))",
        lowest_mark!()
    );
    sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(failed)
}

/// Returns whether the sequence has not reached the positions in the tables.
pub(crate) async fn must_advance(connection: &mut PgConnection) -> Result<bool> {
    let sql = format!("SELECT ({LAST_POSITION}) > last_value FROM record_position");
    sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(failed)
}

/// Advances the sequence to the last position in the tables, which may have been restored without the sequence. No other transaction may append meanwhile.
pub(crate) async fn advance(connection: &mut PgConnection) -> Result<()> {
    let sql = format!(
        "SELECT setval('record_position', newest.position) FROM ({LAST_POSITION}) AS newest (position), record_position \
         WHERE newest.position > last_value"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(failed)
}

/// Adds the zones that end at or before the position `settled` to the zone map.
pub(crate) async fn seal_zones(fenced: &mut FencedTx<'_>, settled: i64) -> Result<()> {
    let end = first_unsealed(settled);
    sqlx::query(SEAL_ZONES).bind(end).execute(fenced.connection()).await.map(drop).map_err(failed)
}

/// Returns the first position of the zone that is not complete yet.
pub(crate) fn first_unsealed(settled: i64) -> i64 {
    (settled + 1) / ZONE_POSITIONS * ZONE_POSITIONS
}
