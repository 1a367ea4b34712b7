//! Files of a folder by handles. No symbolic link is followed.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// A file opens without waiting for the other end of a FIFO, and no terminal takes over.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the root of a checkout by its path.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, FOLDER, Mode::empty())
}

pub(crate) fn open_folder(dir: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

pub(crate) fn open_file(dir: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    rustix::fs::openat(dir, name, READ, Mode::empty()).map(File::from)
}

/// Creates a file that must not exist.
pub(crate) fn create_file(dir: impl AsFd, name: impl Arg, mode: u32) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode)).map(File::from)
}

/// Returns the metadata of an entry. `None` if there is none.
pub(crate) fn stat(dir: impl AsFd, name: impl Arg) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Removes a file or link. A missing one is no error.
pub(crate) fn unlink(dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Calls `each` with the entries of a folder, in the file system's order.
pub(crate) fn for_each_entry<E: From<Errno>>(
    dir: BorrowedFd<'_>,
    mut each: impl FnMut(&CStr, FileType) -> Result<(), E>,
) -> Result<(), E> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut file_type = entry.file_type();
        if file_type == FileType::Unknown {
            let Some(stat) = stat(dir, name)? else { continue };
            file_type = FileType::from_raw_mode(stat.st_mode);
        }
        each(name, file_type)?;
    }
    Ok(())
}

/// The folder of an entry, as far as it exists.
pub(crate) enum ParentFolder<'a> {
    /// It is there.
    Folder(BorrowedFd<'a>),
    /// It, or one above, does not exist.
    Missing,
    /// This path, which should be a folder, is something else.
    NoFolder(String),
}

/// The folders on the way to the last path, open: paths that are asked for in order share most of their way.
#[derive(Debug)]
pub(crate) struct FolderCursor {
    root: OwnedFd,
    open: Vec<(String, OwnedFd)>,
}

impl FolderCursor {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, open: Vec::new() }
    }

    /// Forgets the open folders, some of which may have been removed.
    pub(crate) fn reset(&mut self) {
        self.open.clear();
    }

    /// Opens the folder of `path`.
    pub(crate) fn parent_of(&mut self, path: &str) -> Result<ParentFolder<'_>, Errno> {
        self.enter(path.rsplit_once('/').map_or("", |(folder, _)| folder), false)
    }

    /// Opens the folder at `path`, the root for an empty one, and creates what is missing if it `creates`.
    pub(crate) fn enter(&mut self, path: &str, creates: bool) -> Result<ParentFolder<'_>, Errno> {
        let names = || path.split('/').filter(|name| !name.is_empty());
        let shared = names().zip(&self.open).take_while(|(name, (open, _))| name == open).count();
        self.open.truncate(shared);
        for name in names().skip(shared) {
            let dir = self.open.last().map_or(self.root.as_fd(), |(_, dir)| dir.as_fd());
            let opened = match open_folder(dir, name) {
                Err(Errno::NOENT) if creates => {
                    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    open_folder(dir, name)
                }
                opened => opened,
            };
            match opened {
                Ok(dir) => self.open.push((name.to_owned(), dir)),
                Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(ParentFolder::Missing),
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let above: String = self.open.iter().flat_map(|(name, _)| [name.as_str(), "/"]).collect();
                    return Ok(ParentFolder::NoFolder(above + name));
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(ParentFolder::Folder(self.open.last().map_or(self.root.as_fd(), |(_, dir)| dir.as_fd())))
    }
}

/// The last name of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
