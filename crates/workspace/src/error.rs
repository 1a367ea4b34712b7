//! How a call on a tree fails.

use std::io;

use model::{Code, LogicalPath, Refusal};

use crate::guard::GuardError;

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Something the caller can act on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk did not do its part. Never shown to a caller: it may hold a physical path.
    #[error("the file system failed")]
    Io(#[from] io::Error),
    /// The caller went away, or its deadline passed.
    #[error("the call was cancelled")]
    Cancelled,
}

impl From<rustix::io::Errno> for WorkspaceError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl GuardError {
    /// Nothing, for whoever takes what cannot be opened for what is not there; a disk that failed is no such thing.
    ///
    /// # Errors
    ///
    /// Where the disk failed.
    pub(crate) fn unless_disk(self) -> io::Result<()> {
        match self {
            Self::Io(error) => Err(error),
            Self::Rejected(_) | Self::Missing | Self::NotADirectory | Self::Special | Self::Unreadable => Ok(()),
        }
    }

    /// What the caller who named `path` is told.
    pub(crate) fn at(self, path: &LogicalPath) -> WorkspaceError {
        match self {
            Self::Rejected(rule) => Refusal::path(path.as_str(), rule).into(),
            Self::Missing => Refusal::not_found(path).into(),
            Self::NotADirectory => not_a_directory(path).into(),
            Self::Special => not_a_file(path).into(),
            Self::Unreadable => unreadable(path).into(),
            Self::Io(error) => error.into(),
        }
    }
}

/// `path`, or something on the way to it, is no folder.
pub(crate) fn not_a_directory(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotADirectory,
        format!("`{path}` is not a folder, or lies beneath something that is none"),
        "Use list_dir on the folder above it to see what is there.",
    )
    .at(path)
}

/// A folder, FIFO, socket or device is at `path`.
pub(crate) fn not_a_file(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotAFile,
        format!("`{path}` is not a regular file"),
        "Use list_dir for folders; other special files are never opened.",
    )
    .at(path)
}

/// The file at `path` has `actual` bytes, and the call takes `limit`.
pub(crate) fn file_too_large(path: &LogicalPath, limit: u64, actual: u64) -> Refusal {
    Refusal::new(
        Code::FileTooLarge,
        format!("`{path}` has {actual} bytes; this call takes at most {limit}"),
        "Use search_text to find the place, then read_file with startLine and maxLines if the file is within its limit.",
    )
    .at(path)
    .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual)))
}

/// The file at `path` is no text.
pub(crate) fn unsupported_binary(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::UnsupportedBinary,
        format!("`{path}` is binary, and this call takes text"),
        "Leave it as it is, or use the files plane, which serves bytes.",
    )
    .at(path)
}

/// Permission bits keep the service from reading `path`.
fn unreadable(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::PolicyDenied,
        format!("the permission bits of `{path}` do not let the service read it"),
        "Leave it alone, or ask the operator.",
    )
    .at(path)
    .with_details(|details| details.reasons = vec!["permissionBits".to_owned()])
}
