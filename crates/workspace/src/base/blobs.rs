//! Reading the base's bytes, by one `git cat-file` for any number of files.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::AtomicBool;

use crate::git::{Bounds, Git, GitError, hex};

/// The time limit of one call.
const SECONDS: u64 = 120;

/// A reader of blobs.
pub(crate) struct Blobs<'a> {
    git: &'a Git,
}

/// A reader with git running.
pub(crate) struct OpenBlobs {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl<'a> Blobs<'a> {
    pub(crate) fn new(git: &'a Git) -> Self {
        Self { git }
    }

    /// Runs `read` with git running. Setting `cancel` ends it.
    pub(crate) fn with<T>(
        &self,
        cancel: &AtomicBool,
        read: impl FnOnce(&mut OpenBlobs) -> io::Result<T>,
    ) -> Result<T, GitError> {
        let stop = || cancel.load(std::sync::atomic::Ordering::Relaxed);
        let bounds = Bounds { stop: &stop, ..Bounds::seconds(SECONDS) };
        self.git.run(&["cat-file", "--batch"], &bounds, |to, stdout| {
            read(&mut OpenBlobs { to, from: BufReader::with_capacity(64 * 1024, stdout) })
        })
    }
}

impl OpenBlobs {
    /// Returns the bytes of one blob.
    pub(crate) fn get(&mut self, oid: &[u8; 20]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(oid, &mut |from, size| {
            bytes.reserve_exact(usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?);
            from.read_to_end(&mut bytes).map(drop)
        })?;
        Ok(bytes)
    }

    /// Calls `take` with one blob's bytes and size. `take` need not read all of them.
    pub(crate) fn read(
        &mut self,
        oid: &[u8; 20],
        take: &mut dyn FnMut(&mut dyn Read, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        writeln!(self.to, "{}", hex(oid))?;
        let mut line = String::new();
        self.from.by_ref().take(256).read_line(&mut line)?;
        let size = line.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
        let (true, Some(size)) = (line.contains(" blob "), size) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a file is missing from the base"));
        };
        let mut bytes = self.from.by_ref().take(size);
        take(&mut bytes, size)?;
        io::copy(&mut bytes, &mut io::sink())?;
        let mut newline = [0];
        self.from.read_exact(&mut newline)
    }
}
