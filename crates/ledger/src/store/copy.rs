//! Consistent copies of the database while a service writes to it, for backups, and their restore.

use std::collections::BTreeMap;
use std::path::Path;

use model::RunId;

use crate::backend::RowReader;
use crate::{LedgerError, Result, StoredCheckpoint, postgres, sqlite};

/// The runs that have files, with the number of their newest record.
pub(crate) const RUNS: &str = "SELECT r.run_id, coalesce(h.head_seq, 0) FROM run r \
    LEFT JOIN run_head h ON h.run_no = r.run_no \
    WHERE r.state NOT IN ('preparing', 'deleted') AND r.base_commit IS NOT NULL ORDER BY r.run_no";
/// The newest checkpoint.
pub(crate) const CHECKPOINT: &str = "SELECT size, position, note FROM checkpoint ORDER BY size DESC LIMIT 1";
/// All settings. They are few, and small.
pub(crate) const SETTINGS: &str = "SELECT name, value FROM setting ORDER BY name";
/// The value of the setting [`INSTANCE`](crate::INSTANCE).
pub(crate) const INSTANCE_NAME: &str = "SELECT value FROM setting WHERE name = 'instance'";

/// What a copy of the database contains, read from the same snapshot as the copy.
#[derive(Clone, Debug, Default)]
pub struct DatabaseCopy {
    /// The runs that have files: those that are neither preparing nor deleted.
    pub runs: Vec<CopiedRun>,
    /// The newest checkpoint.
    pub checkpoint: Option<StoredCheckpoint>,
    /// The settings by their names.
    pub settings: BTreeMap<String, String>,
}

/// A run in a copy of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRun {
    /// The run.
    pub run: RunId,
    /// The number of its newest record in the copy.
    pub head_seq: u64,
}

/// A database that a copy may be restored into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreTarget {
    /// It does not exist (SQLite), or has no tables (PostgreSQL).
    Empty,
    /// It has tables.
    Used {
        /// The value of the setting [`INSTANCE`](crate::INSTANCE), if it is a database of this program.
        instance: Option<String>,
    },
}

/// Reads a row of [`RUNS`]. An invalid ID is an error: the run would be missing from the backup.
pub(crate) fn run(row: &dyn RowReader) -> Result<CopiedRun> {
    let run = RunId::parse(&row.text(0)?).map_err(|error| LedgerError::Internal(Box::new(error)))?;
    Ok(CopiedRun { run, head_seq: u64::try_from(row.int(1)?).unwrap_or(0) })
}

/// Reads a row of [`CHECKPOINT`].
pub(crate) fn checkpoint(row: &dyn RowReader) -> Result<StoredCheckpoint> {
    Ok(StoredCheckpoint { size: u64::try_from(row.int(0)?).unwrap_or(0), position: row.int(1)?, note: row.text(2)? })
}

/// Reads a row of [`SETTINGS`].
pub(crate) fn setting(row: &dyn RowReader) -> Result<(String, String)> {
    Ok((row.text(0)?, row.text(1)?))
}

/// Writes a consistent copy of the database at `url` to the new file `to`, and syncs it. Other processes read and commit
/// meanwhile. SQLite's copy is a database file; PostgreSQL's is an archive of the program `pg_dump`, which has to be in the PATH.
///
/// # Errors
///
/// If the database has another schema than this program, if it cannot be read or `to` not be written, or if `pg_dump` is missing
/// or fails.
pub async fn copy_database(url: &str, to: &Path) -> Result<DatabaseCopy> {
    match sqlite_file(url) {
        Some(path) => {
            let (path, to) = (path.to_owned(), to.to_owned());
            blocking(move || sqlite::copy::write(Path::new(&path), &to)).await
        }
        None => postgres::copy::write(url, to).await,
    }
}

/// Returns whether the database at `url` has no tables yet.
///
/// # Errors
///
/// If it cannot be read.
pub async fn restore_target(url: &str) -> Result<RestoreTarget> {
    match sqlite_file(url) {
        Some(path) => match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(RestoreTarget::Used { instance: None }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(RestoreTarget::Empty),
            Err(error) => Err(LedgerError::Unavailable(Box::new(error))),
        },
        None => postgres::copy::target(url).await,
    }
}

/// Returns which database `url` names, without user and password: the path of an SQLite file, or host, port and name.
///
/// # Errors
///
/// If `url` is not valid.
pub fn database_address(url: &str) -> Result<String> {
    match sqlite_file(url) {
        Some(path) => Ok(path.to_owned()),
        None => postgres::copy::address(url),
    }
}

/// Restores the copy `from` into the database at `url`, which must be [`Empty`](RestoreTarget::Empty). A restore into PostgreSQL
/// is one transaction. What an interrupted one has left at SQLite's path is replaced.
///
/// # Errors
///
/// If `from` cannot be read, the database cannot be written, or `pg_restore` is missing or fails.
pub async fn restore_database(url: &str, from: &Path) -> Result<()> {
    match sqlite_file(url) {
        Some(path) => {
            let (path, from) = (path.to_owned(), from.to_owned());
            blocking(move || sqlite::copy::restore(Path::new(&path), &from)).await
        }
        None => postgres::copy::restore(url, from).await,
    }
}

fn sqlite_file(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite://")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| LedgerError::Internal(Box::new(error)))?
}
