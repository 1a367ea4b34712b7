//! Errors of calls: refusals, which the caller can act on, and internal errors.

pub(crate) mod refusals;

use model::{Code, Refusal, RunId};

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A refusal, which the caller can act on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another node owns the run, or may own it. The call was not recorded here; the owner is asked, or
    /// [`not_routed`](Self::not_routed) is answered.
    #[error("the run {0} belongs to another node")]
    Moved(RunId),
    /// An internal error: logged once where it becomes an answer, and never shown to the caller.
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// Whether it is a refusal with `code`.
    pub fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }

    /// Says which of the two runs of a call a refusal is about.
    pub(crate) fn about(self, run: &RunId) -> Self {
        match self {
            Self::Refused(refusal) => {
                Self::Refused(Refusal { message: format!("`{run}`: {}", refusal.message), ..refusal })
            }
            Self::Moved(_) | Self::Internal(_) => self,
        }
    }

    /// Whether the same call can succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.code.is_retryable(),
            Self::Moved(_) | Self::Internal(_) => true,
        }
    }

    /// Returns the refusal for a caller whose call could not be passed to the node that owns its run.
    pub fn not_routed() -> Refusal {
        Refusal::new(
            Code::Unavailable,
            "the run is moving to another node; nothing was changed",
            "Retry the same call in a moment.",
        )
        .with_details(|details| details.retry_after_seconds = Some(1))
    }

    /// Returns the refusal that the database or the disk is full or unreachable.
    pub fn unavailable(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = cause, "unavailable");
        let database_full = cause.downcast_ref::<ledger::LedgerError>().is_some_and(ledger::LedgerError::is_disk_full);
        let kind = std::iter::successors(Some(cause), |error| error.source())
            .find_map(|error| error.downcast_ref::<std::io::Error>())
            .map(std::io::Error::kind);
        if database_full {
            return Self::Refused(disk_full("the database"));
        }
        if let Some(refusal) = kind.and_then(|kind| unwritable("the data folder", kind)) {
            return Self::Refused(refusal);
        }
        Self::Refused(Refusal::new(
            Code::Unavailable,
            "the database or the disk is unavailable; nothing was changed",
            "Retry the same call in a moment.",
        ))
    }

    /// Returns the refusal that the connection was lost during a commit, so that its outcome is uncertain.
    fn uncertain(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = cause, "the outcome of a commit is uncertain");
        Self::Refused(Refusal::new(
            Code::Unavailable,
            "the connection to the database was lost during the commit; the call took effect completely or not at all",
            "Retry the same call in a moment under the same toolCallId. If it had none, check the audit first.",
        ))
    }

    /// Returns the refusal that this instance must not write to the database any more.
    fn fenced(fence: ledger::Fence) -> Self {
        tracing::error!(
            error = &fence as &dyn std::error::Error,
            "this instance must not write to the database: all calls are refused"
        );
        let (message, hint) = match fence {
            ledger::Fence::TakenOver => (
                "another instance of the service has taken over the database; nothing was changed",
                "Send the call to the other instance. Operator: stop this instance.",
            ),
            ledger::Fence::HasNodes | ledger::Fence::Superseded => (
                "this process must not write to the database any more; nothing was changed",
                "Send the call to another node. Operator: stop this process.",
            ),
            ledger::Fence::LostCommits => (
                "the database has lost commits that were acknowledged; nothing was changed",
                "Operator: restore the newest state of the database, or restart the service to continue from this state.",
            ),
        };
        Self::Refused(Refusal::new(Code::Unavailable, message, hint))
    }

    /// Converts an internal error to the refusal that an earlier recorded change of the run cannot be applied yet.
    #[must_use]
    pub fn earlier_unapplied(self) -> Self {
        match self {
            error @ (Self::Refused(_) | Self::Moved(_)) => error,
            Self::Internal(cause) => {
                tracing::error!(
                    error = &*cause as &(dyn std::error::Error + 'static),
                    "a recorded change cannot be applied yet"
                );
                Self::Refused(Refusal::new(
                    Code::Unavailable,
                    "an earlier change of the run is recorded but cannot be applied to the disk now; this call changed nothing",
                    "Retry the same call in a moment: the earlier change is applied first.",
                ))
            }
        }
    }

    /// Converts any error but another refusal than `UNAVAILABLE` to the refusal that the change is recorded as `seqs` but cannot be
    /// applied yet. If the run has moved, its owner applies the change: the call must not be passed to it, which would make a change
    /// without an ID again.
    #[must_use]
    pub fn unapplied(self, seqs: &[u64]) -> Self {
        match self {
            Self::Refused(refusal) if refusal.code != Code::Unavailable => return Self::Refused(refusal),
            Self::Refused(_) | Self::Moved(_) => {}
            Self::Internal(cause) => {
                tracing::error!(
                    error = &*cause as &(dyn std::error::Error + 'static),
                    ?seqs,
                    "a recorded change cannot be applied yet"
                );
            }
        }
        Self::Refused(
            Refusal::new(
                Code::Unavailable,
                "the change is recorded but cannot be applied to the disk now; it is applied before any other call of the run",
                "Do not make the change again under another ID: retry under the same toolCallId, or get the call's record.",
            )
            .with_details(|details| details.seq = seqs.last().copied()),
        )
    }
}

/// Returns the refusal that the disk of `what` is full.
pub(crate) fn disk_full(what: &str) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the disk of {what} is full; nothing was changed"),
        "Every change is refused until an operator frees space on that disk or enlarges it. Reads go on.",
    )
}

