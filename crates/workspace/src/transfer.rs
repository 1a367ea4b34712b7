//! Whole files of any kind as bytes, as the files endpoints transfer them. Uses constant memory.

use std::sync::atomic::AtomicBool;

use model::{Access, ContentScan, FileState, LogicalPath, Rules, ScannedContent};
use rustix::fs::FileType;

use crate::error::{file_too_large, not_a_file};
use crate::guard::{Blocking, OpenFile, Opened};
use crate::opened_file::{CHUNK_BYTES, HEAD_BYTES, head_of};
use crate::read::hash_cache;
use crate::stamp::{DeviceStamp, FileStamp};
use crate::{FileContent, Tree, WorkspaceError, opened_file};

/// A file to be sent, in the version that its hash identifies.
#[derive(Debug)]
pub struct Transfer {
    source: TransferSource,
    /// The version on the disk, if it is known.
    stamp: Option<DeviceStamp>,
    /// Its state.
    pub state: FileState,
}

/// Where a file's bytes come from.
#[derive(Debug)]
enum TransferSource {
    /// From memory, if they are few, so that a concurrent write does not interrupt the transfer.
    Memory(Vec<u8>),
    /// From the disk. [`Transfer::read_chunk`] detects that the file was written to meanwhile.
    File(OpenFile),
}

impl Tree {
    /// Opens a file of any kind with at most `max_bytes` to be sent.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`.
    pub fn open_transfer(&self, rules: &Rules, path: &LogicalPath, max_bytes: u64) -> Result<Transfer, WorkspaceError> {
        let opened = self.admit(rules, Access::Read, path, Blocking::Allowed)?.opened;
        self.judge_content(rules, Access::Read, path, &opened)?;
        transfer(rules, opened, path, max_bytes, CHUNK_BYTES as u64)
    }
}

impl Transfer {
    /// Returns the transfer of a content in memory.
    pub(crate) fn of_content(content: FileContent) -> Self {
        Self { state: content.state(), source: TransferSource::Memory(content.bytes), stamp: None }
    }

    /// Returns the version on the disk that was opened.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        self.stamp.map(|stamp| stamp.stamp)
    }

    /// Returns all bytes if they are in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            TransferSource::Memory(bytes) => Some(bytes),
            TransferSource::File(_) => None,
        }
    }

    /// Returns the bytes from `offset` on, at most 256 KiB of them; none at the end.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file was written to since it was opened.
    pub fn read_chunk(&self, offset: u64, at_most: u64) -> std::io::Result<Vec<u8>> {
        let at_most = usize::try_from(at_most).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        match &self.source {
            TransferSource::Memory(bytes) => {
                let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
                Ok(rest[..rest.len().min(at_most)].to_vec())
            }
            TransferSource::File(file) => {
                let chunk = file.bytes()?.chunk(offset, at_most)?;
                if Some(DeviceStamp::of(&file.stat()?)) != self.stamp {
                    return Err(std::io::Error::other("the file was written to while it was sent"));
                }
                Ok(chunk)
            }
        }
    }

    /// Returns the state, and all bytes if they are in memory.
    pub(crate) fn into_parts(self) -> (FileState, Option<Vec<u8>>) {
        match self.source {
            TransferSource::Memory(bytes) => (self.state, Some(bytes)),
            TransferSource::File(_) => (self.state, None),
        }
    }

    /// Scans a text that is not in memory, chunk by chunk, for what policy needs to know; `None` for another file.
    ///
    /// # Errors
    ///
    /// As for [`read_chunk`](Self::read_chunk).
    pub(crate) fn scan_text(&self) -> std::io::Result<Option<ScannedContent>> {
        if self.bytes().is_some() || opened_file::is_binary(self.state.kind, &self.read_chunk(0, HEAD_BYTES as u64)?) {
            return Ok(None);
        }
        let (mut scan, mut offset) = (ContentScan::default(), 0);
        loop {
            let chunk = self.read_chunk(offset, CHUNK_BYTES as u64)?;
            if chunk.is_empty() {
                return Ok(Some(scan.finish()));
            }
            offset += chunk.len() as u64;
            scan.feed(&chunk);
        }
    }
}

/// Returns the transfer of the file at `path`, which has at most `max_bytes`. Its bytes are read if they are at most `max_held_bytes`.
pub(crate) fn transfer(
    rules: &Rules,
    opened: Opened,
    path: &LogicalPath,
    max_bytes: u64,
    max_held_bytes: u64,
) -> Result<Transfer, WorkspaceError> {
    if opened.file_type() != FileType::RegularFile {
        return Err(not_a_file(path).into());
    }
    if opened.size() > max_bytes {
        return Err(file_too_large(path, max_bytes, opened.size()).into());
    }
    let (stamp, size) = (DeviceStamp::of(&opened.stat), opened.size());
    let mode = opened.stat.st_mode & 0o7777;
    let name = opened.real.clone().unwrap_or_else(|| path.clone());
    let max_held_bytes = max_held_bytes.min(max_bytes);
    if size <= max_held_bytes {
        let (bytes, stamp) = opened_file::read_whole(&opened, max_held_bytes, Blocking::Allowed)?;
        let size_bytes = bytes.len() as u64;
        // Otherwise it has grown meanwhile.
        if size_bytes <= max_held_bytes {
            let (sha256, kind) = (hash_cache::hash(&bytes, stamp), opened_file::kind_of(rules, &name, &bytes));
            let state = FileState { sha256, size_bytes, mode, kind };
            return Ok(Transfer { source: TransferSource::Memory(bytes), stamp, state });
        }
    }
    let kind = opened_file::kind_of(rules, &name, &head_of(&opened)?);
    let file = opened.file;
    file.check()?;
    let (sha256, size_bytes) = hash_cache::hash_file(&file, stamp, max_bytes, &AtomicBool::new(false))?;
    if size_bytes > max_bytes {
        return Err(file_too_large(path, max_bytes, size_bytes).into());
    }
    Ok(Transfer {
        source: TransferSource::File(file),
        stamp: Some(stamp),
        state: FileState { sha256, size_bytes, mode, kind },
    })
}
