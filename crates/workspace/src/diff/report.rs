//! Building a diff from candidates: counts, text up to a bound, and the hash of the whole text.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{
    FileDiff, LineCounts, LogicalPath, Rules, Sha256, Side, diff_file, diff_unread, is_link_mode, link_stays_inside,
};
use sha2::Digest as _;

use super::scan::{DiffCandidate, PresentFile};
use super::{DiffQuery, MAX_CHANGED_PATHS, MAX_CHANGED_PATHS_BYTES, WorkspaceDiff, stat_table};
use crate::base::{DiffFile, FileChange};
use crate::base_files::BaseFiles;
use crate::base_files::manifest::FileIndex;
use crate::error::{check_cancelled, file_too_large};
use crate::guard::OpenedLink;
use crate::opened_file::HEAD_BYTES;
use crate::query::bounded_entries::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::stamp::FileStamp;
use crate::{Workspace, WorkspaceError};

/// Larger files are shown as binary files are: that they differ, and their sizes.
const MAX_SHOWN_BYTES: u64 = 16 << 20;
/// The JSON size of a changed file besides its path.
const ENTRY_OVERHEAD: usize = 300;

/// A diff under construction.
pub(super) struct Report<'a> {
    workspace: &'a Workspace,
    rules: &'a Rules,
    loaded: &'a BaseFiles,
    stat_only: bool,
    max_bytes: usize,
    /// Larger files are not hashed: the service accepts none that large.
    max_hashed_bytes: u64,
    /// The first of the changed files, as far as they fit an answer.
    rows: Vec<stat_table::StatRow>,
    row_bytes: usize,
    files_changed: usize,
    counts: LineCounts,
    changed: Option<BTreeSet<LogicalPath>>,
    changed_bytes: usize,
    text: Vec<u8>,
    truncated: bool,
    sha256: sha2::Sha256,
    /// The files of a snapshot, which replace the tree.
    pub(super) snapshot: Option<VersionOf<'a>>,
    pub(super) output: ReportOutput<'a>,
}

/// Where the diff is written as it is built.
pub(super) enum ReportOutput<'a> {
    None,
    /// Every file.
    Files(&'a mut dyn FnMut(&LogicalPath, &DiffFile)),
}

/// Returns the version of the file at a path.
pub(super) type VersionOf<'a> = &'a dyn Fn(&LogicalPath) -> Result<Option<DiffedVersion>, WorkspaceError>;

/// One side of a file's change.
pub(super) struct DiffedVersion {
    pub(super) sha256: Sha256,
    pub(super) size: u64,
    /// `None` if they are too many to be shown.
    pub(super) bytes: Option<Vec<u8>>,
    /// Its permission bits, or [`LINK_MODE`](model::LINK_MODE).
    pub(super) mode: u32,
}

impl<'a> Report<'a> {
    pub(super) fn new(workspace: &'a Workspace, rules: &'a Rules, loaded: &'a BaseFiles, query: &DiffQuery) -> Self {
        Self {
            workspace,
            rules,
            loaded,
            stat_only: query.stat_only,
            max_bytes: query.max_bytes,
            max_hashed_bytes: rules.policy().max_transfer_bytes,
            rows: Vec::new(),
            row_bytes: 0,
            files_changed: 0,
            counts: LineCounts::default(),
            changed: Some(BTreeSet::new()),
            changed_bytes: 0,
            text: Vec::new(),
            truncated: false,
            sha256: sha2::Sha256::new(),
            snapshot: None,
            output: ReportOutput::None,
        }
    }

