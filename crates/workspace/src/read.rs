//! Whole files, read through the guard and the judge.

use model::{FileKind, LogicalPath, Rules, Sha256};

use crate::{Fault, Tree};

/// A file that was read.
#[derive(Debug)]
pub struct FileRead {
    /// As the caller named it.
    pub path: LogicalPath,
    /// Where it led, if a symbolic link was on the way.
    pub real_path: Option<LogicalPath>,
    /// Its kind.
    pub kind: FileKind,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Hash of `bytes`.
    pub sha256: Sha256,
    /// Its permission bits.
    pub mode: u32,
}

impl Tree {
    /// Reads the text file at `path`, at most `max_bytes` of it.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`,
    /// `UNSUPPORTED_BINARY`, the first that applies.
    pub fn read(&self, _rules: &Rules, _path: &LogicalPath, _max_bytes: u64) -> Result<FileRead, Fault> {
        unimplemented!()
    }
}
