//! How a call on a tree fails.

use model::Refusal;

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Something the caller can act on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk did not do its part. Never shown to a caller: it may hold a physical path.
    #[error("the file system failed")]
    Io(#[from] std::io::Error),
    /// The caller went away, or its deadline passed.
    #[error("the call was cancelled")]
    Cancelled,
}
