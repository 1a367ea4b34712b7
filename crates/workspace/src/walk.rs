//! Entries of folders, read by handle: no path is walked twice, and no link is followed.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use model::{LogicalPath, PathRejected};
use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use crate::WorkspaceError;

/// So many bytes of entries are asked for at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// Where a walk is: what the caller calls the folder, and what it is where a link led there.
#[derive(Clone, Debug)]
pub(crate) struct WalkPath {
    pub(crate) shown: LogicalPath,
    pub(crate) real: Option<LogicalPath>,
}

impl WalkPath {
    /// The place `name` in this folder.
    pub(crate) fn child(&self, name: &str) -> Result<Self, PathRejected> {
        let real = self.real.as_ref().map(|real| real.child(name)).transpose()?;
        Ok(Self { shown: self.shown.child(name)?, real })
    }

    /// What it is, by whichever name.
    pub(crate) fn real(&self) -> &LogicalPath {
        self.real.as_ref().unwrap_or(&self.shown)
    }
}

/// Tells `tell` every entry of `dir` with its type, in the file system's order.
pub(crate) fn each_entry(
    dir: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    cancel: &AtomicBool,
    mut tell: impl FnMut(&CStr, FileType) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        if cancel.load(Ordering::Relaxed) {
            return Err(WorkspaceError::Cancelled);
        }
        let entry = match entry {
            // The folder went away under the walk.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let file_type = match entry.file_type() {
            // Some file systems leave it to `stat`.
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            },
            known => known,
        };
        tell(name, file_type)?;
    }
    Ok(())
}

/// A name as answers show it: bytes that are no UTF-8 are written `\xNN`.
pub(crate) fn escape(name: &CStr) -> String {
    use std::fmt::Write as _;
    let mut shown = String::with_capacity(name.count_bytes());
    for chunk in name.to_bytes().utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _infallible = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}
