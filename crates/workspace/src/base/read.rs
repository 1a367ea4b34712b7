//! Files of the base, for whoever goes back in time.

use std::io;
use std::sync::atomic::AtomicBool;

use model::{FileState, LogicalPath, Rules, Sha256};

use super::Base;
use super::manifest::{FileIndex, MODE_LINK};
use crate::git::GitError;
use crate::{Workspace, WorkspaceError, read};

/// A file of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFile {
    /// Where it was.
    pub path: LogicalPath,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its permission bits: `0o644` or `0o755`.
    pub mode: u32,
    /// Whether it was a symbolic link; then its bytes are where it led.
    pub is_link: bool,
}

impl Base {
    /// Every file and link that the run started with, sorted by path; what git ignored is among them only where the run has
    /// come to change it. Names that are not UTF-8 are left out.
    ///
    /// Policy has not been asked: whoever shows these judges them first.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn files(&self) -> io::Result<Vec<BaseFile>> {
        let loaded = self.load()?;
        let manifest = &loaded.manifest;
        let mut files = Vec::with_capacity(manifest.len());
        for (folder, range) in manifest.folders() {
            for file in range.map(FileIndex) {
                let name = manifest.name(file);
                let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
                let path = String::from_utf8(path).ok().and_then(|path| LogicalPath::parse(&path).ok());
                files.extend(path.map(|path| describe(path, &loaded, file)));
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The file or link at `path` among [`files`](Self::files).
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn file(&self, path: &LogicalPath) -> io::Result<Option<BaseFile>> {
        let loaded = self.load()?;
        let file = loaded.manifest.get(path.as_str().as_bytes());
        Ok(file.map(|file| describe(path.clone(), &loaded, file)))
    }
}

impl Workspace {
    /// The file that the run started with at `path`, with its bytes and its kind; `None` where there was none, or a
    /// symbolic link. Policy has not been asked, as for [`Base::files`].
    ///
    /// # Errors
    ///
    /// Where the disk fails, or the file has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]); `Cancelled`.
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
        let bytes = match loaded.kept(file) {
            Some(bytes) => bytes.to_vec(),
            None => {
                self.base().blobs().with(cancel, |blobs| blobs.get(loaded.manifest.oid(file))).map_err(|error| {
                    match error {
                        GitError::Cancelled => WorkspaceError::Cancelled,
                        error => WorkspaceError::Io(io::Error::other(error)),
                    }
                })?
            }
        };
        let kind = read::kind_of(rules, path, &bytes);
        Ok(Some((FileState { sha256, size_bytes, mode, kind }, bytes)))
    }
}

fn describe(path: LogicalPath, loaded: &super::Loaded, file: FileIndex) -> BaseFile {
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
