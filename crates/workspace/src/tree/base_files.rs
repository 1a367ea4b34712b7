//! The files that a run started with, beside those of its tree.

use std::io;

use model::{FileState, LINK_MODE, LogicalPath, Rules};

use super::Workspace;
use crate::base::BaseFile;
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
        let Some(BaseFile { sha256, size_bytes, mode, is_link, .. }) = self.base().file(path)? else { return Ok(None) };
        let bytes = self.base().read(path, max_bytes)?.ok_or(io::ErrorKind::FileTooLarge).map_err(io::Error::from)?;
        let kind = opened_file::kind_of(rules, path, &bytes);
        let mode = if is_link { LINK_MODE } else { mode };
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
    }
}
