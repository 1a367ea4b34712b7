//! The errors of the ledger.

use model::{RunId, RunState};
use rusqlite::{ErrorCode, ffi};

/// The error of a method, which has stored nothing unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A row with the same key exists.
    #[error("a row with this key already exists")]
    AlreadyExists,
    /// The run does not exist.
    #[error("the run does not exist")]
    NoSuchRun,
    /// This node does not own the run under the epoch that was named. Nothing else of the same commit is affected.
    #[error("the run {0} belongs to another node")]
    RunMoved(RunId),
    /// An object that an entry refers to is not reserved any more: it was deleted, or is being deleted. Nothing else of the same commit
    /// is affected.
    #[error("the object {0} is not reserved")]
    ObjectNotReserved(String),
    /// No operator of that name is valid.
    #[error("no operator of this name is valid")]
    NoSuchOperator,
    /// Another process has made the deliveries from the position on that was read.
    #[error("the position of the webhook has changed")]
    PositionMoved,
    /// A precondition of the first record of a new run does not hold.
    #[error("a precondition of the creation of the run does not hold")]
    CreationRejected(FailedPrecondition),
    /// The database is full, unreachable, locked or too slow. A retry may succeed.
    #[error("the database is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was lost during the commit, which either took effect completely or not at all. To learn which, call
    /// [`Ledger::settled_run`](crate::Ledger::settled_run).
    #[error("connection lost during commit: it either took effect completely or not at all")]
    InDoubt(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// This process must not write to the database any longer.
    #[error("{0}")]
    Fenced(Fence),
    /// A bug of this program, or a damaged database.
    #[error("internal error of the database")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The precondition that did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedPrecondition {
    /// The run is in a state that accepts no mutations.
    Run(RunState),
    /// The caller's token is revoked or expired.
    Token,
}

/// The disk of the database is full: what is left of an error that several callers share.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct DatabaseFull(String);

impl LedgerError {
    /// The error that the disk of the database is full.
    pub(crate) fn database_full(why: &str) -> Self {
        Self::Unavailable(Box::new(DatabaseFull(why.to_owned())))
    }

    /// Whether the disk of the database is full. A retry fails until somebody frees space.
    pub fn is_disk_full(&self) -> bool {
        let Self::Unavailable(cause) = self else { return false };
        let is_server_full = |error: &sqlx::Error| {
            // PostgreSQL: disk_full.
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() == Some("53100")
        };
        cause.downcast_ref::<DatabaseFull>().is_some()
            || cause.downcast_ref::<sqlx::Error>().is_some_and(is_server_full)
            || cause.downcast_ref::<rusqlite::Error>().is_some_and(is_sqlite_full)
            || cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
    }

    /// Returns a copy for another caller that waited for the same commit.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::AlreadyExists => Self::AlreadyExists,
            Self::NoSuchRun => Self::NoSuchRun,
            Self::NoSuchOperator => Self::NoSuchOperator,
            Self::RunMoved(run) => Self::RunMoved(run.clone()),
            Self::PositionMoved => Self::PositionMoved,
            Self::ObjectNotReserved(object) => Self::ObjectNotReserved(object.clone()),
            Self::CreationRejected(failed) => Self::CreationRejected(*failed),
            Self::Unavailable(cause) if self.is_disk_full() => {
                Self::Unavailable(Box::new(DatabaseFull(cause.to_string())))
            }
            Self::Unavailable(cause) => Self::Unavailable(cause.to_string().into()),
            Self::InDoubt(cause) => Self::InDoubt(cause.to_string().into()),
            Self::Fenced(fence) => Self::Fenced(*fence),
            Self::Internal(cause) => Self::Internal(cause.to_string().into()),
        }
    }
}

/// Returns whether the file system of an SQLite database is full.
fn is_sqlite_full(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(failure, _) = error else { return false };
    failure.code == ErrorCode::DiskFull || failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE
}

/// Why this process must not write to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fence {
    /// Another instance of the service has taken over the database.
    #[error("another instance of the service has taken over the database: stop this one")]
    TakenOver,
    /// Nodes use the database, as which this process has not joined.
    #[error("nodes of a cluster use the database: start this process as one of them, or stop them first")]
    HasNodes,
    /// A newer process has joined under the name of this node.
    #[error("a newer process of this node has started: stop this one")]
    Superseded,
    /// The database lacks commits that this process has acknowledged.
    #[error("the database has lost commits that were acknowledged: it was restored or failed over to an older state")]
    LostCommits,
}
