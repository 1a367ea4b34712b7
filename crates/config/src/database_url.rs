//! The address of the database.

use async_recursion::async_recursion as boxed;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger::{AddressReader, Ledger};

use crate::error::ConfigError;
use crate::secret;
use crate::settings::Settings;

/// What a file of SQLite begins with.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The address of the database. `Debug` does not show it, since it may contain a password.
#[derive(Clone)]
pub struct DatabaseUrl {
    /// The address.
    pub url: String,
    /// The file that has it.
    pub file: Option<PathBuf>,
}

impl DatabaseUrl {
    /// Checks the address, which the settings have or name a file of; the default is an SQLite file in the data folder.
    ///
    /// # Errors
    ///
    /// Fails for other schemes than those of SQLite and PostgreSQL, and if the file cannot be read.
    pub fn check(settings: &Settings, data_dir: &Path) -> Result<Self, ConfigError> {
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
        let address = Self { url, file: file.map(Path::to_owned) };
        // Without the value, which may contain a password.
        match address.sqlite_file() {
            Some(path) => check_sqlite_file(path),
            None if ["postgres://", "postgresql://"].iter().any(|scheme| address.url.starts_with(scheme)) => {
                ledger::check_postgres_url(&address.url)
                    .map_err(|error| format!("not an address of PostgreSQL: {error}"))
            }
            None => Err("expected `sqlite://…` or `postgres://…`".to_owned()),
        }
        .map_err(|why| ConfigError(format!("--database-url: {why}")))?;
        Ok(address)
    }

    /// Opens the database for a service: when PostgreSQL refuses the password, the file is read again.
    ///
    /// # Errors
    ///
    /// As [`ledger::open`].
    #[boxed]
    pub async fn open(&self) -> ledger::Result<Arc<dyn Ledger>> {
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
    pub fn sqlite_file(&self) -> Option<&str> {
        self.url.strip_prefix("sqlite://").map(|rest| rest.split('?').next().unwrap_or(rest))
    }
}

/// Checks that a file is a database of SQLite, or can become one.
fn check_sqlite_file(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("the path of the file is missing: `sqlite:///FOLDER/FILE`".to_owned());
    }
    let mut start = [0; SQLITE_HEADER.len()];
    let read = File::open(path).and_then(|mut file| match file.metadata()? {
        found if found.is_dir() => Err(io::Error::from(ErrorKind::IsADirectory)),
        found if found.len() == 0 => Ok(()),
        _ => file.read_exact(&mut start),
    });
    match read {
        Ok(()) if start == [0; SQLITE_HEADER.len()] || start == *SQLITE_HEADER => Ok(()),
        Ok(()) => Err(format!("{path} is not a database of SQLite")),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(format!("{path} is not a database of SQLite")),
        Err(error) if matches!(error.kind(), ErrorKind::IsADirectory | ErrorKind::NotADirectory) => {
            Err(format!("{path}: {error}"))
        }
        // It is created, or its rights are given later.
        Err(_) => Ok(()),
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.split_once("://").map_or("…", |(scheme, _)| scheme))
    }
}
