//! Opening: the lock, the file, the connections, the tables.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::convert::{failed, unavailable};
use crate::migrate::{self, AppliedMigration};
use crate::{LedgerError, Result};

/// The first version without the fault that could damage a database while its log was being reset.
const MIN_VERSION: i32 = 3_051_003;
/// How long a lock of another program (a backup, a shell) is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Takes the database for this process alone, until the answer is dropped.
pub(super) fn lock(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = private().open(PathBuf::from(name)).map_err(unavailable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(LedgerError::Unavailable("another process works with this database; stop it first".into()))
        }
        Err(TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

/// Makes the file, so that its mode is ours; SQLite gives its log the same.
fn create(path: &Path) -> Result<()> {
    private().open(path).map(drop).map_err(unavailable)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

/// The connection that writes, to tables that are up to date.
pub(super) fn up_to_date(path: &Path) -> Result<Connection> {
    create(path)?;
    let log = log_of(path);
    // The last one that ends cleanly removes it.
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let mut connection = if has_log { writer_behind(path, &log)? } else { writer(path)? };
    migrate(&mut connection)?;
    Ok(connection)
}

/// The log of the database at `path`.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// The connection that writes to a database that was not closed, whose log lies at `log`. Refused where the two make no sound
/// database together, and both are left as they are.
fn writer_behind(path: &Path, log: &Path) -> Result<Connection> {
    let started = Instant::now();
    let unchecked = Connection::open_with_flags(path, writing()).map_err(failed)?;
    // Else the log would be copied into a database that is not its own, and be gone.
    unchecked.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let checked = unchecked.busy_timeout(BUSY).map_err(failed).and_then(|()| {
        let found = unchecked.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match found.map_err(failed)?.as_str() {
            "ok" => writer(path),
            fault => Err(LedgerError::Internal(fault.into())),
        }
    });
    tracing::info!(millis = started.elapsed().as_millis(), "the database was not closed: it was checked with its log");
    checked.map_err(|error| match error {
        LedgerError::Internal(fault) => {
            let (path, log) = (path.display(), log.display());
            let told = format!(
                "{path} and its log {log} make no sound database together: put back the file that the log belongs to, or, \
                 where the file is a backup, move the log away ({fault})"
            );
            LedgerError::Internal(told.into())
        }
        error => error,
    })
}

/// The connection that writes.
fn writer(path: &Path) -> Result<Connection> {
    check_version(rusqlite::version_number(), rusqlite::version())?;
    let connection = connection(path)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(LedgerError::Internal("the disk does not allow SQLite's write-ahead log".into()));
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn check_version(number: i32, version: &str) -> Result<()> {
    if number < MIN_VERSION {
        return Err(LedgerError::Internal(format!("SQLite {version} is too old: 3.51.3 is needed").into()));
    }
    Ok(())
}

/// The connection that copies the log back.
pub(super) fn log_keeper(path: &Path) -> Result<Connection> {
    connection(path)
}

fn writing() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// A connection that may write.
fn connection(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, writing()).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    for (pragma, value) in [
        ("synchronous", "full"),
        ("foreign_keys", "on"),
        ("temp_store", "memory"),
        ("cache_size", "-8000"),
        // A thread of its own sees to it.
        ("wal_autocheckpoint", "0"),
        ("journal_size_limit", "67108864"),
    ] {
        connection.pragma_update(None, pragma, value).map_err(failed)?;
    }
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    for (pragma, value) in [("query_only", "on"), ("temp_store", "memory"), ("cache_size", "-2000")] {
        connection.pragma_update(None, pragma, value).map_err(failed)?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Gives back the pages that a connection keeps in memory.
pub(super) fn shrink(connection: &Connection) -> Result<()> {
    connection.execute_batch("PRAGMA shrink_memory").map_err(failed)
}

/// Brings the tables up to date, all of it or nothing.
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
        tx.execute(migrate::NOTE, (migration.version, migration.name, migration.checksum())).map_err(failed)?;
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
    fn what_is_committed_is_synced_to_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        create(&path).unwrap();
        let writer = writer(&path).unwrap();
        writer.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY)").unwrap();
        for connection in [&writer, &log_keeper(&path).unwrap()] {
            assert_eq!(pragma(connection, "journal_mode"), "Text(\"wal\")");
            // FULL: every commit is synced. Memory that maps the file would show what a bad disk gives as a signal.
            assert_eq!(pragma(connection, "synchronous"), "Integer(2)");
            assert_eq!(pragma(connection, "mmap_size"), "Integer(0)");
            assert_eq!(pragma(connection, "wal_autocheckpoint"), "Integer(0)");
        }
        assert_eq!(pragma(&reader(&path).unwrap(), "query_only"), "Integer(1)");
        assert!(std::fs::metadata(folder.path().join("x.db-wal")).unwrap().len() > 0);
    }

    #[test]
    fn a_sqlite_that_may_damage_its_log_is_refused() {
        assert!(check_version(3_051_002, "3.51.2").is_err());
        assert!(check_version(3_051_003, "3.51.3").is_ok());
        assert!(check_version(rusqlite::version_number(), rusqlite::version()).is_ok());
    }
}
