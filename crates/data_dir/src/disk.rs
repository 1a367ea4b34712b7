//! The free space of the disk of the data folder.

#![expect(clippy::disallowed_types, reason = "the folder is opened, not a file of a run")]

use std::fs::File;
use std::io;
use std::path::Path;

use model::Refusal;
use rustix::fs::{FallocateFlags, Mode, OFlags};

/// What a change of a small file needs, with its journal and its record.
const PROBE_BYTES: u64 = 64 * 1024;
/// The service warns when less than this is free, or less than a twentieth of a smaller disk.
const RESERVE_BYTES: u64 = 1 << 30;

/// Measures the disk of the data folder.
#[derive(Debug)]
pub struct DiskProbe {
    folder: File,
    /// The folder of the runs' files, which may be a disk of its own.
    runs: File,
}

/// The space of a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct DiskSpace {
    pub total: u64,
    /// Free for this process, whose user may not use blocks that are reserved for root.
    pub free: u64,
}

impl DiskProbe {
    /// Opens the data folder.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be opened.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let runs = File::open(data_dir.join("workspaces"))?;
        Ok(Self { folder: File::open(data_dir)?, runs })
    }

    /// Returns why a change would be refused: nothing can be written to the disk of the data folder, or to that of the runs' files.
    pub fn unwritable(&self) -> Option<Refusal> {
        [("the data folder", &self.folder), ("the runs' files", &self.runs)].into_iter().find_map(|(what, folder)| {
            let failed = try_write(folder).err()?;
            engine::unwritable(what, failed.kind())
        })
    }

    /// Measures the disk.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn measure(&self) -> io::Result<DiskSpace> {
        let found = rustix::fs::fstatvfs(&self.folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskSpace { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

impl DiskSpace {
    /// Returns the free bytes below which the service warns.
    pub fn reserve(self) -> u64 {
        RESERVE_BYTES.min(self.total / 20)
    }
}

/// Reserves some space in a file without a name.
fn try_write(folder: &File) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, ".", flags, Mode::RUSR | Mode::WUSR)?;
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PROBE_BYTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_gibibyte_or_a_twentieth_of_a_small_disk() {
        let reserve = |total| DiskSpace { total, free: 0 }.reserve();
        assert_eq!((reserve(100 << 30), reserve(10 << 30)), (1 << 30, 512 << 20));
    }
}
