//! A connection of the pool whose callers may stop waiting at any time.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};

use super::convert::failed;
use crate::Result;

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
