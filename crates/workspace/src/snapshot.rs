//! A run's files as they were at one of its records, computed from the base and the ledger, independent of the tree.
//!
//! Only the `.gitignore` files of the tree are read. Policy is decided by path alone, since there is no file to inspect; no
//! symbolic link of a snapshot is followed.

mod list;
mod read;
mod rebuild;
#[cfg(test)]
mod tests;

pub(crate) use read::not_in_snapshot;
pub use rebuild::RebuildReport;

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use model::{Disk, FileKind, GitMode, LINK_MODE, LogicalPath, Record, Sha256};
use rustix::fs::FileType;

use crate::base_files::manifest::FileIndex;
use crate::base_files::{BaseEntry, BaseFiles};
use crate::stamp::FileStamp;
use crate::{Base, Workspace, WorkspaceError};

/// The files of a run at one of its records: its base, and over it what its records have written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    base: Arc<BaseFiles>,
    /// What is left at every path that a record wrote; `None` if nothing is.
    written: BTreeMap<LogicalPath, Option<SnapshotFile>>,
}

/// One file or symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The hash of its bytes; for a link, of its target.
    pub sha256: Sha256,
    /// Its permission bits: `0o644` or `0o755`.
    pub mode: u32,
    /// Whether it was a symbolic link.
    pub is_link: bool,
    /// Where its bytes are stored.
    pub location: ContentLocation,
}

/// Where the bytes of a snapshot's file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLocation {
    /// In the base.
    Base {
        /// The number of bytes.
        size_bytes: u64,
    },
    /// In the ledger, unless they are too many.
    Ledger {
        /// The record that wrote them.
        seq: u64,
        /// The file's kind.
        kind: FileKind,
    },
}

/// The contents that the ledger stores.
pub trait StoredContents {
    /// Returns the bytes with the hash `sha256` that the record `seq` wrote. `None` if they were too many to be stored.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>>;

    /// Returns the size and a reader of a content of any size that is stored outside of the ledger; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn large(&self, _sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        Ok(None)
    }
}

/// The size and a reader of a content that is stored outside of the ledger.
pub type LargeContent = (u64, Box<dyn io::Read + Send>);

