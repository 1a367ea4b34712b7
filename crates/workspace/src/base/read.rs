//! Reading files of the base.

use std::io;
use std::sync::atomic::AtomicBool;

use model::{FileState, LogicalPath, Rules, Sha256};

use super::manifest::{FileIndex, MODE_LINK};
use super::{Base, Loaded};
use crate::{Workspace, WorkspaceError, read};

/// A file of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFile {
    /// Its path.
    pub path: LogicalPath,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its permission bits: `0o644` or `0o755`.
    pub mode: u32,
    /// Whether it was a symbolic link. Then its bytes are the link's target.
    pub is_link: bool,
}

impl Base {
    /// Returns every file and link that the run started with, sorted by path. Files that git ignored are included only if the
    /// run has changed them. Names that are not UTF-8 are left out.
    ///
    /// Not filtered by policy: the caller must judge what it shows.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn files(&self) -> io::Result<Vec<BaseFile>> {
        let loaded = self.load()?;
        let manifest = &loaded.manifest;
        let mut files = Vec::with_capacity(manifest.len());
        for (folder, range) in manifest.folders() {
            for file in range.map(FileIndex) {
                files.extend(manifest.logical_path(folder, file).map(|path| describe(path, &loaded, file)));
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Returns the file or link at `path` among [`files`](Self::files).
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn file(&self, path: &LogicalPath) -> io::Result<Option<BaseFile>> {
        let loaded = self.load()?;
        let file = loaded.manifest.get(path.as_str().as_bytes());
        Ok(file.map(|file| describe(path.clone(), &loaded, file)))
    }
}

impl Workspace {
    /// Returns the file that the run started with at `path`, with its bytes. `None` if there was none, or a symbolic link. Not
    /// filtered by policy, as [`Base::files`].
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
        if is_link {
            return Ok(None);
        }
        if size_bytes > max_bytes {
            return Err(WorkspaceError::Io(io::ErrorKind::FileTooLarge.into()));
        }
        let bytes = self.base_bytes(&loaded, file, cancel)?;
        let kind = read::kind_of(rules, path, &bytes);
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
    }

    /// Returns the bytes of a file of the base.
    pub(crate) fn base_bytes(
        &self,
        loaded: &Loaded,
        file: FileIndex,
        cancel: &AtomicBool,
    ) -> Result<Vec<u8>, WorkspaceError> {
        match loaded.cached_bytes(file) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Ok(self.base().blobs().with(cancel, |blobs| blobs.get(loaded.manifest.oid(file)))?),
        }
    }
}

fn describe(path: LogicalPath, loaded: &Loaded, file: FileIndex) -> BaseFile {
    let manifest = &loaded.manifest;
    let mode = manifest.mode(file);
    BaseFile {
        path,
        sha256: Sha256::from_bytes(*manifest.sha256(file)),
        size_bytes: manifest.size(file),
        mode: mode & 0o777,
        is_link: mode == MODE_LINK,
    }
}
