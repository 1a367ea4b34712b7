//! Comparing one file with the base's.

use std::io::{self, Read as _};
use std::sync::Arc;

use model::{
    FileDiff, LINK_MODE, LogicalPath, Rules, Sha256, Side, diff_file, diff_unread, git_mode, is_link_mode,
    link_stays_inside,
};

use super::scan::{DiffCandidate, PresentFile};
use crate::base::{DiffFile, FileChange};
use crate::base_files::BaseFiles;
use crate::base_files::manifest::FileIndex;
use crate::error::file_too_large;
use crate::guard::Opened;
use crate::hashing::copy_hashed;
use crate::opened_file::{HEAD_BYTES, head_of, is_readable};
use crate::{Workspace, WorkspaceError};

/// Larger files are shown as binary files are: that they differ, and their sizes.
const MAX_SHOWN_BYTES: u64 = 16 << 20;

/// One side of a file's change.
pub(super) struct DiffedVersion {
    pub(super) sha256: Sha256,
    pub(super) size: u64,
    /// `None` if they are too many to be shown.
    pub(super) bytes: Option<Vec<u8>>,
    /// The first of them, where they are too many.
    pub(super) head: Vec<u8>,
    /// Its permission bits, or [`LINK_MODE`](model::LINK_MODE).
    pub(super) mode: u32,
}

impl DiffedVersion {
    pub(super) fn of_bytes(bytes: Vec<u8>, mode: u32) -> Self {
        Self { sha256: Sha256::of(&bytes), size: bytes.len() as u64, bytes: Some(bytes), head: Vec::new(), mode }
    }

