//! What a run's tree holds, counted by a walk: for a run whose ledger does not know.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use model::Disk;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Workspace;

impl Workspace {
    /// Counts every file and link of the tree, hidden and ignored ones too. What goes meanwhile is not counted.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn disk_usage(&self) -> io::Result<Disk> {
        let mut disk = Disk::default();
        measure(self.tree().root.dir(), &mut disk)?;
        Ok(disk)
    }
}

/// Adds what lies in `folder`. One handle a level is open.
fn measure(folder: BorrowedFd<'_>, disk: &mut Disk) -> io::Result<()> {
    let mut folders = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => folders.push(name.to_owned()),
            FileType::RegularFile => {
                disk.files += 1;
                disk.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
            FileType::Symlink => disk.files += 1,
            _ => {}
        }
    }
    for name in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, &*name, flags, Mode::empty()) {
            Ok(inner) => measure(inner.as_fd(), disk)?,
            // Gone, or another thing by now; or a folder that nobody may look into, whose files no call of a run has made.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
