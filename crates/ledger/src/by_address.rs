//! What begins with the address of a database: `sqlite://PATH` or `postgres://…`. Only this module knows both databases.

use std::path::Path;
use std::sync::Arc;

use crate::copy::{DatabaseCopy, RestoreTarget};
use crate::postgres::{self, AddressReader};
use crate::store::Store;
use crate::transfer::{CopiedTable, ObjectReference};
use crate::{Ledger, LedgerError, Result, sqlite};

/// Opens the ledger at `url` (`sqlite://PATH` or `postgres://…`) and migrates its schema.
///
/// # Errors
///
/// If the database cannot be opened, is newer than this program, has other migrations, or (SQLite) is in use by another
/// process.
pub async fn open(url: &str) -> Result<Arc<dyn Ledger>> {
    open_with(url, None).await
}

/// Checks that `url` is an address of PostgreSQL, without connecting to it.
///
/// # Errors
///
/// Which part of it is not valid, without its password.
pub fn check_postgres_url(url: &str) -> std::result::Result<(), String> {
    postgres::check_url(url)
}

/// As [`open`]. If PostgreSQL refuses the password of a new connection, the address is read again by `reader`. Only the role and
/// its password may change, not the database.
///
/// # Errors
///
/// As [`open`].
pub async fn open_with(url: &str, reader: Option<AddressReader>) -> Result<Arc<dyn Ledger>> {
    if let Some(path) = url.strip_prefix("sqlite://") {
        let path = std::path::PathBuf::from(path);
        let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open(&path)).await;
        let sqlite = opened.map_err(|error| LedgerError::Internal(Box::new(error)))??;
        return Ok(Arc::new(Store(sqlite)));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(Store(postgres::Postgres::open(url, reader).await?)));
    }
    Err(LedgerError::Internal("the database URL must start with sqlite://, postgres:// or postgresql://".into()))
}

/// Opens the ledger at `url` for reading, while a service may use it. Methods that write fail.
///
/// # Errors
///
/// If the database cannot be opened, or has another schema than this program.
pub async fn open_to_read(url: &str) -> Result<Arc<dyn Ledger>> {
    let Some(path) = url.strip_prefix("sqlite://") else {
        return Ok(Arc::new(Store(postgres::Postgres::open_to_read(url).await?)));
    };
    let path = std::path::PathBuf::from(path);
    let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open_to_read(&path)).await;
    Ok(Arc::new(Store(opened.map_err(|error| LedgerError::Internal(Box::new(error)))??)))
}

/// Copies the SQLite database at `from`, which no process may have open, into the empty PostgreSQL database at `to`, and adds
/// `references`. All or nothing. The setting [`TRANSFER`](crate::TRANSFER) gets the value `source`. Returns the tables with the numbers of their rows,
/// which were compared.
///
/// # Errors
///
/// If a database has another schema than this program, if `from` is in use or cannot be read, if `to` is not empty or cannot be written,
/// or if a value cannot be stored there.
pub async fn transfer_database(
    from: &Path,
    to: &str,
    source: &str,
    references: &[ObjectReference],
) -> Result<Vec<CopiedTable>> {
    let source_database = sqlite::transfer::LockedSource::open(from).await?;
    postgres::transfer::copy(source_database, to, source, references).await
}

/// Returns what the runs of the PostgreSQL database at `url` that are not deleted need from the object store, by object.
///
/// # Errors
///
/// If it cannot be read.
pub async fn object_references(url: &str) -> Result<Vec<ObjectReference>> {
    postgres::transfer::references(url).await
}

/// Removes the setting [`TRANSFER`](crate::TRANSFER) of the PostgreSQL database at `url`: services may start with it.
///
/// # Errors
///
/// If it cannot be written.
pub async fn end_transfer(url: &str) -> Result<()> {
    postgres::transfer::end(url).await
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
