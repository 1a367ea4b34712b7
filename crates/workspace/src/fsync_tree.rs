//! Syncing an imported tree, so that it survives a power failure before it becomes a run.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags};

use crate::apply::sync_in_parallel;
use crate::dir::entries;

/// Larger imports are synced with everything else that the file system has yet to write: synced one by one, twenty thousand
/// files take minutes. Smaller ones do not wait for other data.
const MAX_SINGLY: usize = 64;

/// Syncs everything in `dir`, which contains about `entries` files and folders.
pub(crate) fn sync(dir: &OwnedFd, entries: usize) -> io::Result<()> {
    if entries > MAX_SINGLY {
        return Ok(rustix::fs::syncfs(dir)?);
    }
    let mut handles = vec![dir.try_clone()?];
    let mut at = 0;
    while at < handles.len() {
        let more = files_and_folders(&handles[at])?;
        handles.extend(more);
        at += 1;
    }
    // The deepest first, so that no name survives without its bytes.
    handles.reverse();
    sync_in_parallel(&handles, |handle| Ok(rustix::fs::fsync(handle)?))
}

/// Opens the entries of `fd`, if it is a folder. A symbolic link has nothing to sync but its name.
fn files_and_folders(fd: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    if !FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir() {
        return Ok(Vec::new());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = entries(fd, usize::MAX)?.into_iter().filter(|(_, file_type)| *file_type != FileType::Symlink);
    found.map(|(name, _)| Ok(rustix::fs::openat(fd, &*name, flags, Mode::empty())?)).collect()
}
