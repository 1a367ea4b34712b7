//! Where a walk is, and how answers show names.

use model::{LogicalPath, PathRejected};

use crate::byte_path::join;

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

    /// As the real path of [`child`](Self::child), for a name that need not be UTF-8.
    pub(crate) fn raw_child(&self, name: &[u8]) -> Vec<u8> {
        let folder = self.real();
        join(if folder.is_root() { b"" } else { folder.as_str().as_bytes() }, name)
    }

    pub(crate) fn real(&self) -> &LogicalPath {
        self.real.as_ref().unwrap_or(&self.shown)
    }
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
