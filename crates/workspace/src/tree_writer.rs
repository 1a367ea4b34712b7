//! Writing files, links and folders into a folder that nobody else uses. No symbolic link is followed.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::Sha256;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::byte_path::{is_plain, split};
use crate::dir::{create_file, open_dir, remove_file};
use crate::hashing::copy_hashed;

/// Writes entries under a folder. Those of one folder are best written one after another.
pub(crate) struct TreeWriter {
    root: OwnedFd,
    /// The open folders on the path of the last entry, each with its path.
    open: Vec<(Vec<u8>, OwnedFd)>,
    folder_mode: Mode,
}

impl TreeWriter {
    /// Creates a writer into `root`, which gives new folders the permission bits `folder_mode`.
    pub(crate) fn new(root: OwnedFd, folder_mode: Mode) -> Self {
        Self { root, open: Vec::new(), folder_mode }
    }

    /// Creates the folder at `path`, unless something is there.
    pub(crate) fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        let mode = self.folder_mode;
        let (dir, name) = self.parent(path)?;
        make_dir(dir, name, mode)
    }

    /// Creates a symbolic link. Fails if something is at `path`.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Ok(rustix::fs::symlinkat(target, dir, name)?)
    }

    /// Creates a file with all of `content`, which is about `expected_size` bytes long, and returns its hash and size. Fails if
    /// something is at `path`. Nothing remains of a file whose content cannot be read.
    pub(crate) fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        content: &mut dyn Read,
        expected_size: u64,
    ) -> io::Result<(Sha256, u64)> {
        let (dir, name) = self.parent(path)?;
        let mut file = create_file(dir, name)?;
        let copied = copy_hashed(content, &mut file, expected_size);
        let done = copied.and_then(|copied| {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            Ok(copied)
        });
        if done.is_err() {
            remove_file(dir, name)?;
        }
        done
    }

    fn parent<'a>(&'a mut self, path: &'a [u8]) -> io::Result<(BorrowedFd<'a>, &'a [u8])> {
        let (folder, name) = split(path);
        if !is_plain(path) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not a plain relative one"));
        }
        Ok((self.enter(folder)?, name))
    }

    /// Opens the folder at `path`. Creates missing folders.
    fn enter(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        let is_above = |folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        while self.open.last().is_some_and(|(folder, _)| !is_above(folder)) {
            self.open.pop();
        }
        let mut start = self.open.last().map_or(0, |(folder, _)| folder.len() + 1);
        while start < path.len() {
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| start + at);
            let dir = self.open.last().map_or(&self.root, |(_, dir)| dir);
            make_dir(dir, &path[start..end], self.folder_mode)?;
            let dir = open_dir(dir, &path[start..end])?;
            self.open.push((path[..end].to_owned(), dir));
            start = end + 1;
        }
        Ok(self.open.last().map_or(&self.root, |(_, dir)| dir).as_fd())
    }
}

/// Creates a folder, unless something has its name.
pub(crate) fn make_dir(dir: impl AsFd, name: &[u8], mode: Mode) -> io::Result<()> {
    match rustix::fs::mkdirat(dir, name, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
