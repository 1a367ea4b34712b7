//! Writing the files of a snapshot into another folder, from the base and the ledger alone.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::{LogicalPath, Sha256, is_link_mode};

use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::base_files::BaseEntry;
use crate::dir::entries;
use crate::guard::{FOLDER_MODE, OpenFile, open_ambient_folder};
use crate::tree_writer::TreeWriter;
use crate::{Base, WorkspaceError};

/// The largest link that is written. The kernel's limit is 4 KiB.
const MAX_TARGET_BYTES: u64 = 64 << 10;

/// The result of a rebuild.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// The number of files with the expected hash.
    pub files: u64,
    /// The size of these files in bytes.
    pub bytes: u64,
    /// The number of symbolic links.
    pub links: u64,
    /// Files with another hash than expected.
    pub wrong: Vec<LogicalPath>,
    /// Files that were not written, because the ledger does not store their bytes.
    pub not_kept: Vec<LogicalPath>,
    /// Files that were not written, because their stored bytes were altered.
    pub lost: Vec<LogicalPath>,
}

/// Writes the files of a snapshot.
struct SnapshotWriter {
    tree: TreeWriter,
    report: RebuildReport,
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
        let files = self.load()?;
        for (path, file) in snapshot.files().iter().filter(|(path, _)| !snapshot.has_written(path)) {
            let Some(index) = files.manifest.get(path.as_str().as_bytes()) else { continue };
            let bytes = OpenFile::Base(Arc::clone(&files), BaseEntry::File(index)).into_reader();
            writer.write(path, file, bytes, files.manifest.size(index))?;
        }
        writer.write_changed(snapshot, contents)?;
        Ok(writer.report)
    }
}

impl Snapshot {
    /// Writes the newest version of each file that a record wrote into the folder `to`.
    pub(crate) fn write_changed(&self, to: OwnedFd, contents: &dyn StoredContents) -> io::Result<RebuildReport> {
        let mut writer = SnapshotWriter::new(to);
        writer.write_changed(self, contents)?;
        Ok(writer.report)
    }
}

impl SnapshotWriter {
    fn new(to: OwnedFd) -> Self {
        Self { tree: TreeWriter::new(to, FOLDER_MODE), report: RebuildReport::default() }
    }

    fn write_changed(&mut self, snapshot: &Snapshot, contents: &dyn StoredContents) -> io::Result<()> {
        for (path, file) in snapshot.changed() {
            let ContentLocation::Ledger { seq, .. } = file.location else { continue };
            if let Some(bytes) = contents.content(seq, &file.sha256)? {
                self.write(path, file, Ok(&*bytes), bytes.len() as u64)?;
            } else if let Some((size, bytes)) = contents.large(&file.sha256)? {
                self.write(path, file, Ok(bytes), size)?;
            } else {
                self.report.not_kept.push(path.clone());
            }
        }
        Ok(())
    }

    /// Writes one file or link and notes how that ended.
    fn write(
        &mut self,
        path: &LogicalPath,
        file: &SnapshotFile,
        bytes: io::Result<impl Read>,
        size: u64,
    ) -> io::Result<()> {
        let report = &mut self.report;
        match bytes.and_then(|mut bytes| write_file(&mut self.tree, path, file.git_mode(), &mut bytes, size)) {
            Ok((sha256, _)) if sha256 != file.sha256 => report.wrong.push(path.clone()),
            Ok(_) if file.is_link => report.links += 1,
            Ok((_, size)) => {
                report.files += 1;
                report.bytes += size;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => report.lost.push(path.clone()),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn write_file(
    tree: &mut TreeWriter,
    path: &LogicalPath,
    mode: u32,
    bytes: &mut dyn Read,
    size: u64,
) -> io::Result<(Sha256, u64)> {
    let path = path.as_str().as_bytes();
    if !is_link_mode(mode) {
        return tree.file(path, mode, bytes, size);
    }
    let mut target = Vec::new();
    bytes.take(MAX_TARGET_BYTES).read_to_end(&mut target)?;
    tree.link(path, &target)?;
    Ok((Sha256::of(&target), 0))
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
