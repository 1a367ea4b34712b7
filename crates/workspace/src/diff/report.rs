//! Candidates → what the caller is told: counts, text up to a bound, and the hash of all text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use model::{Counts, FileDiff, LogicalPath, Rules, Sha256, Side, diff_file};
use sha2::Digest as _;

use super::scan::{Candidate, Now};
use super::{DiffFile, DiffQuery, MAX_CHANGED_PATHS, MAX_CHANGED_PATHS_BYTES, PlannedFile, WorkspaceDiff, check, stat};
use crate::apply::hash;
use crate::base::manifest::{FileIndex, MODE_LINK};
use crate::base::{Loaded, OpenBlobs, Part};
use crate::error::file_too_large;
use crate::first::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::import::stays_inside;
use crate::{Workspace, WorkspaceError};

/// Larger files are shown as binary ones are: that they differ, and how large they are.
const MAX_SHOWN_BYTES: u64 = 16 << 20;
/// What a changed file is told with beside its path, in bytes of JSON.
const BESIDE_PATH: usize = 300;

/// A diff in the making.
pub(super) struct Report<'a> {
    workspace: &'a Workspace,
    loaded: &'a Loaded,
    stat_only: bool,
    max_bytes: usize,
    /// Larger files are not looked into: none that large came in by the service.
    max_hashed_bytes: u64,
    /// The first of the changed files: as many as fit an answer.
    rows: Vec<stat::Row>,
    row_bytes: usize,
    files_changed: usize,
    counts: Counts,
    changed: Option<BTreeSet<LogicalPath>>,
    changed_bytes: usize,
    text: Vec<u8>,
    truncated: bool,
    sha256: sha2::Sha256,
    /// What a planned change will leave, in place of what is there.
    pub(super) overlay: BTreeMap<LogicalPath, &'a PlannedFile>,
    /// The modes of planned files that git ignores and that the base will have once the plan is carried out.
    pub(super) late: BTreeMap<LogicalPath, u32>,
    /// What stands at a path at another time than now.
    pub(super) past: Option<Then<'a>>,
    /// When no more is added.
    pub(super) deadline: Option<Instant>,
    /// Where all of it goes as well.
    pub(super) out: Out<'a>,
}

