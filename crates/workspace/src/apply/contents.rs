//! Contents that are in a run's `tmp/` before a journal names them: any number of them, of any size.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::Sha256;

use super::stage::fsync;
use crate::Workspace;
use crate::base_files::HEAD_BYTES;
use crate::dir::{fresh_name, open_file, remove_file};
use crate::file_bytes::FileBytes;
use crate::hashing::copy_hashed;
use crate::temp_entry::TempEntry;

/// The prefix of the name of a content that is staged before the journal names it.
const STAGED_PREFIX: &str = "large-";

/// A content that was staged and synced before the journal names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// Its name in the run's `tmp/`, for [`StepBytes::Staged`](model::StepBytes::Staged).
    pub name: String,
    /// The hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its first bytes, at most 8 KiB, which its kind is detected from.
    pub head: Vec<u8>,
}

/// Staged contents that no journal names yet. Dropping this removes them: whoever journals them takes them over by
/// [`hand_over`](Self::hand_over).
#[derive(Debug)]
pub struct StagedContents {
    files: Vec<TempEntry>,
    tmp: Arc<OwnedFd>,
}

impl Workspace {
    /// Returns what takes contents that are staged before the journal names them.
    pub fn staged_contents(&self) -> StagedContents {
        StagedContents { files: Vec::new(), tmp: self.tmp().clone() }
    }

    /// Opens a staged content.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn open_staged(&self, name: &str) -> io::Result<impl Read + Send + use<>> {
        Ok(open_file(self.tmp(), name)?)
    }

    /// Removes a staged file that no journal names. A missing one is no error.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn discard(&self, name: &str) -> io::Result<()> {
        if self.kept().remove_later(name) { Ok(()) } else { Ok(remove_file(self.tmp(), name)?) }
    }

    /// Returns a new name for a staged file.
    pub fn new_staged_name() -> String {
        fresh_name(STAGED_PREFIX)
    }
}

impl StagedContents {
    /// Writes and syncs a file of any size. Uses constant memory.
    ///
    /// # Errors
    ///
    /// If the disk or `from` fails, or `from` has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn stage(&mut self, from: &mut dyn Read, max_bytes: u64) -> io::Result<StagedFile> {
        let (entry, mut file) = TempEntry::create_file(&self.tmp, STAGED_PREFIX)?;
        let (sha256, size_bytes) = copy_bounded(from, &mut file, max_bytes)?;
        fsync(&file)?;
        let head = FileBytes::new(&file, 0, size_bytes).chunk(0, HEAD_BYTES)?;
        let staged = StagedFile { name: entry.name().to_owned(), sha256, size_bytes, head };
        self.files.push(entry);
        Ok(staged)
    }

    /// Returns how many files there are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Leaves the files called `journalled` to the journal, with their entries synced. The others are removed.
    ///
    /// # Errors
    ///
    /// If the disk fails. Nothing remains then.
    pub fn hand_over(self, journalled: &[String]) -> io::Result<()> {
        let journalled: HashSet<&str> = journalled.iter().map(String::as_str).collect();
        let mut handed_over = self.files.iter().filter(|file| journalled.contains(file.name())).peekable();
        if handed_over.peek().is_some() {
            fsync(&self.tmp)?;
        }
        handed_over.for_each(TempEntry::leave);
        Ok(())
    }
}

/// Bytes in a file without a name in a run's `tmp/`, which is gone with the process or when this is dropped.
#[derive(Debug)]
pub struct SpooledFile {
    file: File,
    /// The hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
}

impl Workspace {
    /// Writes what `from` has to a file without a name. Uses constant memory. Nothing is synced.
    ///
    /// # Errors
    ///
    /// If the disk or `from` fails, or `from` has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn spool(&self, from: &mut dyn Read, max_bytes: u64) -> io::Result<SpooledFile> {
        self.spooled(|file| copy_bounded(from, file, max_bytes))
    }

    /// As [`spool`](Self::spool), of what `write` writes.
    ///
    /// # Errors
    ///
    /// If the disk or `write` fails.
    pub fn spool_written(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<SpooledFile> {
        self.spooled(|file| write_hashed(file, write))
    }

    fn spooled(&self, write: impl FnOnce(&mut File) -> io::Result<(Sha256, u64)>) -> io::Result<SpooledFile> {
        let (entry, mut file) = TempEntry::create_file(self.tmp(), "spool-")?;
        drop(entry);
        let (sha256, size_bytes) = write(&mut file)?;
        Ok(SpooledFile { file, sha256, size_bytes })
    }
}

impl SpooledFile {
    /// Reads the bytes from the first on.
    pub fn reader(&self) -> impl Read + '_ {
        FileBytes::new(&self.file, 0, self.size_bytes)
    }
}

/// Copies `from` to `to`, unless it has more than `max_bytes`. Returns the hash and the number of the bytes.
fn copy_bounded(from: &mut dyn Read, to: &mut File, max_bytes: u64) -> io::Result<(Sha256, u64)> {
    let (sha256, size_bytes) = copy_hashed(&mut from.take(max_bytes.saturating_add(1)), to, u64::MAX)?;
    if size_bytes > max_bytes { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok((sha256, size_bytes)) }
}

/// Calls `write` with `file`, which is empty. Returns the hash and the number of the bytes that it wrote.
fn write_hashed(file: &mut File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<(Sha256, u64)> {
    write(file)?;
    file.rewind()?;
    copy_hashed(file, &mut io::sink(), u64::MAX)
}
