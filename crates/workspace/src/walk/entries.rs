//! Reading the entries of a folder by its handle: no path is resolved twice, and no link is followed.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, PathRejected};
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::WorkspaceError;
use crate::dir::{is_dot, known_type};
use crate::error::check_cancelled;

/// How many bytes of entries the kernel is asked for at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// The position of a walk: the folder's path as the caller named it, and its real path if that leads through a link.
#[derive(Clone, Debug)]
pub(crate) struct WalkPath {
    pub(crate) shown: LogicalPath,
    pub(crate) real: Option<LogicalPath>,
}

impl WalkPath {
    /// Returns the path of the entry `name` in this folder.
    pub(crate) fn child(&self, name: &str) -> Result<Self, PathRejected> {
        let real = self.real.as_ref().map(|real| real.child(name)).transpose()?;
        Ok(Self { shown: self.shown.child(name)?, real })
    }

    pub(crate) fn real(&self) -> &LogicalPath {
        self.real.as_ref().unwrap_or(&self.shown)
    }
}

/// Calls `visit` for every entry of `dir` with its type, in the file system's order.
pub(crate) fn each_entry(
    dir: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    cancel: &AtomicBool,
    mut visit: impl FnMut(&CStr, FileType) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        check_cancelled(cancel)?;
        let entry = match entry {
            // The folder was removed during the walk.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        if let Some(file_type) = known_type(dir, name, entry.file_type())? {
            visit(name, file_type)?;
        }
    }
    Ok(())
}

/// Returns a name as answers show it: bytes that are not UTF-8 are written `\xNN`.
pub(crate) fn escape(name: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _infallible = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}
