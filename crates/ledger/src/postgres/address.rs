//! The address of the server with the role and its password, which may change while the service runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions as _, Error, PgConnection};
use tokio::sync::Mutex;

use super::connection::{PooledConnection, failed};
use super::open;
use crate::{LedgerError, Result};

/// The server refuses the role or its password.
const REFUSED: [&str; 2] = ["28000", "28P01"];
/// The least time between two times at which the address is read.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the address of the database again. Blocks.
pub type AddressReader = Arc<dyn Fn() -> std::io::Result<String> + Send + Sync>;

/// How to connect.
pub(crate) struct PostgresAddress {
    /// The first address. Only the role and the password of later ones are used.
    first: PgConnectOptions,
    current: RwLock<PgConnectOptions>,
    reader: Option<AddressReader>,
    /// When the address was read last. Locked while it is read.
    read_at: Mutex<Option<Instant>>,
}

impl PostgresAddress {
    /// Parses `url` and connects once, to learn what the server's configuration requires.
    pub(crate) async fn open(url: &str, reader: Option<AddressReader>) -> Result<Self> {
        let first = parse(url)?;
        let current = with_required(first.clone()).await?;
        Ok(Self { first, current: RwLock::new(current), reader, read_at: Mutex::default() })
    }

    /// Returns the present options.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.current.read().clone()
    }

    /// Opens a connection. If the server refuses the password, reads it again.
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        let options = self.options();
        match open::connect(&options).await {
            Err(error) if has_refused(&error) && self.has_other_than(&options).await? => {
                open::connect(&self.options()).await.map_err(failed)
            }
            connected => connected.map_err(failed),
        }
    }

    /// Returns a connection of `pool`. If the server refuses the password of a new one, reads it again.
    pub(crate) async fn acquire(&self, pool: &PgPool) -> Result<PooledConnection> {
        let options = pool.connect_options();
        let acquired = match pool.acquire().await {
            Err(error) if has_refused(&error) && self.has_other_than(&options).await? => {
                pool.set_connect_options(self.options());
                pool.acquire().await
            }
            acquired => acquired,
        };
        acquired.map(PooledConnection::from).map_err(failed)
    }

    /// Returns whether there is another role or password than those that the server has `refused`. Reads the address for this, but
    /// not more often than once a second: the server may refuse each of many callers.
    async fn has_other_than(&self, refused: &PgConnectOptions) -> Result<bool> {
        let Some(reader) = self.reader.clone() else { return Ok(false) };
        let mut read_at = self.read_at.lock().await;
        if credentials(&self.options()) != credentials(refused) {
            return Ok(true);
        }
        if read_at.is_some_and(|at| at.elapsed() < READ_INTERVAL) {
            return Ok(false);
        }
        *read_at = Some(Instant::now());
        let read = tokio::task::spawn_blocking(move || {
            let url = reader().map_err(|error| LedgerError::Unavailable(Box::new(error)))?;
            parse(&url)
        });
        let read = read.await.map_err(|error| LedgerError::Internal(Box::new(error)))??;
        if server(&read) != server(&self.first) {
            let message = "the address of the database now names another one: restart the service to use it";
            return Err(LedgerError::Unavailable(message.into()));
        }
        if credentials(&read) == credentials(refused) {
            return Ok(false);
        }
        let (role, password) = credentials(&read);
        let mut next = self.first.clone().username(&role);
        if let Some(password) = &password {
            next = next.password(password);
        }
        // Also if the role is the same, its settings may have changed.
        let next = with_required(next).await?;
        *self.current.write() = next;
        tracing::info!("the database refused the password, which was read again");
        Ok(true)
    }
}

/// Returns the options of `url`, with the name of the database.
fn parse(url: &str) -> Result<PgConnectOptions> {
    let options = open::parse(url)?;
    // The server's default is the name of the role, which may change.
    let database = options.get_database().unwrap_or(options.get_username()).to_owned();
    Ok(options.database(&database))
}

/// Connects once, and returns `options` with those that the server's configuration requires for their role.
async fn with_required(options: PgConnectOptions) -> Result<PgConnectOptions> {
    let required = open::extra_options(&options).await?;
    Ok(options.options(required.iter().copied()))
}

/// Returns what names the database.
fn server(options: &PgConnectOptions) -> (&str, u16, Option<&std::path::PathBuf>, Option<&str>) {
    (options.get_host(), options.get_port(), options.get_socket(), options.get_database())
}

/// Returns the role and its password.
fn credentials(options: &PgConnectOptions) -> (String, Option<String>) {
    // Only a URL shows the password. The host and the role are replaced, since some cannot be written into one.
    let url = options.clone().host("localhost").username("role").to_url_lossy();
    let password = url.password().map(|password| percent_decode_str(password).decode_utf8_lossy().into_owned());
    (options.get_username().to_owned(), password)
}

fn has_refused(error: &Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| REFUSED.contains(&&*code))
}

#[cfg(test)]
mod tests;
