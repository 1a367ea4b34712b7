//! Connections to the database: its lock, its file, its schema, the pool of connections that read, and the conversions of values, rows
//! and errors.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Row, ToSql, TransactionBehavior, ffi};
use tokio::sync::Semaphore;

use crate::migrate::{self, Migration};
use crate::statement::{Param, RowReader, Rows, Select, impl_row_reader, to_count};
use crate::{ConnectionCounts, LedgerError, LedgerPage, PageSize, Result};

/// The first version in which resetting the write-ahead log cannot corrupt the database.
const MIN_VERSION: i32 = 3_051_003;
/// Timeout for locks of other programs, such as a backup or the SQLite shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Locks the database for this process until the returned file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
    }
    let file = private().open(with_suffix(path, ".lock")).map_err(unavailable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(LedgerError::Unavailable("another process uses the database: stop it first".into()))
        }
        Err(TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

/// Creates the database file. SQLite creates the write-ahead log with the same permissions.
fn create(path: &Path) -> Result<()> {
    private().open(path).map(drop).map_err(unavailable)
}

/// Returns the options to create a file that only its owner can read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Opens the connection that writes, and migrates the schema.
pub(crate) fn migrated(path: &Path) -> Result<Connection> {
    create(path)?;
    let log = with_suffix(path, "-wal");
    // SQLite removes the log when the database is closed cleanly.
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let mut connection = if has_log { writer_with_log(path, &log)? } else { writer(path)? };
    migrate(&mut connection, migrate::SQLITE)?;
    Ok(connection)
}

/// Returns `path` with `suffix` appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens the connection that writes to a database that was not closed cleanly and has the write-ahead log `log`. If the log does
/// not belong to the database file, fails and leaves both files unchanged.
fn writer_with_log(path: &Path, log: &Path) -> Result<Connection> {
    let started = Instant::now();
    let unchecked = Connection::open_with_flags(path, read_write()).map_err(failed)?;
    // Otherwise closing the connection would checkpoint the log into a database that it may not belong to, and delete it.
    unchecked.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let checked = unchecked.busy_timeout(BUSY_TIMEOUT).map_err(failed).and_then(|()| {
        let found = unchecked.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match found.map_err(failed)?.as_str() {
            "ok" => writer(path),
            problem => Err(LedgerError::Internal(problem.into())),
        }
    });
    tracing::info!(
        elapsed_ms = started.elapsed().as_millis(),
        "checked the database and its write-ahead log, because it was not closed cleanly"
    );
    checked.map_err(|error| match error {
        LedgerError::Internal(problem) => {
            let (path, log) = (path.display(), log.display());
            let message = format!(
                "the write-ahead log {log} does not belong to {path} ({problem}): restore the database file that it belongs to \
                 or, if the file is a backup, move the log to another folder"
            );
            LedgerError::Internal(message.into())
        }
        error => error,
    })
}

/// Opens the connection that writes.
fn writer(path: &Path) -> Result<Connection> {
    check_version(rusqlite::version_number(), rusqlite::version())?;
    let connection = connection(path)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(LedgerError::Internal("the file system does not support SQLite's write-ahead log".into()));
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn check_version(number: i32, version: &str) -> Result<()> {
    if number < MIN_VERSION {
        return Err(LedgerError::Internal(format!("SQLite {version} is too old: 3.51.3 or newer is required").into()));
    }
    Ok(())
}

/// Opens the connection that checkpoints the write-ahead log.
pub(crate) fn checkpointer(path: &Path) -> Result<Connection> {
    connection(path)
}

fn read_write() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Opens a connection that may write.
fn connection(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, read_write()).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    for (pragma, value) in [
        ("synchronous", "full"),
        ("foreign_keys", "on"),
        ("temp_store", "memory"),
        ("cache_size", "-8000"),
        // A separate thread checkpoints.
        ("wal_autocheckpoint", "0"),
        ("journal_size_limit", "67108864"),
    ] {
        connection.pragma_update(None, pragma, value).map_err(failed)?;
    }
    Ok(connection)
}

/// Opens a connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    for (pragma, value) in [("query_only", "on"), ("temp_store", "memory"), ("cache_size", "-2000")] {
        connection.pragma_update(None, pragma, value).map_err(failed)?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Applies those of `known` that are missing, in one transaction.
pub(crate) fn migrate(connection: &mut Connection, known: &'static [Migration]) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute_batch(migrate::CREATE_TABLE).map_err(failed)?;
    let applied = select(&tx, &migrate::LIST)?;
    for migration in migrate::missing(known, &applied)? {
        tx.execute_batch(migration.sql).map_err(failed)?;
        tx.execute(migrate::INSERT, (migration.version, migration.name, migration.checksum())).map_err(failed)?;
    }
    tx.commit().map_err(failed)
}

/// Maximum number of concurrent queries.
pub(crate) const MAX_READERS: usize = 8;

pub(crate) struct ReadPool {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl ReadPool {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), permits: Arc::new(Semaphore::new(MAX_READERS)), idle: Arc::default() }
    }

    /// Runs `query` on a thread for blocking work.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |_| LedgerError::Unavailable("the ledger is closed".into());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            // Held by the thread, because the query continues if the caller is cancelled.
            let _permit = permit;
            let pooled = idle.lock().pop();
            let connection = pooled.map_or_else(|| reader(&path), Ok)?;
            let result = query(&connection);
            idle.lock().push(connection);
            result
        });
        task.await.map_err(|error| LedgerError::Internal(Box::new(error)))?
    }

    /// Returns the number of queries and of idle connections.
    pub(crate) fn connections(&self) -> ConnectionCounts {
        let used = MAX_READERS.saturating_sub(self.permits.available_permits());
        ConnectionCounts { max: MAX_READERS, used, idle: self.idle.lock().len() }
    }

    /// Rejects further queries.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

