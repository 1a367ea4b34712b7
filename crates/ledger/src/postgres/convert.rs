//! Values, rows and failures of PostgreSQL.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Error, Postgres, Row as _};

use crate::backend::{Arg, Columns};
use crate::{LedgerError, Result};

/// Gives a query its values.
pub(super) fn bind<'q>(query: Query<'q, Postgres, PgArguments>, args: &[Arg]) -> Query<'q, Postgres, PgArguments> {
    args.iter().fold(query, |query, arg| match arg {
        Arg::Int(value) => query.bind(*value),
        Arg::Flag(value) => query.bind(*value),
        Arg::Text(value) => query.bind(value.clone()),
        Arg::MaybeText(value) => query.bind(value.clone()),
        Arg::Bytes(value) => query.bind(value.clone()),
    })
}

impl Columns for PgRow {
    fn int(&self, column: usize) -> Result<i64> {
        self.try_get(column).map_err(failed)
    }

    fn flag(&self, column: usize) -> Result<bool> {
        self.try_get(column).map_err(failed)
    }

    fn text(&self, column: usize) -> Result<String> {
        self.try_get(column).map_err(failed)
    }

    fn maybe_text(&self, column: usize) -> Result<Option<String>> {
        self.try_get(column).map_err(failed)
    }

    fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        self.try_get(column).map_err(failed)
    }

    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>> {
        self.try_get(column).map_err(failed)
    }

    fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        self.try_get(column).map_err(failed)
    }
}

/// Sorts a failure of PostgreSQL, or of the way to it.
pub(super) fn failed(error: Error) -> LedgerError {
    let away = match &error {
        Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed => true,
        Error::Database(database) if database.is_unique_violation() => return LedgerError::AlreadyExists,
        Error::Database(database) => database.code().is_some_and(|code| is_passing(&code)),
        _ => false,
    };
    if away { LedgerError::Unavailable(Box::new(error)) } else { LedgerError::Internal(Box::new(error)) }
}

/// Whether another try may succeed, by the class of the state: the way to the server, resources, locks and timeouts, the
/// operator's doing, the disk, a server that only reads.
fn is_passing(state: &str) -> bool {
    ["08", "53", "55", "57", "58", "40"].iter().any(|class| state.starts_with(class)) || state == "25006"
}
