//! How a call fails: by a refusal that the caller can act on, or by a fault of ours.

pub mod refusals;

use model::{Code, Refusal};

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The caller can act on it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A fault of ours: logged once where it becomes an answer, and never shown.
    #[error("internal fault")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// Whether it is a refusal with `code`.
    pub fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }

    /// Whether it passes by itself, so that the same call may be tried again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.code.is_retryable(),
            Self::Internal(_) => true,
        }
    }

    /// Store or disk full or away: nothing was changed, try again.
    pub fn unavailable(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = cause, "unavailable");
        Self::Refused(Refusal::new(
            Code::Unavailable,
            "the store or the disk cannot take the call now; nothing was changed",
            "Try the same call again in a moment.",
        ))
    }

    /// The store went away while it committed: nobody knows yet whether the call was recorded.
    fn in_doubt(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = cause, "a commit is in doubt");
        Self::Refused(Refusal::new(
            Code::Unavailable,
            "the store went away before it said whether the call is recorded; it has happened as a whole or not at all",
            "Send the same call again in a moment, under the same toolCallId if it had one; else look at the audit first.",
        ))
    }

    /// The database is not this instance's to write to.
    fn fenced(fence: ledger::Fence) -> Self {
        tracing::error!(error = &fence as &dyn std::error::Error, "nothing is recorded any more");
        let (message, hint) = match fence {
            ledger::Fence::TakenOver => (
                "another instance of the service has taken over the database of this one; nothing was changed",
                "Send the call to the other instance. Operator: stop this one.",
            ),
            ledger::Fence::WentBackwards => (
                "the database has lost commits that were acknowledged; nothing was changed",
                "Operator: put the newest state of the database back, or restart the service to go on from this one.",
            ),
        };
        Self::Refused(Refusal::new(Code::Unavailable, message, hint))
    }

    /// Returns the refusal that an earlier recorded change of the run cannot be finished yet. A refusal stays as it is.
    #[must_use]
    pub fn unsettled(self) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(refusal),
            Self::Internal(cause) => {
                tracing::error!(error = &*cause as &(dyn std::error::Error + 'static), "a change is unfinished");
                Self::Refused(Refusal::new(
                    Code::Unavailable,
                    "an earlier change of the run is recorded, and the disk cannot take all of it now; nothing else was done",
                    "Try the same call again in a moment: the change is finished first.",
                ))
            }
        }
    }

    /// Returns the refusal that the change is recorded as `seqs`, but cannot be applied yet. A refusal stays as it is.
    #[must_use]
    pub fn unfinished(self, seqs: &[u64]) -> Self {
        match self {
            Self::Refused(refusal) if refusal.code != Code::Unavailable => return Self::Refused(refusal),
            Self::Refused(_) => {}
            Self::Internal(cause) => {
                tracing::error!(error = &*cause as &(dyn std::error::Error + 'static), ?seqs, "a change is unfinished");
            }
        }
        Self::Refused(
            Refusal::new(
                Code::Unavailable,
                "the change is recorded, but the disk cannot take all of it now; it is finished before any other call of the run",
                "Do not make the change anew: send the same call again under the same toolCallId, or look at the call's record.",
            )
            .with_details(|details| details.seq = seqs.last().copied()),
        )
    }
}

impl From<ledger::LedgerError> for CallError {
    fn from(error: ledger::LedgerError) -> Self {
        match error {
            ledger::LedgerError::Unavailable(_) => Self::unavailable(&error),
            ledger::LedgerError::InDoubt(_) => Self::in_doubt(&error),
            ledger::LedgerError::Fenced(fence) => Self::fenced(fence),
            ledger::LedgerError::NoSuchRun => Self::Refused(refusals::run_not_found()),
            ledger::LedgerError::AlreadyExists | ledger::LedgerError::Internal(_) => Self::Internal(Box::new(error)),
        }
    }
}

impl From<workspace::WorkspaceError> for CallError {
    fn from(fault: workspace::WorkspaceError) -> Self {
        match fault {
            workspace::WorkspaceError::Refused(refusal) => Self::Refused(refusal),
            workspace::WorkspaceError::Io(error) => error.into(),
            workspace::WorkspaceError::Cancelled => Self::Internal(Box::new(fault)),
        }
    }
}

impl From<workspace::ImportError> for CallError {
    fn from(fault: workspace::ImportError) -> Self {
        match fault {
            workspace::ImportError::Refused(refusal) => Self::Refused(refusal),
            workspace::ImportError::Io(error) => error.into(),
            // Whoever asked has gone away, or the service is about to end.
            workspace::ImportError::Cancelled => Self::unavailable(&fault),
        }
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        // A thread that blocks may have asked the ledger.
        let error = match error.downcast::<ledger::LedgerError>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        match error.kind() {
            StorageFull | QuotaExceeded | ReadOnlyFilesystem => Self::unavailable(&error),
            _ => Self::Internal(Box::new(error)),
        }
    }
}
