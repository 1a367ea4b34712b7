//! Contents that are in a run's `tmp/` before a journal names them: any number of them, of any size.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use model::Sha256;

use super::stage::fsync;
use crate::Workspace;
use crate::dir::{create_file, fresh_name, open_file, remove_file};
use crate::hashing::copy_hashed;
use crate::kept_files::KeptFiles;

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
    names: Vec<String>,
    tmp: Arc<OwnedFd>,
    kept: Arc<KeptFiles>,
}

impl Workspace {
    /// Returns what takes contents that are staged before the journal names them.
    pub fn staged_contents(&self) -> StagedContents {
        StagedContents { names: Vec::new(), tmp: self.tmp().clone(), kept: self.kept().clone() }
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
        Ok(self.kept().remove(self.tmp(), name)?)
    }

    /// Returns a new name for a staged file.
    pub fn new_staged_name() -> String {
        fresh_name("large-")
    }
}

impl StagedContents {
    /// Writes and syncs a file of any size. Uses constant memory.
    ///
    /// # Errors
    ///
    /// If the disk or `from` fails, or `from` has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn stage(&mut self, from: &mut dyn Read, max_bytes: u64) -> io::Result<StagedFile> {
        self.add(|file| {
            let (sha256, size_bytes) = copy_hashed(&mut from.take(max_bytes.saturating_add(1)), file, u64::MAX)?;
            if size_bytes > max_bytes { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok((sha256, size_bytes)) }
        })
    }

    /// As [`stage`](Self::stage), of what `write` writes.
    ///
    /// # Errors
    ///
    /// If the disk or `write` fails.
    pub fn stage_written(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<StagedFile> {
        self.add(|file| {
            write(file)?;
            file.rewind()?;
            copy_hashed(file, &mut io::sink(), u64::MAX)
        })
    }

    fn add(&mut self, write: impl FnOnce(&mut File) -> io::Result<(Sha256, u64)>) -> io::Result<StagedFile> {
        let name = Workspace::new_staged_name();
        let mut file = create_file(&self.tmp, &*name)?;
        self.names.push(name.clone());
        let written = write(&mut file).and_then(|written| fsync(&file).map(|()| written));
        let written = written.and_then(|(sha256, size_bytes)| {
            let mut head = vec![0; crate::opened_file::HEAD_BYTES];
            let count = file.read_at(&mut head, 0)?;
            head.truncate(count);
            Ok(StagedFile { name: name.clone(), sha256, size_bytes, head })
        });
        if written.is_err() {
            self.names.pop();
            self.kept.remove(&self.tmp, &name)?;
        }
        written
    }

    /// Returns how many files there are.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Leaves the files called `journalled` to the journal, with their entries synced. The others are removed.
    ///
    /// # Errors
    ///
    /// If the disk fails. Nothing remains then.
    pub fn hand_over(mut self, journalled: &[String]) -> io::Result<()> {
        let journalled: HashSet<&String> = journalled.iter().collect();
        if self.names.iter().any(|name| journalled.contains(name)) {
            fsync(&self.tmp)?;
        }
        self.names.retain(|name| !journalled.contains(name));
        Ok(())
    }
}

impl Drop for StagedContents {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = self.kept.remove(&self.tmp, name) {
                // Nothing depends on it, and the folder is emptied when the run is opened again.
                tracing::warn!(%error, "a staged content could not be removed");
            }
        }
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
        let mut file = self.unnamed_file()?;
        let (sha256, size_bytes) = copy_hashed(&mut from.take(max_bytes.saturating_add(1)), &mut file, u64::MAX)?;
        if size_bytes > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(SpooledFile { file, sha256, size_bytes })
    }

    /// As [`spool`](Self::spool), of what `write` writes.
    ///
    /// # Errors
    ///
    /// If the disk or `write` fails.
    pub fn spool_written(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<SpooledFile> {
        let mut file = self.unnamed_file()?;
        write(&mut file)?;
        file.rewind()?;
        let (sha256, size_bytes) = copy_hashed(&mut file, &mut io::sink(), u64::MAX)?;
        Ok(SpooledFile { file, sha256, size_bytes })
    }

    fn unnamed_file(&self) -> io::Result<File> {
        let name = fresh_name("spool-");
        let file = create_file(self.tmp(), &*name)?;
        remove_file(self.tmp(), &*name)?;
        Ok(file)
    }
}

impl SpooledFile {
    /// Reads the bytes from the first on.
    pub fn reader(&self) -> impl Read + '_ {
        SpoolReader { file: &self.file, position: 0 }
    }
}

struct SpoolReader<'a> {
    file: &'a File,
    position: u64,
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}
