//! What begins with the address of a database: `sqlite://PATH` or `postgres://…`. Only this module knows both databases.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::block_in_place;

use crate::dump::{DatabaseLoad, DatabaseSnapshot, RestoreTarget};
use crate::postgres::dump::{PostgresLoad, PostgresSnapshot};
use crate::postgres::{self, AddressReader};
use crate::sqlite::dump::{SqliteLoad, SqliteSnapshot};
use crate::store::Store;
use crate::{Ledger, LedgerError, Result, migrate, sqlite};

/// Opens the ledger at `url` (`sqlite://PATH` or `postgres://…`) and migrates its schema.
///
/// # Errors
///
/// If the database cannot be opened, is newer than this program, has other migrations, or (SQLite) is in use by another
/// process.
pub fn open(url: &str) -> BoxFuture<'_, Result<Arc<dyn Ledger>>> {
    open_with(url, None)
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
pub fn open_with(url: &str, reader: Option<AddressReader>) -> BoxFuture<'_, Result<Arc<dyn Ledger>>> {
    Box::pin(async move {
        if let Some(path) = url.strip_prefix("sqlite://") {
            let path = std::path::PathBuf::from(path);
            let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open(&path)).await;
            let sqlite = opened.map_err(|error| LedgerError::Internal(Box::new(error)))??;
            return Ok(Arc::new(Store(sqlite)) as Arc<dyn Ledger>);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Arc::new(Store(postgres::Postgres::open(url, reader).await?)) as Arc<dyn Ledger>);
        }
        Err(LedgerError::Internal("the database URL must start with sqlite://, postgres:// or postgresql://".into()))
    })
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

/// Opens the database at `url` as of one moment. Other processes read and commit meanwhile.
///
/// # Errors
///
/// If the database has another schema than this program or cannot be read.
pub async fn open_snapshot(url: &str) -> Result<Box<dyn DatabaseSnapshot>> {
    Ok(match sqlite_file(url) {
        Some(path) => Box::new(block_in_place(|| SqliteSnapshot::open(Path::new(path)))?),
        None => Box::new(PostgresSnapshot::open(url).await?),
    })
}

/// Begins to fill the database at `url`, which must be [`Empty`](RestoreTarget::Empty), with rows of the [`schema`]. What an interrupted load
/// has left at SQLite's path is replaced.
///
/// # Errors
///
/// If the database cannot be written or is not empty, or the program does not know the schema.
pub async fn begin_load(url: &str, schema: usize) -> Result<Box<dyn DatabaseLoad>> {
    Ok(match sqlite_file(url) {
        Some(path) => {
            let migrations = migrate::first(migrate::SQLITE, schema)?;
            Box::new(block_in_place(|| SqliteLoad::begin(Path::new(path), migrations))?)
        }
        None => Box::new(PostgresLoad::begin(url, migrate::first(migrate::POSTGRES, schema)?).await?),
    })
}

/// Returns the version of the schema of the rows in a [snapshot](open_snapshot).
pub fn schema() -> usize {
    migrate::newest()
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
        None => postgres::dump::target(url).await,
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
        None => postgres::dump::address(url),
    }
}

fn sqlite_file(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite://")
}
