//! Conversions of values, rows and errors of SQLite.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, Row, ToSql, ffi};

use crate::statement::{Param, RowReader, impl_row_reader, to_count};
use crate::table::Rows;
use crate::{LedgerError, LedgerPage, PageSize, Result};

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
