//! The address of the database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger::{AddressReader, Ledger};

use crate::config::error::ConfigError;
use crate::config::secret;
use crate::config::settings::Settings;

/// The address of the database. `Debug` does not show it, since it may contain a password.
#[derive(Clone)]
pub(crate) struct DatabaseUrl {
    pub(crate) url: String,
    /// The file that has it.
    pub(crate) file: Option<PathBuf>,
}

impl DatabaseUrl {
    /// Checks the address, which the settings have or name a file of; the default is an SQLite file in the data folder.
    ///
    /// # Errors
    ///
    /// Fails for other schemes than those of SQLite and PostgreSQL, and if the file cannot be read.
    pub(crate) fn check(settings: &Settings, data_dir: &Path) -> Result<Self, ConfigError> {
        let given = settings.database_url.clone().filter(|url| !url.is_empty());
        let file = settings.database_url_file.as_deref().filter(|file| !file.as_os_str().is_empty());
        let given = match (given, file) {
            (Some(_), Some(_)) => {
                let message = "--database-url and --database-url-file are both set: set only one of them";
                return Err(ConfigError(message.to_owned()));
            }
            (given, None) => given,
            (None, Some(file)) => Some(secret::read_file("--database-url-file", file)?),
        };
        let Some(url) = given else {
            return Ok(Self { url: format!("sqlite://{}", data_dir.join("workspaced.db").display()), file: None });
        };
        if ["sqlite://", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            Ok(Self { url, file: file.map(Path::to_owned) })
        } else {
            // Without the value, which may contain a password.
            Err(ConfigError("--database-url: expected `sqlite://…` or `postgres://…`".to_owned()))
        }
    }

    /// Opens the database for a service: when PostgreSQL refuses the password, the file is read again.
    ///
    /// # Errors
    ///
    /// As [`ledger::open`].
    pub(crate) async fn open(&self) -> ledger::Result<Arc<dyn Ledger>> {
        let (url, file) = (self.url.clone(), self.file.clone());
        let read: AddressReader = Arc::new(move || match &file {
            Some(file) => {
                secret::read_file("--database-url-file", file).map_err(|error| std::io::Error::other(error.to_string()))
            }
            // The password may be in the file of PGPASSFILE, which is read with the address.
            None => Ok(url.clone()),
        });
        ledger::open_with(&self.url, Some(read)).await
    }

    /// Returns the file of an SQLite database.
    pub(crate) fn sqlite_file(&self) -> Option<&str> {
        self.url.strip_prefix("sqlite://").map(|rest| rest.split('?').next().unwrap_or(rest))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.split_once("://").map_or("…", |(scheme, _)| scheme))
    }
}
