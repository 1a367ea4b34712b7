//! Opens the database: the lock, the file, the connections, the schema.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::convert::{failed, unavailable};
use crate::migrate::{self, AppliedMigration};
use crate::{LedgerError, Result};

/// The first version without the bug that could corrupt a database when its write-ahead log restarts.
const MIN_VERSION: i32 = 3_051_003;
/// How long to wait for a lock of another program, such as a backup or a shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Locks the database for this process until the returned file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = private().open(PathBuf::from(name)).map_err(unavailable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(LedgerError::Unavailable("another process uses this database: stop it first".into()))
        }
        Err(TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

/// Creates the file with its mode, which SQLite copies to the write-ahead log.
fn create(path: &Path) -> Result<()> {
    private().open(path).map(drop).map_err(unavailable)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Opens the connection that writes, and migrates the schema.
pub(crate) fn migrated(path: &Path) -> Result<Connection> {
    create(path)?;
    let log = log_of(path);
    // A process that ends cleanly removes it.
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let mut connection = if has_log { writer_with_log(path, &log)? } else { writer(path)? };
    migrate(&mut connection)?;
    Ok(connection)
}

/// The write-ahead log of the database at `path`.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Opens the connection that writes, to a database that was not closed and has the write-ahead log `log`. Fails if the log does
/// not belong to the database file, and leaves both files unchanged.
fn writer_with_log(path: &Path, log: &Path) -> Result<Connection> {
    let started = Instant::now();
    let unchecked = Connection::open_with_flags(path, writing()).map_err(failed)?;
    // Otherwise closing would copy the log into a database that it does not belong to, and delete it.
    unchecked.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let checked = unchecked.busy_timeout(BUSY_TIMEOUT).map_err(failed).and_then(|()| {
        let found = unchecked.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match found.map_err(failed)?.as_str() {
            "ok" => writer(path),
            fault => Err(LedgerError::Internal(fault.into())),
        }
    });
    tracing::info!(
        elapsed_ms = started.elapsed().as_millis(),
        "the database was not closed cleanly: checked it with its write-ahead log"
    );
    checked.map_err(|error| match error {
        LedgerError::Internal(fault) => {
            let (path, log) = (path.display(), log.display());
            let message = format!(
                "the write-ahead log {log} does not belong to {path}: restore the database file that it belongs to, or, if the \
                 file is a backup, move the log away ({fault})"
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

fn writing() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Opens a connection that may write.
fn connection(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, writing()).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    for (pragma, value) in [
        ("synchronous", "full"),
        ("foreign_keys", "on"),
        ("temp_store", "memory"),
        ("cache_size", "-8000"),
        // The checkpointer's thread does it.
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
    let applied = {
        let mut list = tx.prepare(migrate::LIST).map_err(failed)?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(AppliedMigration { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? })
        };
        list.query_map([], read).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>).map_err(failed)?
    };
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
