//! How a call fails: by a refusal that the caller can act on, or by a fault of ours.

use model::{Code, Refusal};

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The caller can act on it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A fault of ours: logged once where it becomes an answer, and never shown.
    #[error("internal fault")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// Whether it is a refusal with `code`.
    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }

    /// Whether it passes by itself, so that the same call may be tried again.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.code.passes(),
            Self::Internal(_) => true,
        }
    }

    /// Store or disk full or away: nothing was changed, try again.
    pub(crate) fn unavailable(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = cause, "unavailable");
        Self::Refused(Refusal::new(
            Code::Unavailable,
            "the store or the disk cannot take the call now; nothing was changed",
            "Try the same call again in a moment.",
        ))
    }
}

impl From<ledger::LedgerError> for CallError {
    fn from(error: ledger::LedgerError) -> Self {
        match error {
            ledger::LedgerError::Unavailable(_) => Self::unavailable(&error),
            ledger::LedgerError::NoSuchRun => Self::Refused(crate::service::run_not_found()),
            ledger::LedgerError::AlreadyExists | ledger::LedgerError::Internal(_) => Self::Internal(Box::new(error)),
        }
    }
}

impl From<workspace::Fault> for CallError {
    fn from(fault: workspace::Fault) -> Self {
        match fault {
            workspace::Fault::Refused(refusal) => Self::Refused(refusal),
            workspace::Fault::Io(error) => error.into(),
            workspace::Fault::Cancelled => Self::Internal(Box::new(fault)),
        }
    }
}

impl From<workspace::ImportFault> for CallError {
    fn from(fault: workspace::ImportFault) -> Self {
        match fault {
            workspace::ImportFault::Refused(refusal) => Self::Refused(refusal),
            workspace::ImportFault::Io(error) => error.into(),
            // Whoever asked has gone away, or the service is about to end.
            workspace::ImportFault::Cancelled => Self::unavailable(&fault),
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
