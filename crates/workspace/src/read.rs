//! Reading whole files, through the guard and the policy.

pub(crate) mod hash_cache;
#[cfg(test)]
mod tests;

use std::io;

use model::{Access, FileKind, FileState, LogicalPath, Rules, Sha256};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::error::{WorkspaceError, file_too_large, unsupported_binary};
use crate::guard::{Blocking, GuardError};
use crate::opened_file::{MAX_NON_BLOCKING_HASH_BYTES, is_binary, kind_of, read_whole};
use crate::stamp::DeviceStamp;
use crate::tree::{Admitted, Tree};

/// A file that was read.
#[derive(Debug)]
pub struct FileContent {
    /// Its path, as the caller named it.
    pub path: LogicalPath,
    /// Its real path, if the path leads through a symbolic link.
    pub real_path: Option<LogicalPath>,
    /// Its kind.
    pub kind: FileKind,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// The hash of `bytes`.
    pub sha256: Sha256,
    /// Its permission bits.
    pub mode: u32,
}

impl FileContent {
    /// Returns the state of the file.
    pub(crate) fn state(&self) -> FileState {
        let Self { sha256, mode, kind, .. } = *self;
        FileState { sha256, size_bytes: self.bytes.len() as u64, mode, kind }
    }
}

impl Tree {
    /// Reads the text file at `path`, if it has at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`,
    /// `UNSUPPORTED_BINARY`, the first that applies.
    pub fn read(&self, rules: &Rules, path: &LogicalPath, max_bytes: u64) -> Result<FileContent, WorkspaceError> {
        self.read_as(rules, path, max_bytes, Blocking::Allowed)
    }

    /// As [`read`](Self::read), but never waits for the disk, so that it may run where nothing may block. `None` if the file is
    /// not in memory, or would take long to hash.
    pub fn try_read(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Option<Result<FileContent, WorkspaceError>> {
        match self.read_as(rules, path, max_bytes, Blocking::Forbidden) {
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        }
    }

    fn read_as(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
        blocking: Blocking,
    ) -> Result<FileContent, WorkspaceError> {
        let admitted = self.admit(rules, Access::Read, path, blocking)?;
        let (content, _) = self.read_admitted(rules, Access::Read, path, admitted, max_bytes, blocking)?;
        match model::detect_encoding(&content.bytes) {
            Some(_) => Ok(content),
            None => Err(unsupported_binary(path).into()),
        }
    }

    /// Reads an admitted file that is not binary, and judges it by its content. Also returns the version that was read; `None` if the
    /// file was written to meanwhile.
    pub(crate) fn read_admitted(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        Admitted { opened, kind: by_name }: Admitted,
        max_bytes: u64,
        blocking: Blocking,
    ) -> Result<(FileContent, Option<DeviceStamp>), WorkspaceError> {
        if opened.size() > max_bytes {
            return Err(file_too_large(path, max_bytes, opened.size()).into());
        }
        let (bytes, stamp) = read_whole(&opened, max_bytes, blocking)?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = kind_of(rules, opened.real.as_ref().unwrap_or(path), &bytes);
        if kind != by_name {
            self.judge(rules, access, path, Some(&opened), kind, blocking)?;
        }
        if is_binary(kind, &bytes) {
            return Err(unsupported_binary(path).into());
        }
        let is_long = blocking == Blocking::Forbidden && bytes.len() > MAX_NON_BLOCKING_HASH_BYTES;
        let sha256 = match stamp.as_ref().and_then(hash_cache::get) {
            Some(sha256) => sha256,
            None if is_long => return Err(Errno::AGAIN.into()),
            None => hash_cache::hash(&bytes, stamp),
        };
        let mode = opened.stat.st_mode & 0o7777;
        Ok((FileContent { path: path.clone(), real_path: opened.real, kind, bytes, sha256, mode }, stamp))
    }

    /// Returns the keys of the secret file of settings at `path` without their values. `None` if policy does not permit that, or
    /// the file is not a file of settings of at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn read_redacted(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Result<Option<String>, WorkspaceError> {
        let opened = match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::RegularFile => opened,
            Err(error @ GuardError::Io(_)) => return Err(error.at(path)),
            Ok(_) | Err(_) => return Ok(None),
        };
        let real_path = opened.real.as_ref();
        let kind = rules.kind_of_path(real_path.unwrap_or(path));
        let facts = self.facts(path, Some(&opened), kind, Blocking::Allowed)?;
        if !model::may_read_redacted(rules, &facts) || opened.size() > max_bytes {
            return Ok(None);
        }
        let (bytes, _) = read_whole(&opened, max_bytes, Blocking::Allowed)?;
        let is_whole = bytes.len() as u64 <= max_bytes;
        Ok(is_whole.then(|| model::redact_settings(real_path.unwrap_or(path), &bytes)).flatten())
    }
}
