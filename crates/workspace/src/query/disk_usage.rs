//! The disk usage of a run's tree, counted by a walk: for a run whose ledger does not know it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use model::Disk;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::dir::{entries, open_dir};

use crate::Workspace;

impl Workspace {
    /// Counts every file and link of the tree, including hidden and ignored ones.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn disk_usage(&self) -> io::Result<Disk> {
        let mut disk = Disk::default();
        add_usage(self.tree().root.dir(), &mut disk)?;
        Ok(disk)
    }
}

/// Adds the contents of `folder`. Keeps one handle open for each level.
fn add_usage(folder: BorrowedFd<'_>, disk: &mut Disk) -> io::Result<()> {
    let mut folders = Vec::new();
    for (name, _) in entries(folder, usize::MAX)? {
        let stat = match rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => folders.push(name),
            FileType::RegularFile => {
                disk.files += 1;
                disk.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
            FileType::Symlink => disk.files += 1,
            _ => {}
        }
    }
    for name in folders {
        match open_dir(folder, &*name) {
            Ok(inner) => add_usage(inner.as_fd(), disk)?,
            // It was removed or replaced meanwhile; or nobody may read it, so that no call of a run created files in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
