//! The address of the server with the password, which may change while the service runs.

use parking_lot::RwLock;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{Error, PgConnection, Postgres};

use super::convert::failed;
use super::open;
use crate::{AddressReader, LedgerError, Result};

/// The server refuses the role or its password.
const REFUSED: [&str; 2] = ["28000", "28P01"];

/// How to connect.
pub(crate) struct Address {
    current: RwLock<PgConnectOptions>,
    /// Options that are set in addition to those of the address.
    extra: &'static [(&'static str, &'static str)],
    reader: Option<AddressReader>,
}

impl Address {
    /// Parses `url` and connects once, to learn what the server's configuration requires.
    pub(crate) async fn open(url: &str, reader: Option<AddressReader>) -> Result<Self> {
        let options = open::parse(url)?;
        let extra = open::extra_options(&options).await?;
        Ok(Self { current: RwLock::new(options.options(extra.iter().copied())), extra, reader })
    }

    /// Returns the present options.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.current.read().clone()
    }

    /// Opens a connection. If the server refuses the password, reads it again.
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        match open::connect(&self.options()).await {
            Err(error) if self.reader.is_some() && has_refused(&error) => {
                self.read_again().await?;
                open::connect(&self.options()).await.map_err(failed)
            }
            connected => connected.map_err(failed),
        }
    }

    /// Returns a connection of `pool`. If the server refuses the password of a new one, reads it again.
    pub(crate) async fn acquire(&self, pool: &PgPool) -> Result<sqlx::pool::PoolConnection<Postgres>> {
        match pool.acquire().await {
            Err(error) if self.reader.is_some() && has_refused(&error) => {
                self.read_again().await?;
                pool.set_connect_options(self.options());
                pool.acquire().await.map_err(failed)
            }
            acquired => acquired.map_err(failed),
        }
    }

    async fn read_again(&self) -> Result<()> {
        let Some(reader) = self.reader.clone() else { return Ok(()) };
        let read = tokio::task::spawn_blocking(move || {
            let url = reader().map_err(|error| LedgerError::Unavailable(Box::new(error)))?;
            open::parse(&url)
        });
        let new = read.await.map_err(|error| LedgerError::Internal(Box::new(error)))??;
        let mut current = self.current.write();
        let server = |options: &PgConnectOptions| {
            let database = options.get_database().map(str::to_owned);
            (options.get_host().to_owned(), options.get_port(), options.get_socket().cloned(), database)
        };
        if server(&new) != server(&current) {
            let message = "the address of the database now names another one: restart the service to use it";
            return Err(LedgerError::Unavailable(message.into()));
        }
        *current = new.options(self.extra.iter().copied());
        drop(current);
        tracing::info!("the database refused the password, which was read again");
        Ok(())
    }
}

fn has_refused(error: &Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| REFUSED.contains(&&*code))
}
