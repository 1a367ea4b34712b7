//! The files that a run started with, beside those of its tree.

use std::io;

use model::{FileState, LINK_MODE, LogicalPath, Rules};

use super::Workspace;
use crate::base::{BaseFile, describe};
use crate::error::WorkspaceError;
use crate::opened_file;

impl Workspace {
    /// Returns the file or symbolic link that the run started with at `path`, with its bytes. `None` if there was none. Not filtered by
    /// policy, as the list of them is not.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn base_file(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Result<Option<(FileState, Vec<u8>)>, WorkspaceError> {
        let loaded = self.base().load()?;
        let Some(file) = loaded.manifest.get(path.as_str().as_bytes()) else { return Ok(None) };
        let BaseFile { sha256, size_bytes, mode, is_link, .. } = describe(path.clone(), &loaded, file);
        if size_bytes > max_bytes {
            return Err(WorkspaceError::Io(io::ErrorKind::FileTooLarge.into()));
        }
        let bytes = loaded.bytes(file)?;
        let kind = opened_file::kind_of(rules, path, &bytes);
        let mode = if is_link { LINK_MODE } else { mode };
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
    }
}
