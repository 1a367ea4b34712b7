//! Drift: paths at which the tree differs from what the ledger says.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;

use model::{LINK_MODE, LogicalPath, Rules, Sha256};
use rustix::fs::FileType;

use super::compare::{DiffedVersion, diff_shown};
use super::scan::scan;
use crate::guard::GuardError;
use crate::hashing::copy_hashed;
use crate::{LargeContent, Snapshot, StoredContents, Workspace, WorkspaceError};

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// The hash of its bytes.
        sha256: Sha256,
        /// Whether anyone may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// The hash of its target.
        sha256: Sha256,
    },
    /// A folder. Its contents are not compared.
    Folder,
    /// A special file, or a path that cannot be followed.
    Other,
}

/// A path at which the tree differs from what the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The path.
    pub path: LogicalPath,
    /// What the ledger says.
    pub expected: EntryState,
    /// What is in the tree.
    pub found: EntryState,
}

/// A [`Drift`] with what was found.
#[derive(Debug)]
pub struct DriftedPath {
    /// The path.
    pub path: LogicalPath,
    /// What the ledger says.
    pub old: EntryState,
    /// What is in the tree.
    pub new: EntryState,
    /// The bytes in the tree, or the target of a link. `None` if the path is missing, or if they are too many to be stored.
    pub bytes: Option<Vec<u8>>,
    /// The diff between the two, without the content of files that policy hides.
    pub diff: Vec<u8>,
}

impl Workspace {
    /// Returns every path at which the tree differs from `snapshot`. Files that git ignores count only if the run has written
    /// them.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn find_drift(&self, snapshot: &Snapshot) -> Result<Vec<Drift>, WorkspaceError> {
        // What the run's own layer does not have is as it was in the base.
        let mut paths: BTreeSet<_> = snapshot.written().cloned().collect();
        let scanned = scan(self, &self.base().load()?.manifest, &LogicalPath::root(), &AtomicBool::new(false))?;
        paths.extend(scanned.into_iter().map(|candidate| candidate.path));
        let mut drift = Vec::new();
        for path in paths {
            let expected =
                snapshot.get(&path).map_or(EntryState::Nothing, |file| EntryState::of(file.sha256, file.git_mode()));
            let (found, _) = self.entry_at(&path, 0)?;
            let is_no_file = matches!(found, EntryState::Nothing | EntryState::Folder | EntryState::Other);
            if expected != found && !(expected == EntryState::Nothing && is_no_file) {
                drift.push(Drift { path, expected, found });
            }
        }
        Ok(drift)
    }

    /// Returns what is at `path` now, of a file or link also its version. Keeps up to `max_bytes` of a file.
    fn entry_at(
        &self,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Result<(EntryState, Option<DiffedVersion>), WorkspaceError> {
        let root = &self.tree().root;
        let found = match root.find(path) {
            Ok(Some(found)) => found,
            Ok(None) | Err(GuardError::NotADirectory) => return Ok((EntryState::Nothing, None)),
            Err(error) => return Ok(error.unless_disk().map(|()| (EntryState::Other, None))?),
        };
        let version = match found.file_type() {
            FileType::Symlink => {
                let link = found.link().map_err(|error| error.at(path))?;
                link.map(|link| DiffedVersion::of_bytes(link.target, LINK_MODE))
            }
            FileType::RegularFile => {
                let opened = root.open_unlinked(path).map_err(|error| error.at(path))?;
                Some(DiffedVersion::read(opened, max_bytes)?)
            }
            FileType::Directory => return Ok((EntryState::Folder, None)),
            _ => return Ok((EntryState::Other, None)),
        };
        let state = version.as_ref().map_or(EntryState::Nothing, |now| EntryState::of(now.sha256, now.mode));
        Ok((state, version))
    }

    /// Reads what was found at a path with drift, up to `max_bytes` of it, and computes the diff.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails, or the file has changed meanwhile.
    pub fn inspect_drift(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        drift: Drift,
        contents: &dyn StoredContents,
        max_bytes: u64,
    ) -> Result<DriftedPath, WorkspaceError> {
        let Drift { path, expected: old, found: new } = drift;
        let (found, version) = self.entry_at(&path, max_bytes)?;
        if found != new {
            return Err(io::Error::other("a file changed while it was read").into());
        }
        let recorded = self.snapshot_version(snapshot, &path, contents)?;
        let diff = diff_shown(rules, &path, recorded.as_ref(), version.as_ref()).text;
        Ok(DriftedPath { path, old, new, bytes: version.and_then(|version| version.bytes), diff })
    }

    /// Returns the size and a reader of the file at `path`, if its content is `sha256`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn content_at(&self, path: &LogicalPath, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let opened = match self.tree().root.open_unlinked(path) {
            Ok(opened) if opened.file_type() == FileType::RegularFile => opened,
            Ok(_) => return Ok(None),
            Err(error) => return error.unless_disk().map(|()| None),
        };
        let mut file = opened.file.into_reader()?;
        let (found, size) = copy_hashed(&mut file, &mut io::sink(), u64::MAX)?;
        if found != *sha256 {
            return Ok(None);
        }
        file.rewind();
        Ok(Some((size, Box::new(file))))
    }
}

impl EntryState {
    /// The state of a file with these permission bits, or of a link, which has [`LINK_MODE`].
    fn of(sha256: Sha256, mode: u32) -> Self {
        if model::is_link_mode(mode) {
            Self::Link { sha256 }
        } else {
            Self::File { sha256, executable: mode & 0o111 != 0 }
        }
    }

    /// Returns the hash and the permission bits that git gives it, or [`LINK_MODE`]; `None` if it is no file or link.
    pub fn version(self) -> Option<(Sha256, u32)> {
        let mode = match self {
            Self::Link { .. } => LINK_MODE,
            Self::File { executable: true, .. } => 0o755,
            _ => 0o644,
        };
        self.sha256().map(|sha256| (sha256, mode))
    }

    /// Returns the hash of a file or link.
    pub fn sha256(self) -> Option<Sha256> {
        match self {
            Self::File { sha256, .. } | Self::Link { sha256 } => Some(sha256),
            Self::Nothing | Self::Folder | Self::Other => None,
        }
    }
}
