//! The errors of calls on a tree, and the refusals that several calls share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Code, LogicalPath, Refusal};

use crate::git::GitError;
use crate::guard::GuardError;

/// Why a call on a tree failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The call was refused, for a reason that the caller can act on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk failed. Never shown to a caller, since it may contain a physical path.
    #[error("file system error")]
    Io(#[source] io::Error),
    /// The caller disconnected, or its deadline passed.
    #[error("the call was cancelled")]
    Cancelled,
}

impl From<io::Error> for WorkspaceError {
    fn from(error: io::Error) -> Self {
        // A reader of what a caller sent refuses it so.
        error.downcast().map_or_else(Self::Io, Self::Refused)
    }
}

impl From<rustix::io::Errno> for WorkspaceError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl From<GitError> for WorkspaceError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Cancelled => Self::Cancelled,
            GitError::Io(error) => Self::Io(error),
            error => Self::Io(io::Error::other(error)),
        }
    }
}

/// Tells work on another thread to end when it is dropped: nobody waits for that work any more.
#[derive(Debug, Default)]
pub struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag, which is set on drop.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns `Cancelled` once `cancel` is set.
pub(crate) fn check_cancelled(cancel: &AtomicBool) -> Result<(), WorkspaceError> {
    if cancel.load(Ordering::Relaxed) { Err(WorkspaceError::Cancelled) } else { Ok(()) }
}

impl GuardError {
    /// Returns `Ok` for every error that means that nothing usable is at the path.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub(crate) fn unless_disk(self) -> io::Result<()> {
        match self {
            Self::Io(error) => Err(error),
            Self::Rejected(_)
            | Self::Missing
            | Self::NotADirectory
            | Self::Special
            | Self::Unreadable
            | Self::Occupied => Ok(()),
        }
    }

    /// Converts it to the error for a caller that named `path`.
    pub(crate) fn at(self, path: &LogicalPath) -> WorkspaceError {
        match self {
            Self::Rejected(rule) => Refusal::path(path.as_str(), rule).into(),
            Self::Missing => Refusal::not_found(path).into(),
            Self::NotADirectory => not_a_directory(path).into(),
            Self::Special | Self::Occupied => not_a_file(path).into(),
            Self::Unreadable => unreadable(path).into(),
            Self::Io(error) => error.into(),
        }
    }
}

/// `path`, or a component of it, is not a folder.
pub(crate) fn not_a_directory(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotADirectory,
        format!("`{path}` is not a folder, or a component of it is not one"),
        "Read a file with read_file, or use list_dir on the parent folder to see what exists.",
    )
    .at(path)
}

/// A folder, FIFO, socket or device is at `path`.
pub(crate) fn not_a_file(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotAFile,
        format!("`{path}` is not a regular file"),
        "Use list_dir for folders. Special files are never opened.",
    )
    .at(path)
}

/// The file at `path` has `actual` bytes, more than the `limit` of the call.
pub(crate) fn file_too_large(path: &LogicalPath, limit: u64, actual: u64) -> Refusal {
    Refusal::new(
        Code::FileTooLarge,
        format!("`{path}` has {actual} bytes, more than the limit of {limit} for this call"),
        "Use search_text to find the relevant lines, then read_file with startLine and maxLines if the file is within its limit.",
    )
    .at(path)
    .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual)))
}

/// The file at `path` is not text.
pub(crate) fn unsupported_binary(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::UnsupportedBinary,
        format!("`{path}` is binary, and this call accepts only text"),
        "Leave the file as it is, or use the files endpoints, which transfer bytes.",
    )
    .at(path)
}

/// The permission bits of `path` do not let the service read it.
fn unreadable(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::PolicyDenied,
        format!("the permission bits of `{path}` do not let the service read it"),
        "Leave the file alone, or ask the operator to change its permissions.",
    )
    .at(path)
    .with_details(|details| details.reasons = vec!["permissionBits".to_owned()])
}
