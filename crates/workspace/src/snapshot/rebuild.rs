//! Rebuilding the files of a snapshot in another folder.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use model::LogicalPath;

use super::writer::{FileOutcome, SnapshotWriter};
use super::{Snapshot, StoredContents};
use crate::base_files::manifest::MODE_LINK;
use crate::byte_path::logical_path;
use crate::dir::entries;
use crate::guard::open_ambient_folder;
use crate::{Base, WorkspaceError};

/// The result of a rebuild.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// The number of files with the expected hash.
    pub files: u64,
    /// The number of symbolic links.
    pub links: u64,
    /// Files with another hash than expected.
    pub wrong: Vec<LogicalPath>,
    /// Files that were not written, because the ledger does not store their bytes.
    pub not_kept: Vec<LogicalPath>,
    /// Files that were not written, because their bytes in the base were altered.
    pub lost: Vec<LogicalPath>,
}

impl Base {
    /// Writes the files of a snapshot to `to`, a folder that is empty or is created, from the base and the ledger alone.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails; [`io::ErrorKind::DirectoryNotEmpty`] if `to` is not empty.
    pub fn rebuild(
        &self,
        snapshot: &Snapshot,
        to: &Path,
        contents: &dyn StoredContents,
    ) -> Result<RebuildReport, WorkspaceError> {
        let mut writer = SnapshotWriter::new(empty_folder(to)?);
        let mut report = RebuildReport::default();
        let mut on_outcome = |path: &[u8], mode: u32, outcome: FileOutcome| {
            report.add(path, mode, &outcome);
            Ok(())
        };
        let files = self.load()?;
        for path in snapshot.files().keys().filter(|path| !snapshot.has_written(path)) {
            let path = path.as_str().as_bytes();
            let Some(file) = files.manifest.get(path) else { continue };
            writer.write_base(&files, path, file, &mut on_outcome)?;
        }
        writer.write_changed(snapshot, contents, &mut on_outcome)?;
        Ok(report)
    }
}

impl RebuildReport {
    pub(crate) fn add(&mut self, path: &[u8], mode: u32, outcome: &FileOutcome) {
        match outcome {
            FileOutcome::Written if mode == MODE_LINK => self.links += 1,
            FileOutcome::Written => self.files += 1,
            FileOutcome::Wrong => self.wrong.extend(logical_path(path)),
            FileOutcome::NotStored => self.not_kept.extend(logical_path(path)),
            FileOutcome::Lost(_) => self.lost.extend(logical_path(path)),
        }
    }
}

/// Opens the folder `to`, which must be empty. Creates it if it is missing.
fn empty_folder(to: &Path) -> io::Result<OwnedFd> {
    match std::fs::create_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let dir = open_ambient_folder(to)?;
    if !entries(&dir, 0)?.is_empty() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    Ok(dir)
}
