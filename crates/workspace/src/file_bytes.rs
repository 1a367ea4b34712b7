//! The bytes of files, read at any offset or as a stream.

use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags};

/// Whether a call may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It may wait.
    Allowed,
    /// It must not: it fails with `WouldBlock` instead.
    Forbidden,
}

/// The bytes of a file, or a part of them. Reading does not move the file's own position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileBytes<'a> {
    file: BorrowedFd<'a>,
    start: u64,
    /// How many there are at most.
    size: u64,
}

impl<'a> FileBytes<'a> {
    /// Returns the `size` bytes of `file` from `start` on; fewer if the file ends before.
    pub(crate) fn new(file: &'a impl AsFd, start: u64, size: u64) -> Self {
        Self { file: file.as_fd(), start, size }
    }

    /// Reads bytes from `offset` on. Returns their number, which is 0 at the end only. What must not block fails with `WouldBlock` if
    /// the bytes are not in the page cache.
    pub(crate) fn read_at(self, buffer: &mut [u8], offset: u64, blocking: Blocking) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let flags = match blocking {
            Blocking::Allowed => ReadWriteFlags::empty(),
            Blocking::Forbidden => ReadWriteFlags::NOWAIT,
        };
        loop {
            let mut buffers = [IoSliceMut::new(&mut buffer[..count])];
            match rustix::io::preadv2(self.file, &mut buffers, self.start + offset, flags) {
                Err(Errno::INTR) => {}
                // Some file systems cannot read without blocking; they count as slow.
                Err(Errno::OPNOTSUPP) if blocking == Blocking::Forbidden => return Err(Errno::AGAIN.into()),
                read => return Ok(read?),
            }
        }
    }

    /// Appends up to `most` bytes from `offset` on to `buffer`; fewer at the end only.
    pub(crate) fn append_to(
        self,
        buffer: &mut Vec<u8>,
        most: usize,
        offset: u64,
        blocking: Blocking,
    ) -> io::Result<()> {
        let start = buffer.len();
        buffer.resize(start + most, 0);
        let mut end = start;
        while end < buffer.len() {
            match self.read_at(&mut buffer[end..], offset + (end - start) as u64, blocking) {
                Ok(0) => break,
                Ok(count) => end += count,
                Err(error) => {
                    buffer.truncate(start);
                    return Err(error);
                }
            }
        }
        buffer.truncate(end);
        Ok(())
    }

    /// Returns up to `most` bytes from `offset` on, as one call reads them.
    pub(crate) fn chunk(self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; most];
        let count = self.read_at(&mut bytes, offset, Blocking::Allowed)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

impl Read for FileBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, 0, Blocking::Allowed)?;
        self.start += count as u64;
        self.size -= count as u64;
        Ok(count)
    }
}
