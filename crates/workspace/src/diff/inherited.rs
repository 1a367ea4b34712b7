//! What a fork takes over from the run that it is made from: how the files of a snapshot differ from the base that both have.

use std::io;

use model::{FileKind, LogicalPath, Rules, Sha256};

use super::compare::{DiffedVersion, diff_shown};
use crate::{Base, ContentLocation, Snapshot, SnapshotFile, StoredContents, WorkspaceError};

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
            let base = index.map(|index| SnapshotFile::of_base(&loaded, index));
            let version = |file: &SnapshotFile| (file.sha256, file.git_mode());
            let before = base.as_ref().map(version);
            if before == now.as_ref().map(version) {
                continue;
            }
            let after = now.map(|now| Ok::<_, io::Error>((now, content_of(&now, contents)?))).transpose()?;
            let (kind, after) = match after {
                Some((_, None)) => {
                    inherited.not_stored.push(path.clone());
                    continue;
                }
                Some((SnapshotFile { location: ContentLocation::Ledger { kind, .. }, .. }, after)) => (kind, after),
                Some((_, after)) => (rules.kind_of_path(path), after),
                None => (rules.kind_of_path(path), None),
            };
            let base = index.map(|index| DiffedVersion::of_base(&loaded, index)).transpose()?;
            let diff = diff_shown(rules, path, base.as_ref(), after.as_ref()).text;
            let new_bytes = after.as_ref().and_then(|after| after.bytes.as_deref());
            inherited.bytes += (new_bytes.map_or(0, <[u8]>::len) + diff.len()) as u64;
            inherited.diff.extend_from_slice(&diff);
            let after = after.map(|DiffedVersion { sha256, size, bytes, mode, .. }| InheritedContent {
                sha256,
                mode,
                size_bytes: size,
                bytes,
            });
            inherited.files.push(InheritedFile { path: path.clone(), before, after, kind });
            if inherited.bytes > max_bytes {
                break;
            }
        }
        Ok(inherited)
    }
}

/// Returns the version that a record has written; `None` if its content is stored nowhere.
fn content_of(file: &SnapshotFile, contents: &dyn StoredContents) -> io::Result<Option<DiffedVersion>> {
    let (sha256, mode) = (file.sha256, file.git_mode());
    let found = |size, bytes| Some(DiffedVersion { sha256, size, bytes, head: Vec::new(), mode });
    let ContentLocation::Ledger { seq, .. } = file.location else { return Ok(None) };
    if let Some(bytes) = contents.content(seq, &sha256)? {
        return Ok(found(bytes.len() as u64, Some(bytes)));
    }
    Ok(contents.large(&sha256)?.and_then(|(size, _)| found(size, None)))
}
