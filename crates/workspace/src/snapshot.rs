//! A run's files as they were at one of its records, computed from the base and the ledger, independent of the tree.
//!
//! Only the `.gitignore` files of the tree are read. Policy is decided by path alone, since there is no file to inspect; no
//! symbolic link of a snapshot is followed.

mod drift;
mod inherited;
mod list;
mod read;
mod rebuild;
#[cfg(test)]
mod tests;
mod writer;

pub use drift::{Drift, DriftedPath, EntryState};
pub use inherited::{Inherited, InheritedContent, InheritedFile};
pub(crate) use read::not_in_snapshot;
pub use rebuild::RebuildReport;
pub(crate) use writer::{FileOutcome, SnapshotWriter, io_error};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;

use model::{FileKind, LINK_MODE, LogicalPath, Record, Sha256, diff_modes, is_link_mode};

use crate::{Base, BaseFile, Workspace, WorkspaceError};

/// The permission bits of a file whose diff does not show any.
const DEFAULT_MODE: u32 = 0o644;

/// The files of a run at one of its records.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    files: BTreeMap<LogicalPath, SnapshotFile>,
    /// Every path that a record wrote.
    written: BTreeSet<LogicalPath>,
}

/// One file or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        let files = base.files()?.into_iter().map(|file| (file.path.clone(), SnapshotFile::of_base(&file)));
        Ok(Self { files: files.collect(), written: BTreeSet::new() })
    }

    /// Returns only the file that a run started with at `path`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn of_base_file(base: &Base, path: &LogicalPath) -> io::Result<Self> {
        let file = base.file(path)?.map(|file| (path.clone(), SnapshotFile::of_base(&file)));
        Ok(Self { files: file.into_iter().collect(), written: BTreeSet::new() })
    }

    /// Adds what a mutation wrote. `diff` is its diff, which contains the files' modes.
    pub fn add(&mut self, record: &Record, diff: &[u8]) {
        if record.paths_written.is_empty() {
            return;
        }
        let modes = diff_modes(diff);
        let mut after = Vec::with_capacity(record.files.len());
        for file in &record.files {
            self.written.insert(file.path.clone());
            let Some(sha256) = file.new_sha256 else { continue };
            let mut entries = modes.iter().filter(|modes| modes.path == file.path).peekable();
            let from = entries.peek().map_or(&file.path, |modes| &modes.from);
            let before = self.files.get(from).map(SnapshotFile::git_mode);
            // A link that replaces a file is shown as a removal and a creation.
            let mode = entries.find_map(|modes| modes.new).or(before).unwrap_or(DEFAULT_MODE);
            let location = ContentLocation::Ledger { seq: record.seq, kind: file.kind };
            let file_then = SnapshotFile { sha256, mode: mode & 0o777, is_link: is_link_mode(mode), location };
            after.push((file.path.clone(), file_then));
        }
        for file in &record.files {
            self.files.remove(&file.path);
        }
        self.files.extend(after);
    }

    /// Returns every file and link, sorted by path.
    pub fn files(&self) -> &BTreeMap<LogicalPath, SnapshotFile> {
        &self.files
    }

    /// Whether a record wrote `path`.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.written.contains(path)
    }

    /// Returns every path that a record wrote, sorted.
    pub fn written(&self) -> &BTreeSet<LogicalPath> {
        &self.written
    }

    /// Returns every path at which records have left no file.
    pub fn removed(&self) -> impl Iterator<Item = &LogicalPath> {
        self.written.iter().filter(|path| !self.files.contains_key(*path))
    }

    /// Returns the files under the folder at `path`.
    fn under<'a>(&'a self, path: &LogicalPath) -> impl Iterator<Item = (&'a LogicalPath, &'a SnapshotFile)> + use<'a> {
        let prefix = if path.is_root() { String::new() } else { format!("{path}/") };
        // Names that begin with the folder's own, such as `a.txt` and `a`, may sort before what is in the folder.
        let low = if path.is_root() { Bound::Unbounded } else { Bound::Excluded(path.clone()) };
        let stem = prefix.strip_suffix('/').unwrap_or_default().to_owned();
        let from = self.files.range((low, Bound::Unbounded));
        from.take_while(move |(path, _)| path.as_str().starts_with(&stem))
            .filter(move |(path, _)| path.as_str().starts_with(&prefix))
    }

    /// Whether any file is under the folder at `path`. Always true for the root.
    pub(crate) fn has_files_under(&self, path: &LogicalPath) -> bool {
        path.is_root() || self.under(path).next().is_some()
    }
}

impl SnapshotFile {
    fn of_base(file: &BaseFile) -> Self {
        let location = ContentLocation::Base { size_bytes: file.size_bytes };
        Self { sha256: file.sha256, mode: file.mode, is_link: file.is_link, location }
    }

    /// Returns its permission bits, or [`LINK_MODE`].
    pub fn git_mode(&self) -> u32 {
        if self.is_link { LINK_MODE } else { self.mode }
    }
}

impl Workspace {
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
        Ok(Some(self.base().bytes_of(&loaded, path.as_str().as_bytes(), at)?))
    }
}
