//! Removing a tree through folder handles: it follows no link, and neither depth nor permission bits stop it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::dir::{entries, fresh_name, open_dir, remove_dir, remove_file};

/// Removes what is at `name` in `dir`. A missing entry is no error.
///
/// A subfolder that is not empty is moved up into the root, so that only one more handle is open however deep the tree is.
pub(crate) fn remove_tree(dir: BorrowedFd<'_>, name: impl Arg + Copy) -> io::Result<()> {
    let Some(root) = open(dir, name)? else { return Ok(remove_file(dir, name)?) };
    empty(&root, &root)?;
    // The folders that were moved up are in the root now, and each may move up more.
    while let Some((next, _)) = entries(&root, 0)?.pop() {
        if let Some(folder) = open(root.as_fd(), &*next)? {
            empty(&folder, &root)?;
        }
        remove_dir(&root, &*next)?;
    }
    Ok(remove_dir(dir, name)?)
}

/// Removes everything in `folder` except the names in `keep`.
pub(crate) fn remove_all_in(folder: &OwnedFd, keep: &[&str]) -> io::Result<()> {
    for (name, _) in entries(folder, usize::MAX)? {
        if !keep.iter().any(|keep| keep.as_bytes() == name.to_bytes()) {
            remove_tree(folder.as_fd(), &*name)?;
        }
    }
    Ok(())
}

/// Removes the files of `folder`, and removes its folders or moves them up to `root`.
fn empty(folder: &OwnedFd, root: &OwnedFd) -> io::Result<()> {
    let is_root = std::ptr::eq(folder, root);
    for (name, file_type) in entries(folder, usize::MAX)? {
        if !file_type.is_dir() {
            remove_file(folder, &*name)?;
            continue;
        }
        match remove_dir(folder, &*name) {
            Ok(()) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) if is_root => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Sets the permission bits: a folder that is not writable cannot be moved either.
        drop(open(folder.as_fd(), &*name)?);
        match rustix::fs::renameat(folder, &*name, root, &*fresh_name(".up-")) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Opens a folder, and makes it writable. `None` if `name` is not a folder.
fn open(dir: BorrowedFd<'_>, name: impl Arg + Copy) -> io::Result<Option<OwnedFd>> {
    let fd = match open_dir(dir, name) {
        Ok(fd) => fd,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS) => {
            // Not even readable. The bits may be changed if it is a folder, which opening it checks again.
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                return Ok(None);
            }
            rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            open_dir(dir, name)?
        }
        Err(errno) => return Err(errno.into()),
    };
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
    }
    Ok(Some(fd))
}
