//! Errors of the client commands, and their exit codes.

use std::io::{self, Write as _};
use std::process::ExitCode;

use model::{RefusalReader, hint_for};
use workspaced_client::{Error, FolderError, ShimError};

use crate::escape::{escape_line, escape_text};

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The arguments, or the settings of the client, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The request failed.
    #[error("{0}")]
    Client(#[from] Error),
    /// Something else failed.
    #[error("{0}")]
    Failed(String),
    /// Standard output failed.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl From<FolderError> for CliError {
    /// Adds what to do next, by the names of this program.
    fn from(error: FolderError) -> Self {
        let next = match error {
            FolderError::Service(error) => return Self::Client(error),
            FolderError::NoCheckout { .. } => {
                return Self::Failed(format!("{error}: begin with `workspaced checkout RUN DIR`"));
            }
            FolderError::NoShim { .. } => {
                "It is the program that is copied into the sandbox: install it beside this one, or name it with --shim."
                    .to_owned()
            }
            FolderError::Folder(ShimError::Conflicts(_)) => {
                "Push your changes first (with --merge, if both changed a file), or take the version of the run with \
                 `workspaced pull DIR --theirs PATH`."
                    .to_owned()
            }
            ref other => other.next_step(),
        };
        Self::Failed(if next.is_empty() { error.to_string() } else { format!("{error}\n{next}") })
    }
}

impl CliError {
    /// A local file that cannot be used.
    pub fn file(name: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{name}: {error}"))
    }

    /// Says what failed, and what to do where the service does not. `url` is the address that was called.
    fn text(&self, url: &str) -> String {
        match self {
            Self::Client(error @ Error::Transport(_)) => {
                let why = error.to_string();
                let why = why.rsplit_once(": ").map_or(&*why, |(_, why)| why);
                format!(
                    "no answer from the service at {url}: {why}\nCheck that it runs and that the address is right \
                     (`--url`, WORKSPACED_URL or `url` in ~/.config/workspaced/client.toml)."
                )
            }
            Self::Client(error @ Error::Protocol(_)) => format!(
                "{url} gave an {error}\nIs this the address of workspaced, and is the program as new as the service?"
            ),
            other => other.to_string(),
        }
    }

    /// Prints the error on standard error, and for programs the problem document on standard output. Returns the exit code.
    pub fn report(error: &Self, wants_json: bool, url: &str) -> ExitCode {
        if let Self::Output(error) = error
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // The reader has what it wanted.
            return ExitCode::SUCCESS;
        }
        let mut text = format!("workspaced: {}\n", escape_text(&error.text(url)));
        if let Self::Client(Error::Problem(problem)) = error {
            let hint = hint_for(&problem.hint, RefusalReader::CommandLine);
            if !hint.is_empty() {
                text += &escape_line(&hint);
                text.push('\n');
            }
            text.push_str(&escape_text(&problem.text));
            if wants_json {
                // Without a reader, the exit code remains.
                let _ = writeln!(io::stdout().lock(), "{}", problem.to_json());
            }
        }
        // If standard error is closed the exit code remains.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        ExitCode::from(match error {
            Self::Usage(_) | Self::Client(Error::Invalid(_)) => 2,
            Self::Client(Error::Transport(_)) => 3,
            Self::Client(_) | Self::Failed(_) | Self::Output(_) => 1,
        })
    }
}
