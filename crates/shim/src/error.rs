//! Why an operation on a folder failed.

use std::fmt::Write as _;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Why an operation on a folder failed.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The folder's files could not be read or written.
    #[error("{what}: {cause}")]
    Io {
        /// The file, or what was done.
        what: String,
        /// The system's error.
        cause: io::Error,
    },
    /// Files changed here and on the service. Nothing was written.
    #[error("{}", describe(.0))]
    Conflicts(Vec<LayerConflict>),
    /// What cannot be done with this folder, in one sentence.
    #[error("{0}")]
    Refused(String),
    /// The folder in which a command is to run is missing.
    #[error("{0}")]
    NoFolder(String),
    /// The sandbox ended the connection.
    #[error("the connection to the sandbox was lost: {0}")]
    Lost(String),
}

/// A file that a layer would overwrite although it was changed here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerConflict {
    /// The path.
    pub path: String,
    /// How the file here differs from what came from the run.
    pub why: String,
}

/// How many conflicts a message names.
const MAX_NAMED: usize = 20;

fn describe(conflicts: &[LayerConflict]) -> String {
    let mut text = format!("{} changed here and in the run; nothing was overwritten:", count_files(conflicts.len()));
    for conflict in conflicts.iter().take(MAX_NAMED) {
        // A string takes everything.
        let _ = write!(text, "\n  {} ({})", conflict.path, conflict.why);
    }
    if conflicts.len() > MAX_NAMED {
        let _ = write!(text, "\n  and {} more", conflicts.len() - MAX_NAMED);
    }
    text
}

fn count_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

impl ShimError {
    /// A file that failed.
    pub(crate) fn io(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), cause: cause.into() }
    }

    /// Returns a function that makes the error of `what`.
    pub(crate) fn of(what: &str) -> impl Fn(Errno) -> Self {
        move |errno| Self::io(what, errno)
    }

    pub(crate) fn lost(why: impl std::fmt::Display) -> Self {
        Self::Lost(why.to_string())
    }
}
