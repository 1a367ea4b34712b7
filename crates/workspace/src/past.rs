//! A run's files as they were at one of its records: told by its base and its ledger, whatever the tree is now.
//!
//! Nothing is opened in the tree but what says which files git ignores. Paths are judged by their names, since no file is
//! there to be judged; a symbolic link is nothing that leads anywhere.

mod found;
mod list;
mod read;

pub use found::DriftEntry;
pub(crate) use read::was_not_there;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, Record, Sha256, diff_modes};

use crate::base::manifest::MODE_LINK;
use crate::git::GitError;
use crate::{Base, BaseFile, Workspace, WorkspaceError};

/// The type bits of a mode, in git's words.
const TYPE_BITS: u32 = 0o170_000;
/// Permission bits of a file of which no diff tells any.
const DEFAULT_MODE: u32 = 0o644;

/// A run's files at one of its records.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    files: BTreeMap<LogicalPath, SnapshotFile>,
    /// Every path that a record has written.
    written: BTreeSet<LogicalPath>,
}

/// One file or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Hash of its bytes; of a link, of where it led.
    pub sha256: Sha256,
    /// Its permission bits: `0o644` or `0o755`.
    pub mode: u32,
    /// Whether it was a symbolic link.
    pub is_link: bool,
    /// Where its bytes are.
    pub location: ContentLocation,
}

/// Where the bytes of a past file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLocation {
    /// In the base.
    Base {
        /// How many there are.
        size_bytes: u64,
    },
    /// In the ledger, where they are not too many.
    Ledger {
        /// The record that left them.
        seq: u64,
        /// The file's kind.
        kind: FileKind,
    },
}

/// What the ledger keeps.
pub trait ContentStore {
    /// The bytes that the record `seq` has left under `sha256`; `None` where they were too many to be kept.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>>;
}

impl Snapshot {
    /// The files that a run started with.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn of_base(base: &Base) -> io::Result<Self> {
        let files = base.files()?.into_iter().map(|file| (file.path.clone(), SnapshotFile::of_base(&file)));
        Ok(Self { files: files.collect(), written: BTreeSet::new() })
    }

    /// The file that a run started with at `path` alone.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn of_base_file(base: &Base, path: &LogicalPath) -> io::Result<Self> {
        let file = base.file(path)?.map(|file| (path.clone(), SnapshotFile::of_base(&file)));
        Ok(Self { files: file.into_iter().collect(), written: BTreeSet::new() })
    }

    /// Adds what a mutation has written; `diff` is what it left, which tells the files' modes.
    pub fn add(&mut self, record: &Record, diff: &[u8]) {
        if record.paths_written.is_empty() {
            return;
        }
        let modes = diff_modes(diff);
        let mut after = Vec::with_capacity(record.files.len());
        for file in &record.files {
            self.written.insert(file.path.clone());
            let Some(sha256) = file.new_sha256 else { continue };
            let mut told = modes.iter().filter(|modes| modes.path == file.path).peekable();
            let from = told.peek().map_or(&file.path, |modes| &modes.from);
            let before = self.files.get(from).map(SnapshotFile::git_mode);
            // A link in place of a file is told as one that goes and one that comes.
            let mode = told.find_map(|modes| modes.new).or(before).unwrap_or(DEFAULT_MODE);
            let location = ContentLocation::Ledger { seq: record.seq, kind: file.kind };
            let past = SnapshotFile { sha256, mode: mode & 0o777, is_link: mode & TYPE_BITS == MODE_LINK, location };
            after.push((file.path.clone(), past));
        }
        for file in &record.files {
            self.files.remove(&file.path);
        }
        self.files.extend(after);
    }

    /// Every file and link, sorted by path.
    pub fn files(&self) -> &BTreeMap<LogicalPath, SnapshotFile> {
        &self.files
    }

    /// Whether a record has written `path`.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.written.contains(path)
    }

    /// Every path that a record has written, in order.
    pub(crate) fn written(&self) -> &BTreeSet<LogicalPath> {
        &self.written
    }

    /// What lies beneath the folder at `path`.
    fn beneath<'a>(
        &'a self,
        path: &LogicalPath,
    ) -> impl Iterator<Item = (&'a LogicalPath, &'a SnapshotFile)> + use<'a> {
        let prefix = if path.is_root() { String::new() } else { format!("{path}/") };
        // Names that begin with the folder's own, such as `a.txt` beside `a`, may stand before what lies in it.
        let low = if path.is_root() { Bound::Unbounded } else { Bound::Excluded(path.clone()) };
        let stem = prefix.strip_suffix('/').unwrap_or_default().to_owned();
        let from = self.files.range((low, Bound::Unbounded));
        from.take_while(move |(path, _)| path.as_str().starts_with(&stem))
            .filter(move |(path, _)| path.as_str().starts_with(&prefix))
    }

    pub(crate) fn has_beneath(&self, path: &LogicalPath) -> bool {
        path.is_root() || self.beneath(path).next().is_some()
    }
}

impl SnapshotFile {
    fn of_base(file: &BaseFile) -> Self {
        let location = ContentLocation::Base { size_bytes: file.size_bytes };
        Self { sha256: file.sha256, mode: file.mode, is_link: file.is_link, location }
    }

    /// Its mode with its type, in git's words.
    fn git_mode(&self) -> u32 {
        if self.is_link { MODE_LINK } else { self.mode }
    }
}

impl Workspace {
    /// The bytes of a past file; of a link, where it led. `None` where they were too many to be kept.
    pub(crate) fn snapshot_bytes(
        &self,
        path: &LogicalPath,
        file: &SnapshotFile,
        contents: &dyn ContentStore,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        if let ContentLocation::Ledger { seq, .. } = file.location {
            return Ok(contents.content(seq, &file.sha256)?);
        }
        let loaded = self.base().load()?;
        let Some(at) = loaded.manifest.get(path.as_str().as_bytes()) else {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        };
        if let Some(bytes) = loaded.kept(at) {
            return Ok(Some(bytes.to_vec()));
        }
        let read = self.base().blobs().with(cancel, |blobs| blobs.get(loaded.manifest.oid(at)));
        read.map(Some).map_err(of_git)
    }
}

pub(crate) fn of_git(error: GitError) -> WorkspaceError {
    match error {
        GitError::Cancelled => WorkspaceError::Cancelled,
        error => WorkspaceError::Io(io::Error::other(error)),
    }
}
