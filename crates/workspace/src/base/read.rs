//! Reading files of the base.

use std::fs::File;
use std::io::{self, Read};

use model::{LogicalPath, Sha256};
use rustix::fs::OFlags;

use super::manifest::{FileIndex, MODE_LINK, ManifestRow};
use super::{Base, LoadedBase};
use crate::byte_path::split;
use crate::dir::open_under;
use crate::opened_file::HEAD_BYTES;

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

impl Base {
    /// Returns the bytes of the file or link at `path`; `None` if there is none or it has more than `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the bytes are not those that the base must have ([`io::ErrorKind::InvalidData`]).
    pub fn read(&self, path: &LogicalPath, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let (loaded, path) = (self.load()?, path.as_str().as_bytes());
        let file = loaded.manifest.get(path).filter(|file| loaded.manifest.size(*file) <= max_bytes);
        file.map(|file| self.bytes_of(&loaded, path, file)).transpose()
    }

    /// Opens the file at `path`, which the base has.
    pub(crate) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        Ok(File::from(open_under(&self.tree, path, OFlags::NONBLOCK | OFlags::NOCTTY)?))
    }

    /// Returns the bytes of a file, of a link its target.
    pub(crate) fn content_of(&self, row: &ManifestRow) -> io::Result<Box<dyn Read>> {
        if row.mode == MODE_LINK {
            return Ok(Box::new(io::Cursor::new(self.target_of(&row.path)?)));
        }
        Ok(Box::new(self.open_file(&row.path)?))
    }

    fn target_of(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (folder, name) = split(path);
        let folder = open_under(&self.tree, if folder.is_empty() { b"." } else { folder }, OFlags::DIRECTORY)?;
        Ok(rustix::fs::readlinkat(folder, name, Vec::new())?.into_bytes())
    }

    /// Returns the first bytes of the file at `path`.
    pub(crate) fn head_of(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        self.open_file(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(head)
    }

    /// Returns the bytes of the file `file` at `path`, of a link its target.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the bytes are not those that the base must have ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn bytes_of(&self, loaded: &LoadedBase, path: &[u8], file: FileIndex) -> io::Result<Vec<u8>> {
        let bytes = if loaded.manifest.mode(file) == MODE_LINK {
            self.target_of(path)?
        } else {
            let mut bytes = Vec::with_capacity(usize::try_from(loaded.manifest.size(file)).unwrap_or(0));
            self.open_file(path)?.take(loaded.manifest.size(file).saturating_add(1)).read_to_end(&mut bytes)?;
            bytes
        };
        if Sha256::of(&bytes).as_bytes() == loaded.manifest.sha256(file) {
            return Ok(bytes);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a file of a base was altered"))
    }
}

pub(crate) fn describe(path: LogicalPath, loaded: &LoadedBase, file: FileIndex) -> BaseFile {
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