    /// Removes the candidates whose bytes turn out to be the base's, and remembers them.
    pub(super) fn drop_same(
        &self,
        candidates: Vec<DiffCandidate>,
        cancel: &AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        let mut differing = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            check_cancelled(cancel)?;
            if let (Some(file), Some(now)) = (candidate.base, &candidate.now)
                && now.git_mode() == manifest.mode(file)
                && now.stamp.size == manifest.size(file)
                && !self.is_cached(&candidate, file)
                && self.sha256_of(&candidate.path, now)? == Some(Sha256::from_bytes(*manifest.sha256(file)))
            {
                self.workspace.found_same(file, now.stamp);
                continue;
            }
            differing.push(candidate);
        }
        Ok(differing)
    }

    /// Whether the change was diffed before and is still the same.
    fn is_cached(&self, candidate: &DiffCandidate, file: FileIndex) -> bool {
        self.snapshot.is_none() && self.cached(file, candidate.now.as_ref().map(|now| now.stamp)).is_some()
    }

    fn cached(&self, file: FileIndex, stamp: Option<FileStamp>) -> Option<Arc<FileChange>> {
        let (diffs, number) = self.workspace.diffs();
        diffs.get((number, file), stamp)
    }

    fn sha256_of(&self, path: &LogicalPath, now: &PresentFile) -> Result<Option<Sha256>, WorkspaceError> {
        self.check_size(path, now)?;
        let hashed = self.workspace.tree().root.hash(path)?;
        Ok(hashed.filter(|(_, stamp)| *stamp == now.stamp).map(|(sha256, _)| sha256))
    }

    /// Adds all candidates in order.
    pub(super) fn add_all(&mut self, candidates: &[DiffCandidate], cancel: &AtomicBool) -> Result<(), WorkspaceError> {
        for candidate in candidates {
            check_cancelled(cancel)?;
            let stamp = candidate.now.as_ref().map(|now| now.stamp);
            let base = candidate.base.filter(|_| self.snapshot.is_none());
            let cached = base.and_then(|file| self.cached(file, stamp));
            let change = match cached {
                Some(change) => change,
                None => match self.compute(candidate)? {
                    Some(change) => change,
                    None => continue,
                },
            };
            if let Some(file) = base {
                let (diffs, number) = self.workspace.diffs();
                diffs.insert((number, file), stamp, &change);
            }
            self.add(&candidate.path, &change);
        }
        Ok(())
    }

    /// Adds one change, with as much of its text as fits.
    fn add(&mut self, path: &LogicalPath, change: &FileChange) {
        self.sha256.update(&change.text);
        match &mut self.output {
            ReportOutput::None => {}
            ReportOutput::Files(each) => each(path, &change.file),
        }
        if !self.stat_only && !self.truncated {
            let left = self.max_bytes.saturating_sub(self.text.len());
            if change.text.len() <= left {
                self.text.extend_from_slice(&change.text);
            } else {
                let cut = change.text[..left].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.text.extend_from_slice(&change.text[..cut]);
                self.truncated = true;
            }
        }
        self.add_row(path, change);
    }

    fn add_row(&mut self, path: &LogicalPath, change: &FileChange) {
        let DiffFile { insertions, deletions, .. } = change.file;
        self.counts = self.counts + LineCounts { insertions, deletions };
        self.row_bytes += entry_bytes(path.as_str(), ENTRY_OVERHEAD);
        if self.row_bytes <= MAX_ENTRIES_BYTES {
            self.rows.push(stat_table::StatRow { file: change.file.clone(), bytes: change.bytes });
        }
        self.files_changed += 1;
        self.changed_bytes += path.as_str().len();
        if self.files_changed > MAX_CHANGED_PATHS || self.changed_bytes > MAX_CHANGED_PATHS_BYTES {
            self.changed = None;
        } else if let Some(changed) = &mut self.changed {
            changed.insert(path.clone());
        }
    }

    /// Computes one file's change; `None` if there is none.
    fn compute(&self, candidate: &DiffCandidate) -> Result<Option<Arc<FileChange>>, WorkspaceError> {
        let path = &candidate.path;
        let (diffs, number) = self.workspace.diffs();
        let new = match (self.snapshot, &candidate.now) {
            (Some(version_of), _) => version_of(path)?,
            (None, Some(now)) => self.read(path, now)?,
            (None, None) => None,
        };
        if let (Some(file), Some(new), None) = (candidate.base, &new, self.snapshot)
            && let Some(change) = diffs.get_by_content((number, file), &new.sha256, new.git_mode())
        {
            return Ok(Some(change));
        }
        let old = candidate.base.map(|file| self.read_base(file)).transpose()?;
        if old.iter().chain(&new).any(|version| version.is_secret(self.rules, path)) {
            return Ok(None);
        }
        let status = match (&old, &new) {
            (None, None) => return Ok(None),
            (None, Some(_)) => "created",
            (Some(_), None) => "deleted",
            (Some(old), Some(new)) if old.sha256 == new.sha256 && old.git_mode() == new.git_mode() => return Ok(None),
            (Some(_), Some(_)) => "modified",
        };
        let FileDiff { text, counts, binary, decoded, .. } = diff_versions(path, old.as_ref(), new.as_ref());
        let size = |side: &Option<DiffedVersion>| side.as_ref().map_or(0, |version| version.size);
        Ok(Some(Arc::new(FileChange {
            bytes: (size(&old), size(&new)),
            mode: new.as_ref().map(DiffedVersion::git_mode),
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
        })))
    }

    /// Reads the version in the tree; `None` if it was removed or cannot be read.
    fn read(&self, path: &LogicalPath, now: &PresentFile) -> Result<Option<DiffedVersion>, WorkspaceError> {
        let version = |sha256, size, bytes| DiffedVersion { sha256, size, bytes, mode: now.mode };
        let root = &self.workspace.tree().root;
        if now.is_link() {
            let Some(OpenedLink { target, .. }) = root.find_link(path)? else { return Ok(None) };
            let (sha256, size) = (Sha256::of(&target), target.len() as u64);
            // The target of a link to a path outside the tree is a physical path, which is not shown.
            let shown = Some(target).filter(|target| link_stays_inside(path.as_str().as_bytes(), target));
            return Ok(Some(version(sha256, size, shown)));
        }
        self.check_size(path, now)?;
        if now.stamp.size > MAX_SHOWN_BYTES {
            return Ok(root.hash(path)?.map(|(sha256, stamp)| version(sha256, stamp.size, None)));
        }
        let Ok(opened) = root.open_unlinked(path) else { return Ok(None) };
        if !opened.file_type().is_file() || opened.is_hard_linked() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(now.stamp.size).unwrap_or(0));
        io::Read::read_to_end(&mut io::Read::take(opened.file.into_reader()?, MAX_SHOWN_BYTES + 1), &mut bytes)?;
        Ok(Some(version(Sha256::of(&bytes), bytes.len() as u64, Some(bytes))))
    }

    /// Refuses a file that would take too long to hash.
    fn check_size(&self, path: &LogicalPath, now: &PresentFile) -> Result<(), WorkspaceError> {
        if now.stamp.size > self.max_hashed_bytes {
            return Err(file_too_large(path, self.max_hashed_bytes, now.stamp.size).into());
        }
        Ok(())
    }

    fn read_base(&self, file: FileIndex) -> Result<DiffedVersion, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        let size = manifest.size(file);
        let bytes = if size > MAX_SHOWN_BYTES { None } else { Some(self.loaded.bytes(file)?) };
        let sha256 = Sha256::from_bytes(*manifest.sha256(file));
        Ok(DiffedVersion { sha256, size, bytes, mode: manifest.mode(file) })
    }

    pub(super) fn finish(self) -> WorkspaceDiff {
        let LineCounts { insertions, deletions } = self.counts;
        WorkspaceDiff {
            stat: stat_table::format(&self.rows, self.files_changed, insertions, deletions),
            files_changed: self.files_changed,
            truncated: self.truncated || self.rows.len() < self.files_changed,
            files: self.rows.into_iter().map(|row| row.file).collect(),
            changed: self.changed,
            insertions,
            deletions,
            diff: String::from_utf8_lossy(&self.text).into_owned(),
            diff_sha256: Sha256::from_bytes(self.sha256.finalize().into()),
        }
    }
}

impl DiffedVersion {
    /// Whether the file is a secret by its content.
    fn is_secret(&self, rules: &Rules, path: &LogicalPath) -> bool {
        let head = self.bytes.as_ref().map(|bytes| &bytes[..bytes.len().min(HEAD_BYTES)]);
        head.is_some_and(|head| !is_link_mode(self.mode) && rules.is_secret_content(path, head))
    }

    fn git_mode(&self) -> (bool, bool) {
        (is_link_mode(self.mode), self.mode & 0o111 != 0)
    }

    fn side<'a>(&'a self, path: &'a LogicalPath) -> Side<'a> {
        Side { path, bytes: self.bytes.as_deref().unwrap_or_default(), mode: self.mode }
    }
}

/// Returns the change of one file as git prints it.
pub(super) fn diff_versions(path: &LogicalPath, old: Option<&DiffedVersion>, new: Option<&DiffedVersion>) -> FileDiff {
    let is_unread = old.into_iter().chain(new).any(|version| version.bytes.is_none());
    let (old, new) = (old.map(|old| old.side(path)), new.map(|new| new.side(path)));
    if is_unread { diff_unread(old, new) } else { diff_file(old, new) }
}
