//! Readers and writers that hash and count what passes through them.

use std::io::{self, Read, Write};

use model::Sha256;
use sha2::Digest as _;

/// Hashes and counts what is read or written through it.
pub(crate) struct Hashing<T> {
    pub(crate) inner: T,
    digest: sha2::Sha256,
    pub(crate) bytes: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, digest: sha2::Sha256::new(), bytes: 0 }
    }

    /// Returns the hash of everything so far.
    pub(crate) fn sha256(&self) -> Sha256 {
        Sha256::from_bytes(self.digest.clone().finalize().into())
    }

    fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader that fails after `left` bytes: the bound on what an archive may unpack to.
pub(crate) struct Bounded<'a, R> {
    pub(crate) inner: R,
    pub(crate) left: &'a mut u64,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => *self.left = left,
            None => return Err(io::Error::other("the archive unpacks to more bytes than the limit")),
        }
        Ok(count)
    }
}