    /// Reads a regular file. Keeps its bytes if they are at most `max_bytes`.
    pub(super) fn read(opened: Opened, max_bytes: u64) -> io::Result<Self> {
        let (size, mode) = (opened.size(), opened.stat.st_mode & 0o7777);
        if size > max_bytes {
            let head = head_of(&opened)?;
            let (sha256, size) = copy_hashed(&mut opened.file.into_reader()?, &mut io::sink(), size)?;
            return Ok(Self { sha256, size, bytes: None, head, mode });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        opened.file.into_reader()?.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(Self::of_bytes(bytes, mode))
    }

    pub(super) fn of_base(loaded: &BaseFiles, file: FileIndex) -> io::Result<Self> {
        let manifest = &loaded.manifest;
        let (size, mode) = (manifest.size(file), manifest.mode(file));
        let (bytes, head) = if size > MAX_SHOWN_BYTES {
            (None, loaded.unchecked(file).chunk(0, HEAD_BYTES)?)
        } else {
            (Some(loaded.bytes(file)?), Vec::new())
        };
        Ok(Self { sha256: Sha256::from_bytes(*manifest.sha256(file)), size, bytes, head, mode })
    }

    /// Removes the bytes of a link that leads out of the tree: its target is a physical path, which is not shown.
    pub(super) fn shown_at(mut self, path: &LogicalPath) -> Self {
        if self.leads_out(path) {
            self.bytes = None;
        }
        self
    }

    fn leads_out(&self, path: &LogicalPath) -> bool {
        let leads_out = |bytes: &Vec<u8>| !link_stays_inside(path.as_str().as_bytes(), bytes);
        is_link_mode(self.mode) && self.bytes.as_ref().is_some_and(leads_out)
    }

    /// Whether the file is a secret by its content.
    fn is_secret(&self, rules: &Rules, path: &LogicalPath) -> bool {
        let head = self.bytes.as_ref().unwrap_or(&self.head);
        !is_link_mode(self.mode) && rules.is_secret_content(path, &head[..head.len().min(HEAD_BYTES)])
    }

    fn side<'a>(&'a self, path: &'a LogicalPath) -> Side<'a> {
        Side { path, bytes: self.bytes.as_deref().unwrap_or_default(), mode: self.mode }
    }
}

/// Returns the change of one file as git prints it: without its content if policy hides either version.
pub(super) fn diff_shown(
    rules: &Rules,
    path: &LogicalPath,
    old: Option<&DiffedVersion>,
    new: Option<&DiffedVersion>,
) -> FileDiff {
    let is_hidden = |version: &DiffedVersion| version.is_secret(rules, path) || version.leads_out(path);
    if is_readable(rules, path, false) && !old.into_iter().chain(new).any(is_hidden) {
        diff_versions(path, old, new)
    } else {
        diff_unread(old.map(|old| old.side(path)), new.map(|new| new.side(path)))
    }
}

/// Returns the change of one file as git prints it.
fn diff_versions(path: &LogicalPath, old: Option<&DiffedVersion>, new: Option<&DiffedVersion>) -> FileDiff {
    let is_unread = old.into_iter().chain(new).any(|version| version.bytes.is_none());
    let (old, new) = (old.map(|old| old.side(path)), new.map(|new| new.side(path)));
    if is_unread { diff_unread(old, new) } else { diff_file(old, new) }
}

/// Returns the change from the base's file to `new`; `None` if they are the same, or either is a secret by its content.
pub(super) fn compare(
    rules: &Rules,
    loaded: &BaseFiles,
    path: &LogicalPath,
    base: Option<FileIndex>,
    new: Option<DiffedVersion>,
) -> io::Result<Option<FileChange>> {
    let manifest = &loaded.manifest;
    let is_same = base.map(|file| (manifest.sha256(file), manifest.mode(file)))
        == new.as_ref().map(|new| (new.sha256.as_bytes(), git_mode(new.mode)));
    if is_same {
        return Ok(None);
    }
    let old = base.map(|file| DiffedVersion::of_base(loaded, file)).transpose()?.map(|old| old.shown_at(path));
    let status = match (&old, &new) {
        (None, _) => "created",
        (_, None) => "deleted",
        (Some(_), Some(_)) => "modified",
    };
    if old.iter().chain(&new).any(|version| version.is_secret(rules, path)) {
        return Ok(None);
    }
    let FileDiff { text, counts, binary, decoded, .. } = diff_versions(path, old.as_ref(), new.as_ref());
    let size = |side: &Option<DiffedVersion>| side.as_ref().map_or(0, |version| version.size);
    Ok(Some(FileChange {
        bytes: (size(&old), size(&new)),
        mode: new.as_ref().map(|new| git_mode(new.mode)),
        file: DiffFile {
            path: path.to_string(),
            status: status.to_owned(),
            insertions: counts.insertions,
            deletions: counts.deletions,
            binary,
            encoding: decoded.map(|decoded| decoded.encoding),
            encoding_guessed: decoded.is_some_and(|decoded| decoded.is_guessed),
            old_sha256: old.map(|version| version.sha256),
            new_sha256: new.map(|version| version.sha256),
        },
        text,
    }))
}

impl Workspace {
    /// Returns how a file differs from the base; `None` if it does not, or is a secret by its content.
    pub(super) fn change(
        &self,
        rules: &Rules,
        loaded: &BaseFiles,
        candidate: &DiffCandidate,
    ) -> Result<Option<Arc<FileChange>>, WorkspaceError> {
        let DiffCandidate { path, base, now } = candidate;
        let stamp = now.as_ref().map(|now| now.stamp);
        let (diffs, key) = (self.diffs(), base.map(|file| self.diff_key(file)));
        if let Some(known) = key.and_then(|key| diffs.get(key, stamp)) {
            return Ok(Some(known));
        }
        let new = match now {
            Some(now) => self.present_version(rules, path, now)?,
            None => None,
        };
        let known = key.zip(new.as_ref());
        let known = known.and_then(|(key, new)| diffs.get_by_content(key, &new.sha256, git_mode(new.mode)));
        let change = match known {
            Some(change) => Some(change),
            None => compare(rules, loaded, path, *base, new)?.map(Arc::new),
        };
        if let (Some(key), Some(change)) = (key, &change) {
            diffs.insert(key, stamp, change);
        }
        Ok(change)
    }

    /// Reads the version in the tree; `None` if it was removed or cannot be read.
    fn present_version(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        now: &PresentFile,
    ) -> Result<Option<DiffedVersion>, WorkspaceError> {
        let root = &self.tree().root;
        if now.is_link() {
            let link = root.find_link(path)?;
            return Ok(link.map(|link| DiffedVersion::of_bytes(link.target, LINK_MODE).shown_at(path)));
        }
        match root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_file() && !opened.is_hard_linked() => {
                check_size(rules, path, opened.size())?;
                Ok(Some(DiffedVersion::read(opened, MAX_SHOWN_BYTES)?))
            }
            Ok(_) => Ok(None),
            Err(error) => Ok(error.unless_disk().map(|()| None)?),
        }
    }
}

/// Refuses a file that would take too long to hash: the service accepts none that large.
fn check_size(rules: &Rules, path: &LogicalPath, size: u64) -> Result<(), WorkspaceError> {
    let max_bytes = rules.policy().max_transfer_bytes;
    if size > max_bytes { Err(file_too_large(path, max_bytes, size).into()) } else { Ok(()) }
}
