//! Writing the files of a snapshot into an empty folder, from the base and the ledger alone.

use std::io::{self, Read};
use std::os::fd::OwnedFd;

use model::{Refusal, Sha256};

use super::{ContentLocation, Snapshot, StoredContents};
use crate::base::manifest::{MODE_LINK, ManifestRow};
use crate::base::{Base, missing_from_base};
use crate::import::{ImportError, ImportLimits, ImportObserver, ImportWriter, WriteError};

/// The largest link that is written. The kernel's limit is 4 KiB.
const MAX_TARGET_BYTES: u64 = 64 << 10;

/// Writes a tree. It does not decide what a file that cannot be written means: each outcome is given to the caller.
pub(crate) struct SnapshotWriter {
    writer: ImportWriter<'static>,
}

/// The outcome of writing one file or link.
pub(crate) enum FileOutcome {
    /// It has the recorded hash.
    Written,
    /// It was written, with other bytes than recorded.
    Wrong,
    /// It was not written: neither the ledger nor a store has its bytes.
    NotStored,
    /// It was not written: its bytes are missing from the base, or could not be read.
    Lost(io::Error),
}

/// Takes the path of a file, the type bits and permission bits of its mode, and the outcome. An error ends the writing.
type OnOutcome<'a> = dyn FnMut(&[u8], u32, FileOutcome) -> io::Result<()> + 'a;

/// Reports no progress: nobody waits for single files, and the quota of the run was checked when they were written.
struct Unobserved;

impl ImportObserver for Unobserved {
    fn progress(&self, _stage: &'static str, _files: u64, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }

    fn check_quota(&self, _files: u64, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }
}

impl SnapshotWriter {
    /// Creates a writer into the empty folder `root`.
    pub(crate) fn new(root: OwnedFd) -> Self {
        let limits = ImportLimits {
            max_entries: u64::MAX,
            max_name_bytes: u64::MAX,
            max_bytes: u64::MAX,
            max_depth: usize::MAX,
            max_ratio: u64::MAX,
        };
        Self { writer: ImportWriter::new(root, limits, &Unobserved) }
    }

    /// Returns every file and link that was written, with its stamp.
    pub(crate) fn rows(&self) -> &[ManifestRow] {
        self.writer.all_rows()
    }

    /// Writes files of the base.
    pub(crate) fn write_base(
        &mut self,
        base: &Base,
        rows: &[&ManifestRow],
        on_outcome: &mut OnOutcome<'_>,
    ) -> io::Result<()> {
        for row in rows {
            let outcome = match base.content_of(row) {
                Ok(mut content) => {
                    let written = self.write(&row.path, row.mode, row.size, Some(row.oid), &mut content);
                    outcome_of(Sha256::from_bytes(row.sha256), written)?
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => FileOutcome::Lost(missing_from_base()),
                Err(error) => return Err(error),
            };
            on_outcome(&row.path, row.mode, outcome)?;
        }
        Ok(())
    }

    /// Writes the newest version of each file that a record wrote.
    pub(crate) fn write_changed(
        &mut self,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
        on_outcome: &mut OnOutcome<'_>,
    ) -> io::Result<()> {
        for (path, file) in snapshot.files() {
            let ContentLocation::Ledger { seq, .. } = file.location else { continue };
            let (path, mode) = (path.as_str().as_bytes(), file.git_mode());
            let outcome = if let Some(bytes) = contents.content(seq, &file.sha256)? {
                outcome_of(file.sha256, self.write(path, mode, bytes.len() as u64, None, &mut &bytes[..]))?
            } else if let Some((size, mut bytes)) = contents.large(&file.sha256)? {
                outcome_of(file.sha256, self.write(path, mode, size, None, &mut bytes))?
            } else {
                FileOutcome::NotStored
            };
            on_outcome(path, mode, outcome)?;
        }
        Ok(())
    }

    /// Writes one file or link, and returns its row.
    pub(crate) fn write(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        oid: Option<[u8; 20]>,
        bytes: &mut dyn Read,
    ) -> Result<ManifestRow, WriteError> {
        if mode == MODE_LINK {
            let mut target = Vec::new();
            bytes.take(MAX_TARGET_BYTES).read_to_end(&mut target).map_err(WriteError::Source)?;
            self.writer.link(path, &target)?;
        } else {
            let written = self.writer.file(path, mode & 0o777, size, oid, bytes);
            if let Err(WriteError::Source(_)) = written {
                // What could be read of it.
                self.writer.remove(path)?;
            }
            written?;
        }
        let skipped = WriteError::Unsupported("a symbolic link without a target");
        self.rows().last().filter(|row| row.path == path).cloned().ok_or(skipped)
    }

    /// Creates a folder.
    pub(crate) fn folder(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.writer.folder(path)
    }
}

fn outcome_of(expected: Sha256, written: Result<ManifestRow, WriteError>) -> io::Result<FileOutcome> {
    match written {
        Ok(row) if Sha256::from_bytes(row.sha256) == expected => Ok(FileOutcome::Written),
        Ok(_) => Ok(FileOutcome::Wrong),
        Err(WriteError::Source(error)) if error.kind() == io::ErrorKind::InvalidData => Ok(FileOutcome::Lost(error)),
        Err(error) => Err(io_error(error)),
    }
}

/// Converts an error of writing. What a tree cannot contain was not recorded by this service.
pub(crate) fn io_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Source(error) | WriteError::Fatal(ImportError::Io(error)) => error,
        WriteError::Unsupported(reason) => io::Error::new(io::ErrorKind::InvalidData, reason),
        WriteError::Fatal(error) => io::Error::other(error),
    }
}
