//! Writing the files of a snapshot into an empty folder, from the base and the ledger alone.

use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use model::Sha256;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use sha2::Digest as _;

use super::{ContentLocation, Snapshot, StoredContents};
use crate::base_files::manifest::{FileIndex, MODE_LINK};
use crate::base_files::{BaseEntry, BaseFiles};
use crate::byte_path::split;
use crate::dir::{create_file, open_dir};
use crate::guard::{FOLDER_MODE, OpenFile};

/// The largest link that is written. The kernel's limit is 4 KiB.
const MAX_TARGET_BYTES: u64 = 64 << 10;
/// How much is read at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// Writes a tree. It does not decide what a file that cannot be written means: each outcome is given to the caller.
pub(crate) struct SnapshotWriter {
    root: OwnedFd,
    /// The open folders on the path of the last entry, each with its path.
    open: Vec<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
    written: RebuiltFiles,
}

/// The files and links that were written, and the size of the files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RebuiltFiles {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// The outcome of writing one file or link.
pub(crate) enum FileOutcome {
    /// It has the recorded hash.
    Written,
    /// It was written, with other bytes than recorded.
    Wrong,
    /// It was not written: neither the ledger nor a store has its bytes.
    NotStored,
    /// It was not written: its bytes in the base were altered.
    Lost(io::Error),
}

/// Takes the path of a file, the type bits and permission bits of its mode, and the outcome. An error ends the writing.
type OnOutcome<'a> = dyn FnMut(&[u8], u32, FileOutcome) -> io::Result<()> + 'a;

impl SnapshotWriter {
    /// Creates a writer into the empty folder `root`.
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, open: Vec::new(), buffer: vec![0; BUFFER_BYTES], written: RebuiltFiles::default() }
    }

    /// Returns what was written so far.
    pub(crate) fn written(&self) -> RebuiltFiles {
        self.written
    }

    /// Writes the file of a base at `path`.
    pub(crate) fn write_base(
        &mut self,
        base: &Arc<BaseFiles>,
        path: &[u8],
        file: FileIndex,
        on_outcome: &mut OnOutcome<'_>,
    ) -> io::Result<()> {
        let (mode, sha256) = (base.manifest.mode(file), Sha256::from_bytes(*base.manifest.sha256(file)));
        let outcome = match OpenFile::Base(Arc::clone(base), BaseEntry::File(file)).into_reader() {
            Ok(mut bytes) => self.write(path, mode, sha256, &mut bytes)?,
            Err(error) => lost(error)?,
        };
        on_outcome(path, mode, outcome)
    }

    /// Writes the newest version of each file that a record wrote.
    pub(crate) fn write_changed(
        &mut self,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
        on_outcome: &mut OnOutcome<'_>,
    ) -> io::Result<()> {
        for (path, file) in snapshot.changed() {
            let ContentLocation::Ledger { seq, .. } = file.location else { continue };
            let (path, mode) = (path.as_str().as_bytes(), file.git_mode());
            let outcome = if let Some(bytes) = contents.content(seq, &file.sha256)? {
                self.write(path, mode, file.sha256, &mut &bytes[..])?
            } else if let Some((_, mut bytes)) = contents.large(&file.sha256)? {
                self.write(path, mode, file.sha256, &mut bytes)?
            } else {
                FileOutcome::NotStored
            };
            on_outcome(path, mode, outcome)?;
        }
        Ok(())
    }

    /// Writes one file or link, whose hash should be `sha256`.
    fn write(&mut self, path: &[u8], mode: u32, sha256: Sha256, bytes: &mut dyn Read) -> io::Result<FileOutcome> {
        let (folder, name) = split(path);
        let dir = enter(&self.root, &mut self.open, folder)?;
        if mode == MODE_LINK {
            let mut target = Vec::new();
            if let Err(error) = bytes.take(MAX_TARGET_BYTES).read_to_end(&mut target) {
                return lost(error);
            }
            rustix::fs::symlinkat(&*target, dir, name)?;
            self.written.files += 1;
            return Ok(outcome_of(sha256, Sha256::of(&target)));
        }
        let mut file = create_file(dir, name)?;
        let (mut hash, mut size) = (sha2::Sha256::new(), 0);
        loop {
            let count = match bytes.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // What could be read of it.
                    rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
                    return lost(error);
                }
            };
            hash.update(&self.buffer[..count]);
            file.write_all(&self.buffer[..count])?;
            size += count as u64;
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        self.written.files += 1;
        self.written.bytes += size;
        Ok(outcome_of(sha256, Sha256::from_bytes(hash.finalize().into())))
    }
}

/// Opens the folder at `path` under `root`, with the folders above it in `open`. Creates missing folders.
fn enter<'a>(root: &'a OwnedFd, open: &'a mut Vec<(Vec<u8>, OwnedFd)>, path: &[u8]) -> io::Result<BorrowedFd<'a>> {
    let is_above = |folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    while open.last().is_some_and(|(folder, _)| !is_above(folder)) {
        open.pop();
    }
    let mut start = open.last().map_or(0, |(folder, _)| folder.len() + 1);
    while start < path.len() {
        let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| start + at);
        let dir = open.last().map_or(root, |(_, dir)| dir);
        match rustix::fs::mkdirat(dir, &path[start..end], FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let dir = open_dir(dir, &path[start..end])?;
        open.push((path[..end].to_owned(), dir));
        start = end + 1;
    }
    Ok(open.last().map_or(root, |(_, dir)| dir).as_fd())
}

fn outcome_of(expected: Sha256, found: Sha256) -> FileOutcome {
    if found == expected { FileOutcome::Written } else { FileOutcome::Wrong }
}

/// Returns the outcome of a file whose bytes could not be read, unless the disk failed.
fn lost(error: io::Error) -> io::Result<FileOutcome> {
    if error.kind() == io::ErrorKind::InvalidData { Ok(FileOutcome::Lost(error)) } else { Err(error) }
}