/// Where what differs goes besides into the report.
pub(super) enum Out<'a> {
    Nowhere,
    /// All text.
    Text(&'a mut dyn io::Write),
    /// Every file.
    Each(&'a mut dyn FnMut(&LogicalPath, &DiffFile)),
}

/// Tells what stands at a path.
pub(super) type Then<'a> = &'a dyn Fn(&LogicalPath) -> Result<Option<Version>, WorkspaceError>;

/// One side of a file's change.
pub(super) struct Version {
    pub(super) sha256: Sha256,
    pub(super) size: u64,
    /// `None` where there are too many to be shown.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) is_link: bool,
    pub(super) mode: u32,
}

impl<'a> Report<'a> {
    pub(super) fn new(workspace: &'a Workspace, rules: &Rules, loaded: &'a Loaded, query: &DiffQuery) -> Self {
        Self {
            workspace,
            loaded,
            stat_only: query.stat_only,
            max_bytes: query.max_bytes,
            max_hashed_bytes: rules.policy().max_transfer_bytes,
            rows: Vec::new(),
            row_bytes: 0,
            files_changed: 0,
            counts: Counts::default(),
            changed: Some(BTreeSet::new()),
            changed_bytes: 0,
            text: Vec::new(),
            truncated: false,
            sha256: sha2::Sha256::new(),
            overlay: BTreeMap::new(),
            late: BTreeMap::new(),
            past: None,
            deadline: None,
            out: Out::Nowhere,
        }
    }

    /// Leaves out the candidates whose bytes are the base's after all, and remembers them.
    pub(super) fn drop_same(
        &self,
        candidates: Vec<Candidate>,
        cancel: &AtomicBool,
    ) -> Result<Vec<Candidate>, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        let mut differing = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            check(cancel)?;
            if let (Some(file), Some(now)) = (candidate.base, &candidate.now)
                && now.git_mode() == manifest.mode(file)
                && now.stamp.size == manifest.size(file)
                && !self.knows(&candidate, file)
                && self.sha256_of(&candidate.path, now)? == Some(Sha256::from_bytes(*manifest.sha256(file)))
            {
                self.loaded.found_same(file, now.stamp);
                continue;
            }
            differing.push(candidate);
        }
        Ok(differing)
    }

    /// Whether git has to be asked for the file's bytes in the base.
    pub(super) fn asks_git(&self, candidate: &Candidate) -> bool {
        candidate
            .base
            .is_some_and(|file| !self.knows(candidate, file) && self.base_in_memory(candidate, file).is_none())
    }

    /// The file's bytes in the base, where they are at hand.
    fn base_in_memory(&self, candidate: &Candidate, file: FileIndex) -> Option<Arc<Vec<u8>>> {
        if let Some(kept) = self.loaded.kept(file) {
            return Some(kept);
        }
        let before = self.overlay.get(&candidate.path)?.before.as_ref()?;
        let is_base = Sha256::of(before) == Sha256::from_bytes(*self.loaded.manifest.sha256(file));
        is_base.then(|| {
            self.loaded.keep_bytes(file, before);
            Arc::new(before.clone())
        })
    }

    /// Whether the change was diffed before and is still the same.
    fn knows(&self, candidate: &Candidate, file: FileIndex) -> bool {
        !self.is_planned(&candidate.path)
            && self.loaded.part(file, candidate.now.as_ref().map(|now| now.stamp)).is_some()
    }

    /// Whether what is told of the path is not what is there now.
    fn is_planned(&self, path: &LogicalPath) -> bool {
        self.past.is_some() || self.overlay.contains_key(path)
    }

    fn sha256_of(&self, path: &LogicalPath, now: &Now) -> Result<Option<Sha256>, WorkspaceError> {
        if now.is_link {
            return Ok(self.target(path)?.map(|target| Sha256::of(&target)));
        }
        self.check_size(path, now)?;
        let hashed = hash(&self.workspace.tree().root, path)?;
        Ok(hashed.filter(|(_, stamp)| *stamp == now.stamp).map(|(sha256, _)| sha256))
    }

    /// Adds every candidate, in their order.
    pub(super) fn add_all(
        &mut self,
        candidates: &[Candidate],
        mut blobs: Option<&mut OpenBlobs>,
        cancel: &AtomicBool,
    ) -> Result<(), WorkspaceError> {
        for candidate in candidates {
            check(cancel)?;
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(WorkspaceError::Cancelled);
            }
            let stamp = candidate.now.as_ref().map(|now| now.stamp);
            let planned = self.is_planned(&candidate.path);
            let known = candidate.base.filter(|_| !planned).and_then(|file| self.loaded.part(file, stamp));
            let part = match known {
                Some(part) => part,
                None => match self.make(candidate, blobs.as_deref_mut())? {
                    Some(part) => part,
                    None => continue,
                },
            };
            match candidate.base {
                Some(file) if !planned => self.loaded.keep_part(file, stamp, &part),
                Some(file) if self.past.is_none() => self.loaded.keep_planned_part(file, &part),
                Some(_) | None => {}
            }
            self.add(&candidate.path, &part)?;
        }
        Ok(())
    }

    /// Adds one change; of its text only what is shown.
    fn add(&mut self, path: &LogicalPath, part: &Part) -> Result<(), WorkspaceError> {
        self.sha256.update(&part.text);
        match &mut self.out {
            Out::Nowhere => {}
            Out::Text(out) => out.write_all(&part.text)?,
            Out::Each(each) => each(path, &part.file),
        }
        let room = self.max_bytes.saturating_sub(self.text.len());
        if self.stat_only {
            // Nothing is shown, and nothing is missing.
        } else if part.text.len() <= room && !self.truncated {
            self.text.extend_from_slice(&part.text);
        } else if !self.truncated {
            let cut = part.text[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.text.extend_from_slice(&part.text[..cut]);
            self.truncated = true;
        }
        self.add_row(path, part);
        Ok(())
    }

    fn add_row(&mut self, path: &LogicalPath, part: &Part) {
        let DiffFile { insertions, deletions, .. } = part.file;
        self.counts = self.counts + Counts { insertions, deletions };
        self.row_bytes += entry_bytes(path.as_str(), BESIDE_PATH);
        if self.row_bytes <= MAX_ENTRIES_BYTES {
            self.rows.push(stat::Row { file: part.file.clone(), bytes: part.bytes });
        }
        self.files_changed += 1;
        self.changed_bytes += path.as_str().len();
        if self.files_changed > MAX_CHANGED_PATHS || self.changed_bytes > MAX_CHANGED_PATHS_BYTES {
            self.changed = None;
        } else if let Some(changed) = &mut self.changed {
            changed.insert(path.clone());
        }
    }

    /// One file's change; `None` where there turns out to be none.
    fn make(&self, candidate: &Candidate, blobs: Option<&mut OpenBlobs>) -> Result<Option<Arc<Part>>, WorkspaceError> {
        let path = &candidate.path;
        let new = match (self.past, self.overlay.get(path), &candidate.now) {
            (Some(then), ..) => then(path)?,
            (None, Some(overlay), _) => overlay.after.as_ref().map(|(bytes, mode)| Version::of(bytes, *mode)),
            (None, None, Some(now)) => self.read(path, now)?,
            (None, None, None) => None,
        };
        if let (Some(file), Some(new), None) = (candidate.base, &new, self.past)
            && let Some(part) = self.loaded.part_of_content(file, &new.sha256, new.git_mode())
        {
            return Ok(Some(part));
        }
        let old = match candidate.base {
            Some(file) => Some(self.read_base(candidate, file, blobs)?),
            None => self.late_before(path),
        };
        let status = match (&old, &new) {
            (None, None) => return Ok(None),
            (None, Some(_)) => "created",
            (Some(_), None) => "deleted",
            (Some(old), Some(new)) if old.sha256 == new.sha256 && old.git_mode() == new.git_mode() => return Ok(None),
            (Some(_), Some(_)) => "modified",
        };
        let FileDiff { text, counts, binary, .. } = diff_versions(path, old.as_ref(), new.as_ref());
        let size = |side: &Option<Version>| side.as_ref().map_or(0, |version| version.size);
        Ok(Some(Arc::new(Part {
            bytes: (size(&old), size(&new)),
            mode: new.as_ref().map(Version::git_mode),
            file: DiffFile {
                path: path.to_string(),
                status: status.to_owned(),
                insertions: counts.insertions,
                deletions: counts.deletions,
                binary,
                old_sha256: old.map(|version| version.sha256),
                new_sha256: new.map(|version| version.sha256),
            },
            text,
        })))
    }

    /// What a planned change finds that the base will have by then.
    fn late_before(&self, path: &LogicalPath) -> Option<Version> {
        let mode = *self.late.get(path)?;
        self.overlay.get(path)?.before.as_deref().map(|bytes| Version::of(bytes, mode))
    }

    /// What is in the tree; `None` where it went away or may not be read.
    fn read(&self, path: &LogicalPath, now: &Now) -> Result<Option<Version>, WorkspaceError> {
        let version = |sha256, size, bytes| Version { sha256, size, bytes, is_link: now.is_link, mode: now.mode };
        if now.is_link {
            let target = self.target(path)?;
            return Ok(target.map(|target| {
                // Where a link leads outside is a place on the machine, which nobody is told.
                let shown = stays_inside(path.as_str().as_bytes(), &target).then(|| target.clone());
                version(Sha256::of(&target), target.len() as u64, shown)
            }));
        }
        let root = &self.workspace.tree().root;
        self.check_size(path, now)?;
        if now.stamp.size > MAX_SHOWN_BYTES {
            return Ok(hash(root, path)?.map(|(sha256, stamp)| version(sha256, stamp.size, None)));
        }
        let Ok(opened) = root.open_unlinked(path) else { return Ok(None) };
        if !opened.file_type().is_file() || opened.is_hard_linked() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(now.stamp.size).unwrap_or(0));
        io::Read::read_to_end(&mut io::Read::take(File::from(opened.file), MAX_SHOWN_BYTES + 1), &mut bytes)?;
        Ok(Some(version(Sha256::of(&bytes), bytes.len() as u64, Some(bytes))))
    }

    /// Refused for a file whose hash would take for ever.
    fn check_size(&self, path: &LogicalPath, now: &Now) -> Result<(), WorkspaceError> {
        if now.stamp.size > self.max_hashed_bytes {
            return Err(file_too_large(path, self.max_hashed_bytes, now.stamp.size).into());
        }
        Ok(())
    }

    fn target(&self, path: &LogicalPath) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let Ok(place) = self.workspace.tree().root.place(path) else { return Ok(None) };
        match rustix::fs::readlinkat(&place.dir, &*place.name, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn read_base(
        &self,
        candidate: &Candidate,
        file: FileIndex,
        blobs: Option<&mut OpenBlobs>,
    ) -> Result<Version, WorkspaceError> {
        let manifest = &self.loaded.manifest;
        let size = manifest.size(file);
        let bytes = match (self.base_in_memory(candidate, file), blobs) {
            _ if size > MAX_SHOWN_BYTES => None,
            (Some(kept), _) => Some(kept.to_vec()),
            (None, Some(blobs)) => {
                let bytes = blobs.get(manifest.oid(file))?;
                self.loaded.keep_bytes(file, &bytes);
                Some(bytes)
            }
            (None, None) => return Err(io::Error::other("a diff needs the base and has none").into()),
        };
        let mode = manifest.mode(file);
        let sha256 = Sha256::from_bytes(*manifest.sha256(file));
        Ok(Version { sha256, size, bytes, is_link: mode == MODE_LINK, mode: mode & 0o777 })
    }

    pub(super) fn finish(self) -> WorkspaceDiff {
        let Counts { insertions, deletions } = self.counts;
        WorkspaceDiff {
            stat: stat::table(&self.rows, self.files_changed, insertions, deletions),
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

impl Version {
    fn of(bytes: &[u8], mode: u32) -> Self {
        Self { sha256: Sha256::of(bytes), size: bytes.len() as u64, bytes: Some(bytes.to_vec()), is_link: false, mode }
    }

    fn git_mode(&self) -> (bool, bool) {
        (self.is_link, self.mode & 0o111 != 0)
    }

    fn stand_in<'a>(&self, path: &'a LogicalPath, bytes: &'a [u8]) -> Side<'a> {
        Side { path, bytes, mode: if self.is_link { 0o644 } else { self.mode } }
    }

    fn side<'a>(&'a self, path: &'a LogicalPath) -> Side<'a> {
        self.stand_in(path, self.bytes.as_deref().unwrap_or_default())
    }
}

/// The change as git writes it.
pub(super) fn diff_versions(path: &LogicalPath, old: Option<&Version>, new: Option<&Version>) -> FileDiff {
    let mut diff = match (old, new) {
        // One goes and another comes, where a file becomes a link or a link a file.
        (Some(gone), Some(come)) if gone.is_link != come.is_link => {
            let (gone, come) = (diff_versions(path, old, None), diff_versions(path, None, new));
            return FileDiff {
                text: [gone.text, come.text].concat(),
                counts: gone.counts + come.counts,
                binary: gone.binary || come.binary,
                bytes_written: None,
            };
        }
        _ if old.into_iter().chain(new).any(|version| version.bytes.is_none()) => {
            // Bytes that make the sides binary and differ, as the true ones do.
            diff_file(old.map(|old| old.stand_in(path, b"\0old")), new.map(|new| new.stand_in(path, b"\0new")))
        }
        _ => diff_file(old.map(|old| old.side(path)), new.map(|new| new.side(path))),
    };
    if old.or(new).is_some_and(|version| version.is_link) {
        mark_as_link(&mut diff.text);
    }
    diff
}

/// Puts a link's mode in place of a file's.
fn mark_as_link(text: &mut [u8]) {
    for line in text.split_mut(|byte| *byte == b'\n').take(4) {
        if (line.starts_with(b"new file mode ") || line.starts_with(b"deleted file mode ")) && line.ends_with(b"100644")
        {
            let start = line.len() - 6;
            line[start..].copy_from_slice(b"120000");
        }
    }
}
