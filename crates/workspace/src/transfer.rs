//! Whole files of any kind, as bytes: what the files plane gives and takes. Flat in memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use model::{Access, ContentScan, FileState, LogicalPath, Rules, ScannedContent, Sha256};
use rustix::fs::FileType;
use sha2::Digest as _;

use crate::error::{file_too_large, not_a_file};
use crate::guard::{Blocking, Goes, GuardError, Opened, Stamp};
use crate::read::hashes;
use crate::tree::Existing;
use crate::{FileStamp, Tree, Workspace, WorkspaceError, read};

/// So many first bytes tell a file's kind.
const HEAD_BYTES: usize = 8 * 1024;
/// What is read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// A file to be sent, of the version that its hash names.
#[derive(Debug)]
pub struct Transfer {
    source: Source,
    stamp: Stamp,
    /// Its state.
    pub state: FileState,
}

/// Where a file's bytes come from.
#[derive(Debug)]
enum Source {
    /// From memory, where they are one piece: whoever replaces the file meanwhile breaks nothing off.
    Held(Vec<u8>),
    /// From the disk. The file may be written to meanwhile, which [`Transfer::piece`] notices.
    Open(File),
}

impl Tree {
    /// Opens a file of any kind to be sent, at most `max_bytes` long.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`.
    pub fn open_transfer(&self, rules: &Rules, path: &LogicalPath, max_bytes: u64) -> Result<Transfer, WorkspaceError> {
        let admitted = self.admit(rules, Access::Read, path, Blocking::Allowed)?;
        transfer(rules, admitted.opened, path, max_bytes)
    }
}

impl Workspace {
    /// What a mutation of the files plane finds at `path`: a file of any kind with at most `max_bytes`, or nothing that is in
    /// the way of one.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_A_FILE`, `FILE_TOO_LARGE`.
    pub(crate) fn transfer_target(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        goes: Goes<'_>,
        max_bytes: u64,
    ) -> Result<Existing<Transfer>, WorkspaceError> {
        let tree = self.tree();
        let found = match tree.root.open_unlinked(path) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let kind = rules.kind_of_path(path);
        tree.judge(rules, Access::Mutate, path, found.as_ref().ok(), kind, Blocking::Allowed)?;
        if let Some(refusal) = tree.room(path, &found, goes)? {
            return Ok(Existing::EmptyDir(refusal));
        }
        match found {
            Ok(opened) => transfer(rules, opened, path, max_bytes).map(Existing::File),
            Err(GuardError::Missing) => Ok(Existing::Nothing),
            Err(error) => Err(error.at(path)),
        }
    }
}

impl Transfer {
    /// The version that was opened.
    pub fn seen(&self) -> FileStamp {
        FileStamp(self.stamp.in_tree())
    }

    /// The bytes from `offset` on, at most 256 KiB of them; none at the end.
    ///
    /// # Errors
    ///
    /// Where the disk fails, or the file is not the version any more that was announced.
    pub fn piece(&self, offset: u64, at_most: u64) -> std::io::Result<Vec<u8>> {
        let at_most = usize::try_from(at_most).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let file = match &self.source {
            Source::Held(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                return Ok(bytes[start..start.saturating_add(at_most).min(bytes.len())].to_vec());
            }
            Source::Open(file) => file,
        };
        let mut piece = vec![0; at_most];
        let count = file.read_at(&mut piece, offset)?;
        piece.truncate(count);
        if Stamp::of(&rustix::fs::fstat(file)?) != self.stamp {
            return Err(std::io::Error::other("the file was written to while it was sent"));
        }
        Ok(piece)
    }

    /// What is learned of all bytes together, which go by piece by piece.
    ///
    /// # Errors
    ///
    /// As for [`piece`](Self::piece).
    pub(crate) fn scan(&self) -> std::io::Result<ScannedContent> {
        let (mut scan, mut offset) = (ContentScan::default(), 0);
        loop {
            let piece = self.piece(offset, PIECE_BYTES as u64)?;
            if piece.is_empty() {
                return Ok(scan.finish());
            }
            offset += piece.len() as u64;
            scan.feed(&piece);
        }
    }

