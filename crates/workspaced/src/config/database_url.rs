//! The address of the database.

use std::fmt;
use std::path::Path;

use crate::config::error::ConfigError;
use crate::config::secret;
use crate::config::settings::Settings;

/// The address of the database. `Debug` does not show it, since it may contain a password.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(pub(crate) String);

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
            return Ok(Self(format!("sqlite://{}", data_dir.join("workspaced.db").display())));
        };
        if ["sqlite://", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            Ok(Self(url))
        } else {
            // Without the value, which may contain a password.
            Err(ConfigError("--database-url: expected `sqlite://…` or `postgres://…`".to_owned()))
        }
    }

    /// Returns the file of an SQLite database.
    pub(crate) fn sqlite_file(&self) -> Option<&str> {
        self.0.strip_prefix("sqlite://").map(|rest| rest.split('?').next().unwrap_or(rest))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split_once("://").map_or("…", |(scheme, _)| scheme))
    }
}
