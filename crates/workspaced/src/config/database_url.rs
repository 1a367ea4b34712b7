//! The address of the database.

use std::fmt;
use std::path::Path;

use crate::config::error::ConfigError;

/// The address of the database. `Debug` does not show it, since it may contain a password.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(pub(crate) String);

impl DatabaseUrl {
    /// Checks the address; the default is an SQLite file in the data folder.
    ///
    /// # Errors
    ///
    /// Fails for other schemes than those of SQLite and PostgreSQL.
    pub(crate) fn check(given: Option<String>, data_dir: &Path) -> Result<Self, ConfigError> {
        let Some(url) = given.filter(|url| !url.is_empty()) else {
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
