//! The version of each file that a run's story has: what the newest record that wrote the path has left, or else the base.
//!
//! Any other version in the tree was made from outside. Read from the ledger when the run is opened, so that no call needs the database for
//! it.

use std::collections::BTreeMap;
use std::io;

use ledger::Ledger;
use model::{FileState, GitMode, LINK_MODE, LogicalPath, Record, RunId, Sha256};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use workspace::{Base, PathVersion, VersionId, Workspace};

use crate::CallError;
use crate::run::changes::ChangeRecord;

/// A file as the run's story has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Hash of its bytes; for a symbolic link, of its target.
    pub sha256: Sha256,
    /// Its mode.
    pub mode: GitMode,
}

/// A file that a run's audit has.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFile {
    /// The hash of its bytes; `None` if no file should exist.
    pub sha256: Option<Sha256>,
    /// Whether it should be executable; `None` if that is not known.
    pub executable: Option<bool>,
}

/// The version of every path that records have written.
#[derive(Debug, Default)]
pub struct KnownVersions(RwLock<BTreeMap<LogicalPath, WrittenVersion>>);

/// The record of a fork with what it has taken over.
pub(crate) const FIRST_SEQ_OF_FORK: u64 = 1;

/// What the newest record that has written a path has left there.
#[derive(Clone, Copy, Debug)]
struct WrittenVersion {
    /// `None` if no file is left.
    file: Option<KnownFile>,
    /// Whether the record is the first one, in which a fork takes over the files of its parent.
    is_inherited: bool,
}

impl WrittenVersion {
    fn new(seq: u64, file: Option<KnownFile>) -> Self {
        Self { file, is_inherited: seq == FIRST_SEQ_OF_FORK }
    }
}

impl KnownFile {
    /// Whether `found` is this version.
    pub fn is(&self, found: &FileState) -> bool {
        self.sha256 == found.sha256 && self.mode == GitMode::of(found.mode)
    }

    fn of_base(base: &Base, path: &LogicalPath) -> io::Result<Option<Self>> {
        let file = base.file(path)?;
        Ok(file.map(|file| Self {
            sha256: file.sha256,
            mode: GitMode::of(if file.is_link { LINK_MODE } else { file.mode }),
        }))
    }
}

impl KnownVersions {
    /// Reads what the records of `run` have left.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub async fn load(ledger: &dyn Ledger, run: &RunId) -> Result<Self, CallError> {
        // Calls that are recorded meanwhile add their files themselves.
        let newest = ledger.newest_versions(run).await?.into_iter().map(|newest| {
            let file = newest.file.map(|(sha256, mode)| KnownFile { sha256, mode });
            (newest.path, WrittenVersion::new(newest.seq, file))
        });
        Ok(Self(RwLock::new(newest.collect())))
    }

    /// Replaces everything by `other`.
    pub fn replace(&self, other: Self) {
        *self.0.write() = other.0.into_inner();
    }

    /// Adds the files of a new record.
    pub fn add(&self, record: &Record) {
        if !record.paths_written.is_empty() {
            let left = record.files.iter().map(|file| {
                let left = file.new_sha256.map(|sha256| KnownFile { sha256, mode: file.mode_after() });
                (file.path.clone(), WrittenVersion::new(record.seq, left))
            });
            self.0.write().extend(left);
        }
    }

    /// Whether a record has written `path`. The result is stable only for the holder of the path's lock.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.0.read().contains_key(path)
    }

    /// Whether the run itself has written `path`: a file that a fork has taken over does not count. Stable as
    /// [`has_written`](Self::has_written) is.
    pub fn has_changed(&self, path: &LogicalPath) -> bool {
        self.0.read().get(path).is_some_and(|written| !written.is_inherited)
    }

    /// Returns every path that records have written, in order.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.0.read().keys().cloned().collect()
    }

    /// Returns every path at which records have left no file.
    pub fn removed(&self) -> Vec<LogicalPath> {
        let known = self.0.read();
        known.iter().filter(|(_, written)| written.file.is_none()).map(|(path, _)| path.clone()).collect()
    }

    /// Returns every path that records have written, with the file that they have left there.
    pub fn written(&self) -> BTreeMap<LogicalPath, ExpectedFile> {
        let file = |WrittenVersion { file, .. }: WrittenVersion| ExpectedFile {
            sha256: file.map(|file| file.sha256),
            executable: file.filter(|file| !file.mode.is_link()).map(|file| file.mode == GitMode::Executable),
        };
        self.0.read().iter().map(|(path, written)| (path.clone(), file(*written))).collect()
    }

    /// Returns the file at `path`; `None` if there is none. Reads the base from the disk if it is not in memory.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn file(&self, base: &Base, path: &LogicalPath) -> io::Result<Option<KnownFile>> {
        let written = self.0.read().get(path).copied();
        written.map_or_else(|| KnownFile::of_base(base, path), |written| Ok(written.file))
    }

    /// Returns the hash of the file at `path` if a record has written it: `Some(None)` if no file is left.
    #[expect(
        clippy::option_option,
        reason = "the outer one says whether it was written here, the inner one whether it exists"
    )]
    pub fn written_sha256(&self, path: &LogicalPath) -> Option<Option<Sha256>> {
        self.0.read().get(path).map(|written| written.file.map(|file| file.sha256))
    }

    /// Returns the digest of how the tree will differ from its base: see [`Workspace::diff_digest`].
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) fn diff_sha256(
        &self,
        workspace: &Workspace,
        planned: &BTreeMap<LogicalPath, Option<VersionId>>,
    ) -> io::Result<Sha256> {
        let known = self.0.read();
        let written = known.iter().map(|(path, written)| {
            let now = written.file.map(|file| VersionId::of(file.sha256, file.mode.bits()));
            (path, PathVersion { path, now })
        });
        let mut versions: BTreeMap<_, _> = written.collect();
        versions.extend(planned.iter().map(|(path, now)| (path, PathVersion { path, now: *now })));
        workspace.diff_digest(versions.into_values())
    }
}

/// The part of a record that names the written files. The rest is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenFiles {
    pub(crate) seq: u64,
    /// Empty for a dry run.
    pub(crate) paths_written: Vec<LogicalPath>,
    pub(crate) files: Vec<WrittenFile>,
}

/// A file that a record has written: its path, and its versions before and after.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenFile {
    pub(crate) path: LogicalPath,
    pub(crate) old_sha256: Option<Sha256>,
    pub(crate) new_sha256: Option<Sha256>,
}

impl ChangeRecord for WrittenFiles {
    fn seq(&self) -> u64 {
        self.seq
    }
}
