//! What a fork takes over from the run that it is made from: how the files of a snapshot differ from the base that both have.

use std::io;

use model::{FileKind, LogicalPath, Rules, Sha256, Side, diff_file, is_link_mode, link_stays_inside};

use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::opened_file::{HEAD_BYTES, is_readable};
use crate::{Base, WorkspaceError};

/// The largest file of the base that is compared. The diff of a larger one is a binary one.
const MAX_COMPARED_BYTES: u64 = 16 << 20;
/// What the diff has in place of contents that are not in memory or not shown: different binary contents.
const OLD_SUBSTITUTE: &[u8] = &[0, 0];
const NEW_SUBSTITUTE: &[u8] = &[0];

/// How the files of a snapshot differ from the base.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The files that differ, sorted by path.
    pub files: Vec<InheritedFile>,
    /// Their diff, without the lines of files that policy hides.
    pub diff: Vec<u8>,
    /// The bytes of the contents in memory and of the diff.
    pub bytes: u64,
    /// The files whose contents are stored nowhere: a later version has replaced them, and they were too large to be kept.
    pub not_stored: Vec<LogicalPath>,
}

/// A file that a snapshot has otherwise than the base, or that only one of them has.
#[derive(Debug)]
pub struct InheritedFile {
    /// Its path.
    pub path: LogicalPath,
    /// The hash of its bytes in the base, and its permission bits or [`LINK_MODE`](model::LINK_MODE); `None` if the base does not have it.
    pub before: Option<(Sha256, u32)>,
    /// The file in the snapshot; `None` if that does not have it.
    pub after: Option<InheritedContent>,
    /// Its kind.
    pub kind: FileKind,
}

/// The content of a file of a snapshot.
#[derive(Debug)]
pub struct InheritedContent {
    /// The hash of its bytes; for a link, of its target.
    pub sha256: Sha256,
    /// Its permission bits, or [`LINK_MODE`](model::LINK_MODE).
    pub mode: u32,
    /// The number of bytes.
    pub size_bytes: u64,
    /// The bytes; `None` if the ledger does not have them, because they are too many.
    pub bytes: Option<Vec<u8>>,
}

impl Base {
    /// Returns how the files of `snapshot` differ from the base. Stops once their contents and their diff have more than `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails.
    pub fn inherited(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
        max_bytes: u64,
    ) -> Result<Inherited, WorkspaceError> {
        let loaded = self.load()?;
        let mut inherited = Inherited::default();
        for path in snapshot.written() {
            let now = snapshot.get(path);
            let index = loaded.manifest.get(path.as_str().as_bytes());
            let base = index.map(|index| (index, SnapshotFile::of_base(&loaded, index)));
            let version = |file: &SnapshotFile| (file.sha256, file.git_mode());
            if base.as_ref().map(|(_, file)| version(file)) == now.as_ref().map(version) {
                continue;
            }
            let base = match base {
                Some((index, file)) if loaded.manifest.size(index) <= MAX_COMPARED_BYTES => {
                    Some((file, Some(loaded.bytes(index)?)))
                }
                base => base.map(|(_, file)| (file, None)),
            };
            inherited.add(rules, path, base, now.as_ref(), contents)?;
            if inherited.bytes > max_bytes {
                break;
            }
        }
        Ok(inherited)
    }
}

impl Inherited {
    fn add(
        &mut self,
        rules: &Rules,
        path: &LogicalPath,
        base: Option<(SnapshotFile, Option<Vec<u8>>)>,
        now: Option<&SnapshotFile>,
        contents: &dyn StoredContents,
    ) -> io::Result<()> {
        let kind = match now.map(|now| now.location) {
            Some(ContentLocation::Ledger { kind, .. }) => kind,
            Some(ContentLocation::Base { .. }) | None => rules.kind_of_path(path),
        };
        let after = now.map(|now| content_of(now, contents)).transpose()?;
        if let Some(None) = after {
            self.not_stored.push(path.clone());
            return Ok(());
        }
        let after = after.flatten();
        let new_bytes = after.as_ref().and_then(|after| after.bytes.as_deref());
        let is_shown = |bytes: &[u8], mode: u32| {
            is_readable(rules, path, false)
                && !rules.is_secret_content(path, &bytes[..bytes.len().min(HEAD_BYTES)])
                // The target of a link to a path outside the tree is a physical path.
                && (!is_link_mode(mode) || link_stays_inside(path.as_str().as_bytes(), bytes))
        };
        let old_side = base.as_ref().map(|(file, bytes)| Side {
            path,
            bytes: bytes.as_deref().filter(|bytes| is_shown(bytes, file.git_mode())).unwrap_or(OLD_SUBSTITUTE),
            mode: file.git_mode(),
        });
        let new_side = after.as_ref().map(|after| Side {
            path,
            bytes: new_bytes.filter(|bytes| is_shown(bytes, after.mode)).unwrap_or(NEW_SUBSTITUTE),
            mode: after.mode,
        });
        let diff = diff_file(old_side, new_side).text;
        self.bytes += (new_bytes.map_or(0, <[u8]>::len) + diff.len()) as u64;
        self.diff.extend_from_slice(&diff);
        let before = base.map(|(file, _)| (file.sha256, file.git_mode()));
        self.files.push(InheritedFile { path: path.clone(), before, after, kind });
        Ok(())
    }
}

/// Returns the content of a file that a record has written; `None` if it is stored nowhere.
fn content_of(file: &SnapshotFile, contents: &dyn StoredContents) -> io::Result<Option<InheritedContent>> {
    let (sha256, mode) = (file.sha256, file.git_mode());
    let found = |size_bytes, bytes| Some(InheritedContent { sha256, mode, size_bytes, bytes });
    let ContentLocation::Ledger { seq, .. } = file.location else { return Ok(None) };
    if let Some(bytes) = contents.content(seq, &sha256)? {
        return Ok(found(bytes.len() as u64, Some(bytes)));
    }
    Ok(contents.large(&sha256)?.and_then(|(size, _)| found(size, None)))
}