    /// The same, of a text; `None` of a binary file.
    ///
    /// # Errors
    ///
    /// As for [`piece`](Self::piece).
    pub(crate) fn scan_text(&self) -> std::io::Result<Option<ScannedContent>> {
        let is_binary = read::is_binary(self.state.kind, &self.piece(0, HEAD_BYTES as u64)?);
        if is_binary { Ok(None) } else { self.scan().map(Some) }
    }

    /// All bytes, where they are at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// As for [`piece`](Self::piece).
    pub fn whole(&self, max_bytes: u64) -> std::io::Result<Option<Vec<u8>>> {
        if self.state.size_bytes > max_bytes {
            return Ok(None);
        }
        let mut whole = Vec::new();
        loop {
            let piece = self.piece(whole.len() as u64, PIECE_BYTES as u64)?;
            if piece.is_empty() {
                return Ok(Some(whole));
            }
            whole.extend_from_slice(&piece);
        }
    }
}

fn transfer(rules: &Rules, opened: Opened, path: &LogicalPath, max_bytes: u64) -> Result<Transfer, WorkspaceError> {
    if opened.file_type() != FileType::RegularFile {
        return Err(not_a_file(path).into());
    }
    if opened.size() > max_bytes {
        return Err(file_too_large(path, max_bytes, opened.size()).into());
    }
    let (stamp, size) = (Stamp::of(&opened.stat), opened.size());
    let mode = opened.stat.st_mode & 0o7777;
    let name = opened.real.clone().unwrap_or_else(|| path.clone());
    let one_piece = max_bytes.min(PIECE_BYTES as u64);
    if size <= one_piece {
        let (bytes, version) = read::read_whole(&opened, one_piece, Blocking::Allowed)?;
        let size_bytes = bytes.len() as u64;
        if size_bytes <= one_piece {
            let sha256 = version.as_ref().and_then(hashes::known).unwrap_or_else(|| Sha256::of(&bytes));
            hashes::keep(version, sha256);
            let state = FileState { sha256, size_bytes, mode, kind: read::kind_of(rules, &name, &bytes) };
            return Ok(Transfer { source: Source::Held(bytes), stamp: version.unwrap_or(stamp), state });
        }
        // It has grown meanwhile.
    }
    let file = File::from(opened.file);
    let (sha256, size_bytes, head) = match hashes::known(&stamp) {
        Some(sha256) => (sha256, size, head_of(&file)?),
        None => hash_all(&file, path, max_bytes, stamp)?,
    };
    let kind = read::kind_of(rules, &name, &head);
    Ok(Transfer { source: Source::Open(file), stamp, state: FileState { sha256, size_bytes, mode, kind } })
}

fn head_of(file: &File) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let count = file.read_at(&mut head, 0)?;
    head.truncate(count);
    Ok(head)
}

/// Hash and length of all bytes, and the first of them.
fn hash_all(
    file: &File,
    path: &LogicalPath,
    max_bytes: u64,
    stamp: Stamp,
) -> Result<(Sha256, u64, Vec<u8>), WorkspaceError> {
    let (mut hash, mut size_bytes, mut head, mut piece) =
        (sha2::Sha256::new(), 0_u64, Vec::new(), vec![0; PIECE_BYTES]);
    loop {
        let count = file.read_at(&mut piece, size_bytes)?;
        if count == 0 {
            break;
        }
        size_bytes += count as u64;
        if size_bytes > max_bytes {
            return Err(file_too_large(path, max_bytes, size_bytes).into());
        }
        head.extend_from_slice(&piece[..count.min(HEAD_BYTES - head.len())]);
        hash.update(&piece[..count]);
    }
    let sha256 = Sha256::from_bytes(hash.finalize().into());
    let unchanged = Stamp::of(&rustix::fs::fstat(file)?) == stamp;
    hashes::keep(unchanged.then_some(stamp), sha256);
    Ok((sha256, size_bytes, head))
}
