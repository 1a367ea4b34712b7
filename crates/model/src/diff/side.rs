//! One side of a diff.

use crate::{LogicalPath, is_link_mode};

/// One side of a diff.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The file's path.
    pub path: &'a LogicalPath,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its permission bits, such as `0o644`, of which a diff shows only whether the file is executable; or
    /// [`LINK_MODE`](crate::LINK_MODE) for a symbolic link, whose bytes are its target.
    pub mode: u32,
}

impl Side<'_> {
    pub(crate) fn is_link(&self) -> bool {
        is_link_mode(self.mode)
    }
}
