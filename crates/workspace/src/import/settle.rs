//! An import made to outlast a power cut, before it becomes a run.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Dir, FileType, Mode, OFlags};

/// Imports of more entries are synced with all else that the file system has yet to write: one by one, twenty thousand
/// files take minutes. Smaller ones do not wait for others' bytes.
const MAX_SINGLY: usize = 64;
/// How many syncs are under way at once: the disk takes several in one go.
const THREADS: usize = 4;

/// Syncs everything in `dir`, which holds about `entries` files.
pub(super) fn sync(dir: &OwnedFd, entries: usize) -> io::Result<()> {
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
    sync_all(&handles)
}

/// Opens what lies in `fd`, if it is a folder. Links have nothing to sync but their names.
fn files_and_folders(fd: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    if !FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir() {
        return Ok(Vec::new());
    }
    let mut handles = Vec::new();
    for entry in Dir::read_from(fd.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && entry.file_type() != FileType::Symlink {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            handles.push(rustix::fs::openat(fd, name, flags, Mode::empty())?);
        }
    }
    Ok(handles)
}

fn sync_all(handles: &[OwnedFd]) -> io::Result<()> {
    // The deepest first, so that no name is kept whose bytes are not.
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(handles.len()) {
            scope.spawn(|| {
                while let Some(handle) = handles.iter().nth_back(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(errno) = rustix::fs::fsync(handle) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(io::Error::from(errno));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
