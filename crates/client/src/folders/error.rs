//! Why an operation on a checkout failed.

use std::io;

use shim::{LeftEntry, ShimError};

use crate::problem::Error;

/// How many files a message names.
const MAX_NAMED: usize = 5;

/// Why an operation on a checkout failed. [`FolderError::next_step`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The service refused a request, or did not answer it.
    #[error(transparent)]
    Service(#[from] Error),
    /// The folder or its sandbox failed, or files were changed there that a pull would overwrite.
    #[error(transparent)]
    Folder(#[from] ShimError),
    /// The folder was never filled from a run.
    #[error("{folder} is no checkout of a run")]
    NoCheckout {
        /// The folder.
        folder: String,
    },
    /// The folder has the files of another run.
    #[error("{folder} is a checkout of the run {found}")]
    OtherRun {
        /// The folder.
        folder: String,
        /// The run that it names.
        found: String,
    },
    /// The folder names another record than the one that this checkout has brought it to.
    #[error("{folder} says that it is at another record than the one of its last pull")]
    Moved {
        /// The folder.
        folder: String,
    },
    /// None of the changes could be sent.
    #[error("nothing was sent: {}", named(left))]
    NothingSent {
        /// The changes, with why.
        left: Vec<LeftEntry>,
    },
    /// Files change again and again while they are read.
    #[error("too many files change while they are read")]
    Unsteady,
    /// An address of a sandbox that cannot be used.
    #[error("{0}")]
    Address(String),
    /// A program that holds the pipe to the sandbox, or a file on the way, failed.
    #[error("{what}: {cause}")]
    Io {
        /// The file or the program.
        what: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The program that is copied into sandboxes cannot be read.
    #[error("{file}: {cause}")]
    NoShim {
        /// Where it was expected.
        file: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The shim did not start in the sandbox.
    #[error("no shell and no shim started in {sandbox}: {why}")]
    NotStarted {
        /// The sandbox.
        sandbox: String,
        /// A command that must work in a shell of this machine.
        check: String,
        /// What happened.
        why: String,
    },
    /// The shim could not be copied into the sandbox.
    #[error("the shim could not be copied into {sandbox}: {why}")]
    NotCopied {
        /// The sandbox.
        sandbox: String,
        /// What happened.
        why: String,
    },
}

impl FolderError {
    /// Returns what to do next, in one sentence; nothing where the error itself says it.
    pub fn next_step(&self) -> String {
        match self {
            Self::Service(error) => error.problem().map(|problem| problem.hint.clone()).unwrap_or_default(),
            Self::Folder(ShimError::Conflicts(_)) => {
                "Push your changes first (merging, if both changed a file), or take the version of the run.".to_owned()
            }
            Self::Folder(ShimError::Lost(_)) => {
                "Check that it runs and has free disk and memory, and open the checkout again: the run is as it was."
                    .to_owned()
            }
            Self::NoCheckout { .. } => "Pull into it first.".to_owned(),
            Self::OtherRun { .. } => "Use another folder, or the run of this one.".to_owned(),
            Self::Moved { .. } => {
                "A command or another program has changed its index: check the run out into a new folder.".to_owned()
            }
            Self::NothingSent { .. } | Self::Unsteady => "Try again when nothing writes there.".to_owned(),
            Self::NoShim { .. } => {
                "It is the program that is copied into the sandbox: install it beside this one, or name its file."
                    .to_owned()
            }
            Self::NotStarted { check, .. } => {
                format!("Check that `{check}` works and that its processor is the one of this machine.")
            }
            Self::NotCopied { .. } => {
                "Check that the sandbox has `cat`, `mkdir`, `chmod`, `mv` and a folder that can be written and has \
                                       programs, and name that folder."
                    .to_owned()
            }
            Self::Folder(_) | Self::Address(_) | Self::Io { .. } => String::new(),
        }
    }

    pub(crate) fn io(what: impl Into<String>, cause: io::Error) -> Self {
        Self::Io { what: what.into(), cause }
    }
}

fn named(left: &[LeftEntry]) -> String {
    let mut text: Vec<_> = left.iter().take(MAX_NAMED).map(|entry| format!("{} ({})", entry.path, entry.why)).collect();
    let more = left.len().saturating_sub(MAX_NAMED);
    text.extend((more > 0).then(|| format!("{more} more")));
    text.join(", ")
}