impl Snapshot {
    /// Returns the files that a run started with.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn of_base(base: &Base) -> io::Result<Self> {
        Ok(Self { base: base.load()?, written: BTreeMap::new() })
    }

    /// Adds what a mutation wrote.
    pub fn add(&mut self, record: &Record) {
        if record.paths_written.is_empty() {
            return;
        }
        for file in &record.files {
            let version = file.new_sha256.map(|sha256| (sha256, file.mode_after()));
            self.set(file.path.clone(), record.seq, file.kind, version);
        }
    }

    /// Sets what the record `seq` left at `path`: the hash and the mode of a file of this kind, or nothing.
    pub fn set(&mut self, path: LogicalPath, seq: u64, kind: FileKind, version: Option<(Sha256, GitMode)>) {
        let location = ContentLocation::Ledger { seq, kind };
        let file = version.map(|(sha256, mode)| SnapshotFile {
            sha256,
            mode: mode.bits() & 0o777,
            is_link: mode.is_link(),
            location,
        });
        self.written.insert(path, file);
    }

    /// Whether both share one base in memory, so that they differ at no other paths than those that records wrote. False says nothing.
    pub fn has_base_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }

    /// Returns the file or link at `path`.
    pub fn get(&self, path: &LogicalPath) -> Option<SnapshotFile> {
        self.written.get(path).copied().unwrap_or_else(|| {
            let file = self.base.manifest.get(path.as_str().as_bytes())?;
            Some(SnapshotFile::of_base(&self.base, file))
        })
    }

    /// Returns every file and link, sorted by path.
    pub fn files(&self) -> BTreeMap<LogicalPath, SnapshotFile> {
        let manifest = &self.base.manifest;
        let of_base = manifest.folders().flat_map(|(folder, files)| {
            let paths = files.map(FileIndex).map(move |file| (manifest.logical_path(folder, file), file));
            paths.filter_map(|(path, file)| Some((path?, SnapshotFile::of_base(&self.base, file))))
        });
        let mut files: BTreeMap<_, _> = of_base.filter(|(path, _)| !self.written.contains_key(path)).collect();
        files.extend(self.changed().map(|(path, file)| (path.clone(), *file)));
        files
    }

    /// Returns the files and links that records wrote, sorted by path.
    pub fn changed(&self) -> impl Iterator<Item = (&LogicalPath, &SnapshotFile)> {
        self.written.iter().filter_map(|(path, file)| Some((path, file.as_ref()?)))
    }

    /// Whether a record wrote `path`.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.written.contains_key(path)
    }

    /// Returns every path that a record wrote, sorted.
    pub fn written(&self) -> impl Iterator<Item = &LogicalPath> {
        self.written.keys()
    }

    /// Returns every path at which records have left no file.
    pub fn removed(&self) -> impl Iterator<Item = &LogicalPath> {
        self.written.iter().filter(|(_, file)| file.is_none()).map(|(path, _)| path)
    }

    /// Returns the names in the folder at `path`, each with its type. A folder exists as long as a file is under it.
    pub(crate) fn entries_in(&self, path: &LogicalPath) -> BTreeMap<String, FileType> {
        let manifest = &self.base.manifest;
        let mut entries = BTreeMap::new();
        let raw = if path.is_root() { &[] } else { path.as_str().as_bytes() };
        let folder = manifest.folder(raw);
        let child = |name| {
            let name = std::str::from_utf8(name).ok()?;
            Some((name, path.child(name).ok()?))
        };
        for file in folder.into_iter().flat_map(|folder| manifest.files_in(folder)).map(FileIndex) {
            if let Some((name, _)) = child(manifest.name(file)).filter(|(_, path)| !self.written.contains_key(path)) {
                entries.insert(name.to_owned(), self.base.file_type(BaseEntry::File(file)));
            }
        }
        for (_, name) in folder.into_iter().flat_map(|folder| manifest.folders_in(folder)) {
            if let Some((name, _)) = child(name).filter(|(_, path)| self.has_files_under(path)) {
                entries.insert(name.to_owned(), FileType::Directory);
            }
        }
        let written = self.written_under(path).filter_map(|(path, file)| Some((path, (*file)?)));
        let start = if path.is_root() { 0 } else { raw.len() + 1 };
        for (path, file) in written {
            let (name, file_type) = match path.as_str()[start..].split_once('/') {
                Some((folder, _)) => (folder, FileType::Directory),
                None if file.is_link => (&path.as_str()[start..], FileType::Symlink),
                None => (&path.as_str()[start..], FileType::RegularFile),
            };
            entries.insert(name.to_owned(), file_type);
        }
        entries
    }

    /// Whether any file is under the folder at `path`. Always true for the root.
    pub(crate) fn has_files_under(&self, path: &LogicalPath) -> bool {
        if path.is_root() {
            return true;
        }
        let manifest = &self.base.manifest;
        let (mut in_base, mut is_written) = (manifest.files_under(path.as_str().as_bytes()), false);
        for (path, file) in self.written_under(path) {
            is_written |= file.is_some();
            in_base -= u64::from(manifest.get(path.as_str().as_bytes()).is_some());
        }
        is_written || in_base > 0
    }

    fn written_under(&self, path: &LogicalPath) -> impl Iterator<Item = (&LogicalPath, &Option<SnapshotFile>)> {
        let prefix = if path.is_root() { String::new() } else { format!("{path}/") };
        // Names that begin with the folder's own, such as `a.txt` and `a`, may sort before what is in the folder.
        let low = if path.is_root() { Bound::Unbounded } else { Bound::Excluded(path.clone()) };
        let stem = prefix.strip_suffix('/').unwrap_or_default().to_owned();
        let from = self.written.range((low, Bound::Unbounded));
        from.take_while(move |(path, _)| path.as_str().starts_with(&stem))
            .filter(move |(path, _)| path.as_str().starts_with(&prefix))
    }
}

impl SnapshotFile {
    pub(crate) fn of_base(base: &BaseFiles, file: FileIndex) -> Self {
        let (manifest, mode) = (&base.manifest, base.manifest.mode(file));
        Self {
            sha256: Sha256::from_bytes(*manifest.sha256(file)),
            mode: mode & 0o777,
            is_link: base.is_link(file),
            location: ContentLocation::Base { size_bytes: manifest.size(file) },
        }
    }

    /// Returns its permission bits, or [`LINK_MODE`].
    pub fn git_mode(&self) -> u32 {
        if self.is_link { LINK_MODE } else { self.mode }
    }
}

impl Workspace {
    /// Returns the size of the tree, which has the files of `snapshot`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn disk_usage(&self, snapshot: &Snapshot) -> io::Result<Disk> {
        let mut disk = Disk::default();
        for (path, file) in snapshot.files() {
            disk.files += 1;
            disk.bytes += match file.location {
                _ if file.is_link => 0,
                ContentLocation::Base { size_bytes } => size_bytes,
                ContentLocation::Ledger { .. } => match self.tree().root.find(&path) {
                    Ok(found) => found.map_or(0, |found| FileStamp::of(&found.stat).size),
                    Err(error) => error.unless_disk().map(|()| 0)?,
                },
            };
        }
        Ok(disk)
    }

    /// Returns the bytes of a snapshot's file; for a link, its target. `None` if they were too many to be stored.
    ///
    /// Not filtered by policy: the caller must judge what it shows.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails.
    pub fn snapshot_content(
        &self,
        path: &LogicalPath,
        file: &SnapshotFile,
        contents: &dyn StoredContents,
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        if let ContentLocation::Ledger { seq, .. } = file.location {
            return Ok(contents.content(seq, &file.sha256)?);
        }
        let loaded = self.base().load()?;
        let Some(at) = loaded.manifest.get(path.as_str().as_bytes()) else {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        };
        Ok(Some(loaded.bytes(at)?))
    }
}
