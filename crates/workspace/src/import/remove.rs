//! Trees removed by folder handles: no link is followed, no depth is too deep, no permission bit keeps a file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::fresh_name;

/// Removes what is at `name` in `dir`; nothing there is no error.
///
/// A folder that is not empty is moved up beside those that wait, so that only one handle is open however deep the tree.
pub(crate) fn tree(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let Some(root) = open(dir, name)? else { return remove_file(dir, name) };
    empty(&root, &root)?;
    // Those that were moved up lie in the root now, and more come up as they are emptied.
    while let Some(next) = any_folder(&root)? {
        if let Some(folder) = open(root.as_fd(), &next)? {
            empty(&folder, &root)?;
        }
        remove_folder(root.as_fd(), &next)?;
    }
    remove_folder(dir, name)
}

/// Removes everything in `folder`, which stays, and so do the names in `keep`.
pub(crate) fn all_in(folder: &OwnedFd, keep: &[&str]) -> io::Result<()> {
    for (name, _) in entries(folder)? {
        if keep.iter().any(|keep| keep.as_bytes() == name) {
            continue;
        }
        tree(folder.as_fd(), &name)?;
    }
    Ok(())
}

/// Removes the files of `folder`, and its folders, or moves them up to `root`.
fn empty(folder: &OwnedFd, root: &OwnedFd) -> io::Result<()> {
    let is_root = std::ptr::eq(folder, root);
    for (name, is_folder) in entries(folder)? {
        if !is_folder {
            remove_file(folder.as_fd(), &name)?;
            continue;
        }
        match rustix::fs::unlinkat(folder, &name[..], AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) if is_root => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        // A folder that may not be written to cannot be moved either.
        drop(open(folder.as_fd(), &name)?);
        match rustix::fs::renameat(folder, &name[..], root, &*fresh_name(".up-")) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Opens a folder and makes it ours to change; `None` where `name` is no folder.
fn open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS) => {
            // Not even readable: the bits are ours to set, as long as it is a folder, which the next line checks again.
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                return Ok(None);
            }
            rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(dir, name, flags, Mode::empty())?
        }
        Err(errno) => return Err(errno.into()),
    };
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
    }
    Ok(Some(fd))
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<(Vec<u8>, bool)>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()),
            _ => false,
        };
        entries.push((name.to_owned(), is_folder));
    }
    Ok(entries)
}

fn any_folder(root: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    for entry in Dir::read_from(root)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

fn remove_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn remove_folder(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
