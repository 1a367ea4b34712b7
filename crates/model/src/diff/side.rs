//! One side of a diff.

use crate::LogicalPath;

/// One side of a diff.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The file's path.
    pub path: &'a LogicalPath,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its permission bits, such as `0o644`; a diff shows only whether the file is executable.
    pub mode: u32,
}
