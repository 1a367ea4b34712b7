//! Room on the disk that is kept for the records of looks: on a full disk mutations are refused, and reads go on.
//!
//! A file beside the database takes the room. It goes when a commit finds the disk full, and comes back when there is room
//! again; until then nothing that changes files is taken.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The most that is kept, in bytes: tens of thousands of records.
const MOST: u64 = 16 << 20;
/// The share of the disk that is kept at most.
const SHARE: u64 = 16;
/// How much room there has to be besides, as a multiple of what is kept: whoever has just given it up does not take it again.
const BESIDES: u64 = 1;

/// The room that is kept, or was given up.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_held: bool,
}

impl Reserve {
    /// The reserve of `database`, taken where there is room. Blocks.
    pub(super) fn new(database: &Path) -> Self {
        let mut reserve = Self { path: place(database), is_held: false };
        if !reserve.is_held() {
            tracing::warn!("the disk of the database is full: only reads are taken until there is room");
        }
        reserve
    }

    /// Whether the room is kept. Where it was given up, it is taken again as soon as there is some. Blocks.
    pub(super) fn is_held(&mut self) -> bool {
        if !self.is_held {
            self.is_held = match take(&self.path) {
                Ok(()) => true,
                // A disk that cannot keep room ahead, or tells no size, is used as it is.
                Err(error) if error.kind() == ErrorKind::Unsupported => true,
                Err(_) => false,
            };
        }
        self.is_held
    }

    /// Gives the room to those who look; false where it has been given already. Blocks.
    pub(super) fn release(&mut self) -> bool {
        if !self.is_held {
            return false;
        }
        tracing::warn!("the disk of the database is full: only reads are taken until there is room");
        self.is_held = false;
        std::fs::remove_file(&self.path).is_ok()
    }
}

/// Gives up the reserve of a database that cannot be opened for want of room; false where it has none.
pub(super) fn give_up(database: &Path) -> bool {
    std::fs::remove_file(place(database)).is_ok()
}

fn place(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".reserve");
    PathBuf::from(name)
}

fn take(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = statvfs(folder)?;
    let (bytes, has_room) = wanted(disk.f_blocks, disk.f_bavail, disk.f_frsize)?;
    match std::fs::metadata(path) {
        // Left by an earlier process.
        Ok(kept) if kept.blocks().saturating_mul(512) >= bytes => return Ok(()),
        _ if !has_room => return Err(ErrorKind::StorageFull.into()),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file: File = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, bytes);
    if allocated.is_err() {
        // Part of it is no use to anybody.
        std::fs::remove_file(path)?;
    }
    Ok(allocated?)
}

/// How many bytes are kept on a disk of so many blocks, and whether there is room for them. `Unsupported` where the disk does
/// not tell how large it is, as ramfs.
fn wanted(blocks: u64, available: u64, block_bytes: u64) -> io::Result<(u64, bool)> {
    if blocks == 0 {
        return Err(ErrorKind::Unsupported.into());
    }
    let bytes = MOST.min(blocks.saturating_mul(block_bytes) / SHARE).max(1);
    Ok((bytes, available.saturating_mul(block_bytes) > bytes.saturating_mul(1 + BESIDES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_tell_its_size_is_not_taken_for_a_full_one() {
        assert_eq!(wanted(0, 0, 4096).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(wanted(1 << 20, 0, 4096).unwrap(), (MOST, false));
        assert_eq!(wanted(1 << 20, 1 << 19, 4096).unwrap(), (MOST, true));
        assert_eq!(wanted(256, 256, 4096).unwrap(), (65_536, true));
    }
}