impl_row_reader!(Row<'_>, get, failed);

/// Executes a statement and returns how many rows it changed.
pub(crate) fn execute(connection: &Connection, sql: &str, params: &[Param<'_>]) -> rusqlite::Result<usize> {
    let mut statement = prepare(connection, sql)?;
    bind(&mut statement, params)?;
    statement.raw_execute()
}

/// Writes rows, one by one.
pub(crate) fn write_rows(connection: &Connection, rows: &Rows<'_>) -> rusqlite::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(rows.table.row_sql())?;
    for row in rows.iter() {
        bind(&mut statement, row)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Returns the rows of a query.
pub(crate) fn fetch<T>(
    connection: &Connection,
    sql: &str,
    params: &[Param<'_>],
    read: fn(&dyn RowReader) -> Result<T>,
) -> Result<Vec<T>> {
    Ok(fetch_page(connection, sql, params, read, PageSize::UNLIMITED, &[])?.items)
}

/// Returns the rows of a query without parameters.
pub(crate) fn select<T>(connection: &Connection, select: &Select<T>) -> Result<Vec<T>> {
    fetch(connection, select.sql, &[], select.read)
}

/// Returns the first rows of a query, until a page of `size` is full. The rows after it are not read. The columns `sizes` are the
/// sizes of compressed texts.
pub(crate) fn fetch_page<T>(
    connection: &Connection,
    sql: &str,
    params: &[Param<'_>],
    read: fn(&dyn RowReader) -> Result<T>,
    size: PageSize,
    sizes: &[&str],
) -> Result<LedgerPage<T>> {
    let mut statement = prepare(connection, sql).map_err(failed)?;
    bind(&mut statement, params).map_err(failed)?;
    let mut rows = statement.raw_query();
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(failed)? {
        if items.len() >= size.rows as usize || bytes >= size.bytes {
            return Ok(LedgerPage { items, more: true, resume: None });
        }
        bytes = bytes_of(row, sizes).map_err(failed)?.saturating_add(bytes);
        items.push(read(row)?);
    }
    Ok(LedgerPage { items, more: false, resume: None })
}

fn bytes_of(row: &Row<'_>, sizes: &[&str]) -> rusqlite::Result<u64> {
    let mut bytes = 0_u64;
    for column in 0..row.as_ref().column_count() {
        bytes = bytes.saturating_add(match row.get_ref(column)? {
            ValueRef::Text(value) | ValueRef::Blob(value) => value.len() as u64,
            ValueRef::Integer(size) if sizes.contains(&row.as_ref().column_name(column)?) => to_count(size),
            _ => 0,
        });
    }
    Ok(bytes)
}

/// Prepares a statement with the parameters `$1`, `$2`, …. SQLite treats those as names, only `?1` as a number.
fn prepare<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
    connection.prepare_cached(&sql.replace('$', "?"))
}

fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Param<'_>]) -> rusqlite::Result<()> {
    (1..).zip(params).try_for_each(|(number, param)| statement.raw_bind_parameter(number, param))
}

/// Converts an error of the operating system.
pub(crate) fn unavailable(error: std::io::Error) -> LedgerError {
    LedgerError::Unavailable(Box::new(error))
}

/// Converts an error of SQLite.
pub(crate) fn failed(error: rusqlite::Error) -> LedgerError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted,
        ) => LedgerError::Unavailable(Box::new(error)),
        Some(ErrorCode::ConstraintViolation) if is_duplicate(&error) => LedgerError::AlreadyExists,
        Some(_) | None => LedgerError::Internal(Box::new(error)),
    }
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    let codes = [ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY, ffi::SQLITE_CONSTRAINT_ROWID];
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if codes.contains(&failure.extended_code))
}

/// Returns whether a sync failed, after which the kernel may have discarded pages that it could not write.
pub(crate) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let codes = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC, ffi::SQLITE_IOERR_COMMIT_ATOMIC];
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if codes.contains(&failure.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pragma(connection: &Connection, name: &str) -> String {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
            .map(|value| format!("{value:?}"))
            .unwrap()
    }

    #[test]
    fn every_commit_is_synced_to_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        create(&path).unwrap();
        let writer = writer(&path).unwrap();
        writer.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY)").unwrap();
        for connection in [&writer, &checkpointer(&path).unwrap()] {
            assert_eq!(pragma(connection, "journal_mode"), "Text(\"wal\")");
            // 2 is FULL. A disk error under a memory map would be a signal instead of an error.
            assert_eq!(pragma(connection, "synchronous"), "Integer(2)");
            assert_eq!(pragma(connection, "mmap_size"), "Integer(0)");
            assert_eq!(pragma(connection, "wal_autocheckpoint"), "Integer(0)");
        }
        assert_eq!(pragma(&reader(&path).unwrap(), "query_only"), "Integer(1)");
        assert!(std::fs::metadata(folder.path().join("x.db-wal")).unwrap().len() > 0);
    }

    #[test]
    fn a_sqlite_that_may_corrupt_its_log_is_rejected() {
        assert!(check_version(3_051_002, "3.51.2").is_err());
        assert!(check_version(3_051_003, "3.51.3").is_ok());
        assert!(check_version(rusqlite::version_number(), rusqlite::version()).is_ok());
    }
}
