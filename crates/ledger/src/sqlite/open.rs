//! Opens the database: its lock, its file, its connections and its schema.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::convert::{failed, fetch, unavailable};
use crate::migrate::{self, AppliedMigration};
use crate::{LedgerError, Result};

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
    migrate(&mut connection)?;
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

/// Migrates the schema in one transaction.
fn migrate(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute_batch(migrate::CREATE_TABLE).map_err(failed)?;
    let applied = fetch(&tx, migrate::LIST, &[], AppliedMigration::read)?;
    for migration in migrate::missing(migrate::SQLITE, &applied)? {
        tx.execute_batch(migration.sql).map_err(failed)?;
        tx.execute(migrate::INSERT, (migration.version, migration.name, migration.checksum())).map_err(failed)?;
    }
    tx.commit().map_err(failed)
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
