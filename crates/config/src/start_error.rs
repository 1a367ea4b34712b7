//! Why a command of the program fails, as one line for the operator.

use std::error::Error;
use std::io;

use engine::operators::LoadError;
use ledger::LedgerError;

use crate::ConfigError;

/// Why the process ends without having done its work. The message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// A required resource is not available.
    #[error("{what}: {cause}")]
    Failed {
        /// The resource.
        what: String,
        /// Why it is not available.
        cause: String,
    },
}

impl StartError {
    /// The data folder cannot be used. If its file system lacks an operation, the setting is at fault.
    pub fn data_dir(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Unsupported => ConfigError(format!("--data-dir: {error}")).into(),
            _ => Self::failed("--data-dir", error),
        }
    }

    /// `what` is not available because of `error`.
    pub fn failed(what: impl Into<String>, error: &dyn Error) -> Self {
        Self::Failed { what: what.into(), cause: on_one_line(error) }
    }
}

impl From<LedgerError> for StartError {
    fn from(error: LedgerError) -> Self {
        Self::failed("the database", &error)
    }
}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Ledger(error) => error.into(),
            LoadError::DuplicateName(_) => ConfigError(error.to_string()).into(),
        }
    }
}

/// Returns the error with its causes on one line.
fn on_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
