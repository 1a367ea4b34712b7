//! `--token-file`: a new token goes to a file that only its owner can read, and is not printed.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client writes a file of its caller")]

use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::error::CliError;

/// Where a new token goes.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TokenFileArgs {
    /// New file to which the token is written instead of being printed; `WORKSPACED_TOKEN_FILE` takes it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A new file, which is removed again if no token is written to it.
pub(super) struct TokenFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl TokenFileArgs {
    /// Creates the file, before there is a token that could be lost.
    ///
    /// # Errors
    ///
    /// If it exists, or cannot be created.
    pub(super) fn create(self) -> Result<Option<TokenFile>, CliError> {
        let Some(path) = self.token_file else { return Ok(None) };
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Some(TokenFile { path, file, is_written: false })),
            Err(error) => Err(CliError::file(&path.display().to_string(), &error)),
        }
    }
}

impl TokenFile {
    /// Writes the token, as one line.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn write(mut self, token: &str) -> Result<(), CliError> {
        let written = writeln!(self.file, "{token}").and_then(|()| self.file.sync_all());
        self.is_written = written.is_ok();
        written.map_err(|error: io::Error| CliError::file(&self.path.display().to_string(), &error))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.is_written {
            // The command has failed already, and says why.
            let _ = remove_file(&self.path);
        }
    }
}
