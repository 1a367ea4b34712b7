//! How the ledger fails.

/// A method that did not succeed; nothing of it is stored, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is one of that name already.
    #[error("it exists already")]
    AlreadyExists,
    /// The run does not exist.
    #[error("there is no such run")]
    NoSuchRun,
    /// The store is full, away, locked or too slow: another try may succeed.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store went away while it committed: all of it is stored, or nothing. Whoever has to know looks.
    #[error("the store went away before it told the outcome")]
    InDoubt(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database is not the one that this process has written to so far, or not this process's any more: nothing is
    /// committed to it.
    #[error("{0}")]
    Fenced(Fence),
    /// A fault of ours or a damaged store.
    #[error("the store failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl LedgerError {
    /// The same failure for another who waits.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::AlreadyExists => Self::AlreadyExists,
            Self::NoSuchRun => Self::NoSuchRun,
            Self::Unavailable(cause) => Self::Unavailable(cause.to_string().into()),
            Self::InDoubt(cause) => Self::InDoubt(cause.to_string().into()),
            Self::Fenced(fence) => Self::Fenced(*fence),
            Self::Internal(cause) => Self::Internal(cause.to_string().into()),
        }
    }
}

/// Why a database is not written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fence {
    /// Another instance of the service writes to it now.
    #[error("another instance of the service has taken over the database: stop this one")]
    TakenOver,
    /// It holds less than this process has committed to it.
    #[error("the database has lost commits that were acknowledged: it was restored or failed over to an older state")]
    WentBackwards,
}