/// Returns the refusal that nothing can be written to the disk of `what`, if an error of this kind says so.
pub fn unwritable(what: &str, kind: std::io::ErrorKind) -> Option<Refusal> {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match kind {
        StorageFull | QuotaExceeded => Some(disk_full(what)),
        ReadOnlyFilesystem => Some(Refusal::new(
            Code::Unavailable,
            format!("the disk of {what} is mounted read-only; nothing was changed"),
            "Every change is refused until an operator makes that disk writable. Reads go on.",
        )),
        _ => None,
    }
}

impl From<ledger::LedgerError> for CallError {
    fn from(error: ledger::LedgerError) -> Self {
        match error {
            ledger::LedgerError::Unavailable(_) => Self::unavailable(&error),
            ledger::LedgerError::InDoubt(_) => Self::uncertain(&error),
            ledger::LedgerError::Fenced(fence) => Self::fenced(fence),
            ledger::LedgerError::CreationRejected(failed) => Self::Refused(refusals::refusal_of(failed)),
            ledger::LedgerError::NoSuchRun => Self::Refused(refusals::run_not_found()),
            ledger::LedgerError::RunMoved(run) => Self::Moved(run),
            ledger::LedgerError::ObjectNotReserved(_) => Self::Refused(refusals::object_not_reserved()),
            ledger::LedgerError::AlreadyExists
            | ledger::LedgerError::NoSuchOperator
            | ledger::LedgerError::PositionMoved
            | ledger::LedgerError::Internal(_) => Self::Internal(Box::new(error)),
        }
    }
}

impl From<workspace::WorkspaceError> for CallError {
    fn from(error: workspace::WorkspaceError) -> Self {
        match error {
            workspace::WorkspaceError::Refused(refusal) => Self::Refused(refusal),
            workspace::WorkspaceError::Io(error) => error.into(),
            // The client has disconnected, or the service is shutting down.
            workspace::WorkspaceError::Cancelled => Self::unavailable(&error),
        }
    }
}

impl From<content::ObjectError> for CallError {
    fn from(error: content::ObjectError) -> Self {
        match error {
            content::ObjectError::Store(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the object store is unavailable");
                Self::Refused(Refusal::new(
                    Code::Unavailable,
                    "the object store is unavailable; nothing was changed",
                    "Retry the same call in a moment.",
                ))
            }
            content::ObjectError::Io(error) => error.into(),
            content::ObjectError::Claims(error) => match error.downcast::<ledger::LedgerError>() {
                Ok(error) => (*error).into(),
                Err(error) => Self::Internal(error),
            },
            content::ObjectError::BeingDeleted(_) => Self::Refused(refusals::object_not_reserved()),
            error => Self::Internal(Box::new(error)),
        }
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        // A blocking thread may have queried the ledger, whose error is then wrapped in this one.
        let error = match error.downcast::<ledger::LedgerError>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        let error = match error.downcast::<content::ObjectError>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        if let Some(cause) = error.get_ref()
            && cause.is::<workspace::DamagedBase>()
        {
            return Self::Refused(refusals::damaged_base(&error));
        }
        match error.kind() {
            StorageFull | QuotaExceeded | ReadOnlyFilesystem => Self::unavailable(&error),
            _ => Self::Internal(Box::new(error)),
        }
    }
}
