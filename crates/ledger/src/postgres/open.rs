//! Opens the database: its connections and its schema.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _};

use super::connection::failed;
use super::fence::{BEGIN, LOCK_EXCLUSIVE};
use super::positions;
use crate::migrate::{self, AppliedMigration, Migration};
use crate::{LedgerError, Result};

/// Timeout for a new connection, or for one of the pool.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of connections besides the writer's.
pub(crate) const MAX_POOL: u32 = 8;
/// Acquires the lock of the process that migrates.
const MIGRATE_LOCK: &str = "SELECT pg_advisory_xact_lock(7022364301936348778)";

/// Checks an address.
///
/// # Errors
///
/// Which part of it is not valid.
pub(crate) fn check_url(url: &str) -> std::result::Result<(), String> {
    PgConnectOptions::from_str(url).map(drop).map_err(|error| error.to_string())
}

/// Returns the options of `url` for every connection. Reads the file of `PGPASSFILE`, if the URL has no password.
pub(crate) fn parse(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| LedgerError::Internal(format!("invalid PostgreSQL URL: {error}").into()))?;
    Ok(options
        .application_name("workspaced")
        // A server that does not respond must not block the service.
        .options([
            ("statement_timeout", "10s"),
            ("lock_timeout", "10s"),
            ("idle_in_transaction_session_timeout", "10s"),
            // A page is the first rows in the order of an index. A bitmap scan has no order and fetches every matching row.
            ("enable_bitmapscan", "off"),
            // A plan for every value ignores how rare the value is: it reads the whole audit in search of a tool that nobody has used.
            ("plan_cache_mode", "force_custom_plan"),
            // Compiling takes longer than executing any of these queries.
            ("jit", "off"),
        ]))
}

/// Returns the options that the server's configuration requires in addition.
pub(crate) async fn extra_options(options: &PgConnectOptions) -> Result<&'static [(&'static str, &'static str)]> {
    let mut connection = connect(options).await.map_err(failed)?;
    let commit: String = sqlx::query("SHOW synchronous_commit")
        .fetch_one(&mut connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(failed)?;
    drop(connection.close().await);
    // Acknowledged commits must survive a power failure. Every other setting flushes the log and is kept.
    Ok(if commit == "off" { &[("synchronous_commit", "on")] } else { &[] })
}

/// Opens a connection.
pub(crate) async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, options.connect()).await;
    connected.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// Returns `options` for connections whose transactions only read.
pub(crate) fn read_only(options: PgConnectOptions) -> PgConnectOptions {
    options.options([("default_transaction_read_only", "on")])
}

/// Returns a pool, which opens connections on demand.
pub(crate) fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(MAX_POOL)
        .acquire_timeout(CONNECT_TIMEOUT)
        .idle_timeout(Duration::from_mins(5))
        .connect_lazy_with(options)
}

/// Migrates the schema in one transaction. If it is up to date, only reads, so that the service's role need not own the tables.
pub(crate) async fn migrate(connection: &mut PgConnection) -> Result<()> {
    let exists = sqlx::query("SELECT to_regclass('schema_migration') IS NOT NULL").fetch_one(&mut *connection).await;
    if exists.and_then(|row| row.try_get(0)).map_err(failed)? {
        let applied = applied(connection).await?;
        if migrate::missing(migrate::POSTGRES, &applied)?.is_empty() {
            return Ok(());
        }
    }
    let mut tx = connection.begin_with(BEGIN).await.map_err(failed)?;
    // Migrating a large table may take long.
    sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *tx).await.map_err(failed)?;
    apply_migrations(&mut tx, migrate::POSTGRES).await?;
    tx.commit().await.map_err(failed)
}

/// Applies those of `known` that are missing in the transaction `tx`, while no other process does.
pub(crate) async fn apply_migrations(tx: &mut PgConnection, known: &'static [Migration]) -> Result<()> {
    sqlx::raw_sql(MIGRATE_LOCK).execute(&mut *tx).await.map_err(failed)?;
    sqlx::raw_sql(migrate::CREATE_TABLE).execute(&mut *tx).await.map_err(failed)?;
    let applied = applied(tx).await?;
    for migration in migrate::missing(known, &applied)? {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await.map_err(failed)?;
        sqlx::query(migrate::INSERT)
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// Fails if the database has another schema than this program. Only reads.
pub(crate) async fn check_schema(connection: &mut PgConnection) -> Result<()> {
    let exists = sqlx::query("SELECT to_regclass('schema_migration') IS NOT NULL").fetch_one(&mut *connection).await;
    let exists: bool = exists.and_then(|row| row.try_get(0)).map_err(failed)?;
    let applied = if exists { applied(connection).await? } else { Vec::new() };
    if migrate::missing(migrate::POSTGRES, &applied)?.is_empty() {
        return Ok(());
    }
    Err(LedgerError::Internal(migrate::OLDER.into()))
}

/// Advances the sequence of positions, if it has not reached those in the tables.
pub(crate) async fn complete_sequence(connection: &mut PgConnection) -> Result<()> {
    if !positions::must_advance(connection).await? {
        return Ok(());
    }
    let mut tx = connection.begin_with(BEGIN).await.map_err(failed)?;
    sqlx::raw_sql(LOCK_EXCLUSIVE).execute(&mut *tx).await.map_err(failed)?;
    positions::advance(&mut tx).await?;
    tx.commit().await.map_err(failed)
}

/// Returns the migrations that were applied to the database.
async fn applied(connection: &mut PgConnection) -> Result<Vec<AppliedMigration>> {
    let rows = sqlx::query(migrate::LIST.sql).fetch_all(connection).await.map_err(failed)?;
    rows.iter().map(|row| (migrate::LIST.read)(row)).collect()
}
