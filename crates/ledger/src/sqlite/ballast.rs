//! The ballast file: disk space that is reserved for the records of reads. If a commit fails because the disk is full, the file is
//! removed, so that reads can still be recorded. Mutations are rejected until the file can be created again.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::connection::with_suffix;

/// Maximum size of the file: enough for tens of thousands of records.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum share of the disk, as a divisor.
const DISK_SHARE: u64 = 16;
/// Free space required to create the file, as a multiple of its size, so that it is not created and removed repeatedly.
const REQUIRED_FREE: u64 = 2;
/// The message for rejected mutations.
pub(crate) const DISK_FULL: &str = "the disk of the database is full: only reads are accepted until space is freed";

/// The ballast file of a database.
#[derive(Debug)]
pub(crate) struct BallastFile {
    path: PathBuf,
    exists: bool,
}

impl BallastFile {
    /// Creates the file if the disk has space for it. Blocks.
    pub(crate) fn new(database: &Path) -> Self {
        let mut ballast = Self { path: with_suffix(database, ".reserve"), exists: false };
        if !ballast.ensure() {
            tracing::warn!("{DISK_FULL}");
        }
        ballast
    }

    /// Whether the file exists, as far as this process knows.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Creates the file if it does not exist and the disk has space for it. Returns whether it exists. Blocks.
    pub(crate) fn ensure(&mut self) -> bool {
        if !self.exists {
            self.exists = match create(&self.path) {
                Ok(()) => true,
                // A file system that cannot allocate space or report its size is used without a ballast file.
                Err(error) if error.kind() == ErrorKind::Unsupported => true,
                Err(_) => false,
            };
        }
        self.exists
    }

    /// Removes the file to free its space. Returns false if it was removed before. Blocks.
    pub(crate) fn release(&mut self) -> bool {
        if !self.exists {
            return false;
        }
        tracing::warn!("{DISK_FULL}");
        self.exists = false;
        std::fs::remove_file(&self.path).is_ok()
    }
}

/// Removes the ballast file of a database that cannot be opened because the disk is full. Returns false if none exists.
pub(crate) fn remove(database: &Path) -> bool {
    std::fs::remove_file(with_suffix(database, ".reserve")).is_ok()
}

fn create(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = statvfs(folder)?;
    let (bytes, has_space) = size(disk.f_blocks, disk.f_bavail, disk.f_frsize)?;
    match std::fs::metadata(path) {
        // Created by an earlier process.
        Ok(found) if found.blocks().saturating_mul(512) >= bytes => return Ok(()),
        _ if !has_space => return Err(ErrorKind::StorageFull.into()),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file: File = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, bytes);
    if allocated.is_err() {
        // A partly allocated file is useless.
        std::fs::remove_file(path)?;
    }
    Ok(allocated?)
}

/// Returns the size of the file on a disk of `blocks` blocks, and whether there is space for it. `Unsupported` if the file
/// system does not report its size, as ramfs does not.
fn size(blocks: u64, available: u64, block_bytes: u64) -> io::Result<(u64, bool)> {
    if blocks == 0 {
        return Err(ErrorKind::Unsupported.into());
    }
    let bytes = MAX_BYTES.min(blocks.saturating_mul(block_bytes) / DISK_SHARE).max(1);
    Ok((bytes, available.saturating_mul(block_bytes) > bytes.saturating_mul(REQUIRED_FREE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_report_its_size_is_not_full() {
        assert_eq!(size(0, 0, 4096).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(size(1 << 20, 0, 4096).unwrap(), (MAX_BYTES, false));
        assert_eq!(size(1 << 20, 1 << 19, 4096).unwrap(), (MAX_BYTES, true));
        assert_eq!(size(256, 256, 4096).unwrap(), (65_536, true));
    }
}
