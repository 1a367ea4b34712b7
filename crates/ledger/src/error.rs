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
            Self::Internal(cause) => Self::Internal(cause.to_string().into()),
        }
    }
}
