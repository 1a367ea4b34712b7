//! The bytes of an open file of a tree, wherever its layer keeps them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::{LogicalPath, PathRejected, Sha256};
use rustix::fs::Stat;
use rustix::io::Errno;

use super::{Blocking, GuardError, Root};
use crate::base_files::{BaseEntry, BaseFiles};
use crate::file_bytes::FileBytes;
use crate::hashing::copy_hashed;
use crate::stamp::FileStamp;

/// An open file or folder of a tree.
#[derive(Debug)]
pub(crate) enum OpenFile {
    /// Of the run's own layer, or of a mount.
    Own(OwnedFd),
    /// Of the base.
    Base(Arc<BaseFiles>, BaseEntry),
}

/// The bytes of a file as a stream.
#[derive(Debug)]
pub(crate) struct FileReader {
    file: OpenFile,
    offset: u64,
}

impl OpenFile {
    /// Returns the file's metadata.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Self::Own(file) => rustix::fs::fstat(file),
            Self::Base(files, entry) => Ok(files.stat(*entry)),
        }
    }

    /// Returns the bytes, which are not [checked](Self::check).
    ///
    /// # Errors
    ///
    /// If it is a folder of the base. Reading a folder of the run fails too.
    pub(crate) fn bytes(&self) -> io::Result<FileBytes<'_>> {
        match self {
            Self::Own(file) => Ok(FileBytes::new(file, 0, u64::MAX)),
            Self::Base(files, BaseEntry::File(file)) => Ok(files.unchecked(*file)),
            Self::Base(_, BaseEntry::Folder(_)) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// Reads bytes from `offset` on. Returns their number, which is 0 at the end only.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes()?.read_at(buffer, offset, Blocking::Allowed)
    }

    /// Checks a file of the base, whose bytes are known. Anything else passes.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file was altered ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Self::Base(files, BaseEntry::File(file)) => files.check(*file),
            Self::Own(_) | Self::Base(..) => Ok(()),
        }
    }

    /// As [`check`](Self::check), for `bytes`, all bytes of the file.
    pub(crate) fn check_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Base(files, BaseEntry::File(file)) => files.check_bytes(*file, bytes),
            Self::Own(_) | Self::Base(..) => Ok(()),
        }
    }

    /// Whether [`check`](Self::check) would have to read the file.
    pub(crate) fn is_unchecked(&self) -> bool {
        matches!(self, Self::Base(files, BaseEntry::File(file)) if !files.is_checked(*file))
    }

    /// Returns a reader of all bytes, which are [checked](Self::check).
    pub(crate) fn into_reader(self) -> io::Result<FileReader> {
        self.check()?;
        Ok(FileReader { file: self, offset: 0 })
    }
}

impl Root {
    /// Returns the hash and the stamp of the file at `path`, of a symbolic link that of its target. `None` if there is neither, or the file
    /// changed meanwhile.
    pub(crate) fn hash(&self, path: &LogicalPath) -> io::Result<Option<(Sha256, FileStamp)>> {
        let opened = match self.open_unlinked(path) {
            Ok(opened) => opened,
            Err(GuardError::Rejected(PathRejected::LinkInMutation)) => {
                let link = self.find_link(path)?;
                return Ok(link.map(|link| (Sha256::of(&link.target), FileStamp::of(&link.stat))));
            }
            Err(error) => {
                error.unless_disk()?;
                return Ok(None);
            }
        };
        if !opened.file_type().is_file() || opened.is_hard_linked() {
            return Ok(None);
        }
        let before = FileStamp::of(&opened.stat);
        let mut file = opened.file.into_reader()?;
        let (sha256, _) = copy_hashed(&mut file, &mut io::sink(), before.size)?;
        let after = FileStamp::of(&file.stat()?);
        Ok((before == after).then_some((sha256, after)))
    }
}

impl From<File> for OpenFile {
    fn from(file: File) -> Self {
        Self::Own(file.into())
    }
}

impl FileReader {
    /// Begins again with the first byte.
    pub(crate) fn rewind(&mut self) {
        self.offset = 0;
    }

    /// Returns the file's metadata.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        self.file.stat()
    }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
