//! The files that a run started with, beside those of its tree.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;

use model::{FileState, LINK_MODE, LogicalPath, Rules, Verdict};
use rustix::fs::FileType;

use super::Workspace;
use crate::base::manifest::FileIndex;
use crate::base::{BaseFile, LoadedBase, describe};
use crate::error::WorkspaceError;
use crate::guard::Blocking;
use crate::opened_file;

impl Workspace {
    /// Returns the file or symbolic link that the run started with at `path`, with its bytes. `None` if there was none. Not filtered by
    /// policy, as the list of them is not.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]); `Cancelled`.
    pub fn base_file(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
        cancel: &AtomicBool,
    ) -> Result<Option<(FileState, Vec<u8>)>, WorkspaceError> {
        let loaded = self.base().load()?;
        let Some(file) = loaded.manifest.get(path.as_str().as_bytes()) else { return Ok(None) };
        let BaseFile { sha256, size_bytes, mode, is_link, .. } = describe(path.clone(), &loaded, file);
        if size_bytes > max_bytes {
            return Err(WorkspaceError::Io(io::ErrorKind::FileTooLarge.into()));
        }
        let bytes = self.base_bytes(&loaded, file, cancel)?;
        let kind = opened_file::kind_of(rules, path, &bytes);
        let mode = if is_link { LINK_MODE } else { mode };
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
    }

    /// Returns the bytes of a file of the base.
    pub(crate) fn base_bytes(
        &self,
        loaded: &LoadedBase,
        file: FileIndex,
        cancel: &AtomicBool,
    ) -> Result<Vec<u8>, WorkspaceError> {
        match loaded.cached_bytes(file) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Ok(self.base().blobs().with(cancel, |blobs| blobs.get(loaded.manifest.oid(file)))?),
        }
    }

    /// Adds those of `paths` to the base that git ignores and that the run is about to change for the first time. Must be
    /// called before the change is journalled.
    ///
    /// # Errors
    ///
    /// If the disk or git fails.
    pub fn add_ignored_to_base<'p>(
        &self,
        rules: &Rules,
        paths: impl IntoIterator<Item = &'p LogicalPath>,
    ) -> Result<(), WorkspaceError> {
        if rules.policy().ignored_files == Verdict::Deny {
            return Ok(());
        }
        let mut rows = Vec::new();
        for path in paths {
            // A file that the run has written does not count as ignored.
            if !self.tree().is_ignored(path, None, Blocking::Allowed)? {
                continue;
            }
            match self.tree().root.open_unlinked(path) {
                Ok(opened) if opened.file_type() == FileType::RegularFile => {
                    let executable = opened.stat.st_mode & 0o111 != 0;
                    rows.push(self.base().store(path, executable, &mut File::from(opened.file))?);
                }
                Ok(_) => {}
                Err(error) => error.unless_disk()?,
            }
        }
        if rows.is_empty() { Ok(()) } else { Ok(self.base().add_ignored_files(rows)?) }
    }
}
