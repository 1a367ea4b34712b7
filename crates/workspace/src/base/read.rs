//! Reading files of the base.

use std::io;

use model::{LogicalPath, Sha256};

use super::Base;
use crate::base_files::BaseFiles;
use crate::base_files::manifest::{FileIndex, MODE_LINK};

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
    /// Returns every file and link that the run started with, sorted by path. Names that are not UTF-8 are left
    /// out.
    ///
    /// Not filtered by policy: the caller must judge what it shows.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn files(&self) -> io::Result<Vec<BaseFile>> {
        let loaded = self.load()?;
        let files = loaded.manifest.logical_files(b"").into_iter();
        let mut files: Vec<_> = files.map(|(path, file)| describe(path, &loaded, file)).collect();
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

    /// Returns the bytes of the file or link at `path`; `None` if there is none or it has more than `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the bytes are not those that the base must have ([`io::ErrorKind::InvalidData`]).
    pub fn read(&self, path: &LogicalPath, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let (loaded, path) = (self.load()?, path.as_str().as_bytes());
        let file = loaded.manifest.get(path).filter(|file| loaded.manifest.size(*file) <= max_bytes);
        file.map(|file| loaded.bytes(file)).transpose()
    }
}

fn describe(path: LogicalPath, loaded: &BaseFiles, file: FileIndex) -> BaseFile {
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
