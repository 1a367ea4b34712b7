//! Values, rows and failures of SQLite.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Row, ToSql, ffi};

use crate::backend::{Arg, Columns};
use crate::{LedgerError, Page, PageSize, Result};

const NAMES: [&str; 16] =
    ["$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$16"];

impl ToSql for Arg {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Flag(value) => ValueRef::Integer(i64::from(*value)),
            Self::Text(value) | Self::MaybeText(Some(value)) => ValueRef::Text(value.as_bytes()),
            Self::MaybeText(None) => ValueRef::Null,
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

impl Columns for Row<'_> {
    fn int(&self, column: usize) -> Result<i64> {
        self.get(column).map_err(failed)
    }

    fn flag(&self, column: usize) -> Result<bool> {
        self.get(column).map_err(failed)
    }

    fn text(&self, column: usize) -> Result<String> {
        self.get(column).map_err(failed)
    }

    fn maybe_text(&self, column: usize) -> Result<Option<String>> {
        self.get(column).map_err(failed)
    }

    fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        self.get(column).map_err(failed)
    }

    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>> {
        self.get(column).map_err(failed)
    }

    fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        self.get(column).map_err(failed)
    }
}

/// Carries one statement out; the answer is how many rows it changed.
pub(super) fn execute(connection: &Connection, sql: &str, args: &[Arg]) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, args)?;
    statement.raw_execute()
}

/// The rows of a query.
pub(super) fn fetch<T>(
    connection: &Connection,
    sql: &str,
    args: &[Arg],
    read: fn(&dyn Columns) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    bind(&mut statement, args).map_err(failed)?;
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The first rows of a query, until a page of `size` is full. The rows behind it are never read.
pub(super) fn fetch_page<T>(
    connection: &Connection,
    sql: &str,
    args: &[Arg],
    read: fn(&dyn Columns) -> Result<T>,
    size: PageSize,
) -> Result<Page<T>> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    bind(&mut statement, args).map_err(failed)?;
    let mut rows = statement.raw_query();
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(failed)? {
        if items.len() >= size.rows as usize || bytes >= size.bytes {
            return Ok(Page { items, more: true });
        }
        bytes += bytes_of(row).map_err(failed)?;
        items.push(read(row)?);
    }
    Ok(Page { items, more: false })
}

fn bytes_of(row: &Row<'_>) -> rusqlite::Result<u64> {
    let mut bytes = 0;
    for column in 0..row.as_ref().column_count() {
        if let ValueRef::Text(value) | ValueRef::Blob(value) = row.get_ref(column)? {
            bytes += value.len() as u64;
        }
    }
    Ok(bytes)
}

fn bind(statement: &mut rusqlite::Statement<'_>, args: &[Arg]) -> rusqlite::Result<()> {
    for (name, arg) in NAMES.iter().zip(args) {
        // To SQLite `$2` is a name, numbered as it occurs.
        if let Some(index) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(index, arg)?;
        }
    }
    Ok(())
}

/// A failure of the disk around the database.
pub(super) fn unavailable(error: std::io::Error) -> LedgerError {
    LedgerError::Unavailable(Box::new(error))
}

/// Sorts a failure of SQLite.
pub(super) fn failed(error: rusqlite::Error) -> LedgerError {
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

/// Whether the disk has no room for what was to be written.
pub(super) fn is_full(error: &LedgerError) -> bool {
    let LedgerError::Unavailable(cause) = error else { return false };
    match cause.downcast_ref::<rusqlite::Error>() {
        Some(rusqlite::Error::SqliteFailure(failure, _)) => {
            failure.code == ErrorCode::DiskFull || failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        }
        _ => {
            cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
        }
    }
}

/// Whether the kernel may have dropped what it was to write.
pub(super) fn is_lost_sync(error: &rusqlite::Error) -> bool {
    let codes = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC, ffi::SQLITE_IOERR_COMMIT_ATOMIC];
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if codes.contains(&failure.extended_code))
}
