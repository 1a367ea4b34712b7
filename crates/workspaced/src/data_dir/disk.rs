//! The free space of the disk of the data folder.

#![expect(clippy::disallowed_types, reason = "the folder is opened, not a file of a run")]

use std::fs::File;
use std::io;
use std::path::Path;

/// Measures the disk of the data folder.
#[derive(Debug)]
pub(crate) struct DiskProbe {
    folder: File,
    /// Free bytes below which the service warns.
    reserve: u64,
}

/// The space of a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSpace {
    pub(crate) total: u64,
    /// Free for this process, whose user may not use blocks that are reserved for root.
    pub(crate) free: u64,
}

impl DiskProbe {
    /// Opens the data folder.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be opened.
    pub(crate) fn open(data_dir: &Path, reserve: u64) -> io::Result<Self> {
        Ok(Self { folder: File::open(data_dir)?, reserve })
    }

    /// Returns the free bytes below which the service warns.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Measures the disk.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub(crate) fn measure(&self) -> io::Result<DiskSpace> {
        let found = rustix::fs::fstatvfs(&self.folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskSpace { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}
