//! Operations on the entries of one directory, through its handle. No symbolic link is followed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// How many bytes of entries the kernel is asked for at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// Opens the directory `name` in `dir`.
pub(crate) fn open_dir(dir: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Opens the directory `name` in `dir`, which is created if it is missing.
pub(crate) fn make_dir(dir: impl AsFd, name: &str, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(&dir, name, mode) {
        Ok(()) | Err(Errno::EXIST) => open_dir(dir, name),
        Err(errno) => Err(errno),
    }
}

/// Opens the file `name` in `dir` for reading, without blocking on a FIFO.
pub(crate) fn open_file(dir: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// How often a resolution that raced with a rename is retried. Against a writer that only replaces the file, about three
/// attempts in ten fail; with eight readers on two cores, eight failures in a row were measured.
pub(crate) const MAX_ATTEMPTS: u32 = 64;

/// Opens `path` in or under `dir` for reading. The kernel reports a rename elsewhere on the machine as `EAGAIN`.
pub(crate) fn open_under(dir: impl AsFd, path: impl Arg + Copy, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 1..MAX_ATTEMPTS {
        match rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
    }
    rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
}

/// Creates the file `name` in `dir`, readable and writable by the service only. Fails if the name exists.
pub(crate) fn create_file(dir: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Removes the file or symbolic link `name` from `dir`. A missing one is no error.
pub(crate) fn remove_file(dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    remove(dir, name, AtFlags::empty())
}

/// Removes the empty directory `name` from `dir`. A missing one is no error.
pub(crate) fn remove_dir(dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    remove(dir, name, AtFlags::REMOVEDIR)
}

fn remove(dir: impl AsFd, name: impl Arg, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Returns the first entries of `dir` with their types, in the file system's order: one more than `max` if there are more.
pub(crate) fn entries(dir: impl AsFd, max: usize) -> Result<Vec<(CString, FileType)>, Errno> {
    // The position in a folder belongs to its handle, which others may read from.
    let dir = open_dir(dir, c".")?;
    let mut entries = Vec::new();
    let read = each_entry(dir.as_fd(), &mut Vec::new(), |name, file_type| {
        entries.push((name.to_owned(), file_type));
        if entries.len() > max { Err(None) } else { Ok(()) }
    });
    match read {
        Err(Some(errno)) => Err(errno),
        Ok(()) | Err(None) => Ok(entries),
    }
}

/// Calls `visit` for every entry of `dir` with its type, in the file system's order.
pub(crate) fn each_entry<E: From<Errno>>(
    dir: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut visit: impl FnMut(&CStr, FileType) -> Result<(), E>,
) -> Result<(), E> {
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            // The folder was removed during the walk.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        if let Some(file_type) = known_type(dir, name, entry.file_type())? {
            visit(name, file_type)?;
        }
    }
    Ok(())
}

/// Whether `name` is `.` or `..`.
pub(crate) fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Returns the type of the entry `name`, asking the kernel where the file system did not report one. `None` if the entry
/// no longer exists.
pub(crate) fn known_type(dir: impl AsFd, name: &CStr, reported: FileType) -> Result<Option<FileType>, Errno> {
    if reported != FileType::Unknown {
        return Ok(Some(reported));
    }
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns `prefix` with a random suffix, which no other name has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The random keys of the standard hash maps suffice: names must differ, not be secret.
    let random = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
    format!("{prefix}{random:016x}")
}
