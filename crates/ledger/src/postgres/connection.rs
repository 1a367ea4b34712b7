//! A connection of the pool, whose callers may stop waiting at any time, and the conversions of values, rows and errors.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Error, PgConnection, Postgres, Row as _, Transaction};

use crate::statement::{Param, RowReader, Rows, ValueType, impl_row_reader};
use crate::{LedgerError, Result};

/// A connection of the pool. Returned to it on drop, unless it may be in a transaction that nobody will end.
pub(crate) struct PooledConnection {
    connection: PoolConnection<Postgres>,
    /// Set while a transaction begins. If the caller does not wait until it has begun, `sqlx` does not know of the transaction: the
    /// next user of the connection would be in it, and what that one writes would be lost without an error.
    is_beginning: bool,
}

impl PooledConnection {
    /// Begins a transaction, by the statement `begin`. It is rolled back if it is dropped.
    ///
    /// # Errors
    ///
    /// If the server or the connection fails.
    pub(crate) async fn begin(&mut self, begin: &'static str) -> Result<Transaction<'_, Postgres>> {
        self.is_beginning = true;
        let transaction = self.connection.begin_with(begin).await.map_err(failed)?;
        self.is_beginning = false;
        Ok(transaction)
    }
}

impl From<PoolConnection<Postgres>> for PooledConnection {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, is_beginning: false }
    }
}

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self.is_beginning {
            self.connection.close_on_drop();
        }
    }
}

impl_row_reader!(PgRow, try_get, failed);

/// Binds the parameters of a query.
pub(crate) fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    params: Vec<Param<'static>>,
) -> Query<'q, Postgres, PgArguments> {
    params.into_iter().fold(query, |query, param| match param {
        Param::Null => query.bind(None::<String>),
        Param::Int(value) => query.bind(value),
        Param::Bool(value) => query.bind(value),
        Param::Text(value) => query.bind(value.into_owned()),
        Param::Bytes(value) => query.bind(value.into_owned()),
    })
}

/// Writes the rows of several tables with one statement.
pub(crate) async fn write_rows(connection: &mut PgConnection, tables: &[&Rows<'_>]) -> sqlx::Result<()> {
    let (mut sql, mut first) = (String::new(), 1);
    for (number, rows) in tables.iter().enumerate() {
        let statement = rows.table.array_sql(first);
        first += rows.table.columns.len();
        // The last statement is the main query, the others are its data-modifying `WITH` clauses.
        sql = match (number, number + 1 == tables.len()) {
            (0, true) => statement,
            (0, false) => format!("WITH t0 AS ({statement})"),
            (_, true) => format!("{sql} {statement}"),
            (_, false) => format!("{sql}, t{number} AS ({statement})"),
        };
    }
    let query = tables.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, rows| bind_columns(query, rows));
    query.execute(connection).await.map(drop)
}

/// Binds one array per column.
fn bind_columns<'q>(mut query: Query<'q, Postgres, PgArguments>, rows: &Rows<'_>) -> Query<'q, Postgres, PgArguments> {
    for (index, column) in rows.table.columns.iter().enumerate() {
        let values = rows.column(index);
        query = match column.value_type {
            ValueType::Int => query.bind(values.map(Param::as_int).collect::<Vec<_>>()),
            ValueType::Bool => query.bind(values.map(Param::as_bool).collect::<Vec<_>>()),
            ValueType::Text | ValueType::RunId => query.bind(values.map(Param::as_text).collect::<Vec<_>>()),
            ValueType::Bytes => query.bind(values.map(Param::as_bytes).collect::<Vec<_>>()),
        };
    }
    query
}

/// Converts an error of PostgreSQL, or of the connection to it.
pub(crate) fn failed(error: Error) -> LedgerError {
    let unavailable = match &error {
        // An end without an answer is an error of the protocol: a proxy closes connections to a server that is away.
        Error::Io(_)
        | Error::Tls(_)
        | Error::Protocol(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed => true,
        Error::Database(database) if database.is_unique_violation() => return LedgerError::AlreadyExists,
        Error::Database(database) => database.code().is_some_and(|code| is_transient(&code)),
        _ => false,
    };
    if unavailable { LedgerError::Unavailable(Box::new(error)) } else { LedgerError::Internal(Box::new(error)) }
}

/// Returns whether a transaction failed only because of a concurrent one: a deadlock, or a failure to serialise. The server has
/// rolled it back, and it can be repeated at once.
pub(crate) fn is_conflict(error: &LedgerError) -> bool {
    let LedgerError::Unavailable(cause) = error else { return false };
    let Some(Error::Database(database)) = cause.downcast_ref() else { return false };
    database.code().is_some_and(|code| code == "40P01" || code == "40001")
}

/// Returns whether a retry may succeed, by the class of the SQLSTATE: connection, a password that is being changed, resources, locks and timeouts, operator
/// intervention, disk, rollback; or a read-only server, or a transaction whose process was paused for too long.
fn is_transient(sqlstate: &str) -> bool {
    let classes = ["08", "28", "53", "55", "57", "58", "40"];
    classes.iter().any(|class| sqlstate.starts_with(class)) || ["25006", "25P03", "25P04"].contains(&sqlstate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_was_ended_because_its_process_was_paused_says_nothing_about_the_data() {
        // idle_in_transaction_session_timeout, transaction_timeout, read_only_sql_transaction, not_null_violation.
        let found = ["25P03", "25P04", "25006", "23502"].map(is_transient);
        assert_eq!(found, [true, true, true, false]);
    }

    #[test]
    fn a_connection_that_is_closed_before_it_answers_is_unavailable() {
        let error = failed(Error::Protocol("unexpected response from SSLRequest: 0x00".to_owned()));
        assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
    }
}
