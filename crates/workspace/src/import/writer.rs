//! Writing an imported tree: its contents to a segment, its names to a list.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{Read, Write};

use model::{LogicalPath, MAX_PATH_BYTES, PathRejected, link_stays_inside};
use sha1::Digest as _;

use super::hard_links::HardLinks;
use super::quota::{EntryQuota, too_large};
use super::tracked::{self, IgnoreFiles};
use super::{ImportLimits, ImportObserver};
use crate::WorkspaceError;
use crate::bare::{object_hash, object_id};
use crate::base_files::NewContents;
use crate::base_files::manifest::{self, MODE_LINK, ManifestRow};
use crate::byte_path::{prefixes, split};
use crate::hashing::each_chunk;
use crate::skipped::SkippedReport;

/// How many entries lie between two reports of progress.
const REPORT_INTERVAL: u64 = 200;
/// The size of a folder or link for the quota, since it has no bytes of its own.
pub(crate) const ENTRY_BYTES: u64 = 4096;
/// How much is read at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// The maximum size of all files that others of the same source replace.
const MAX_REPLACED_BYTES: u64 = 64 << 20;
/// The maximum length of a name, which file systems share.
const MAX_NAME_BYTES: usize = 255;

/// Writes an imported tree.
pub(crate) struct ImportWriter<'a> {
    contents: &'a mut NewContents,
    buffer: Vec<u8>,
    max_depth: usize,
    entries: EntryQuota,
    size: TreeSize<'a>,
    /// Every folder, except the root.
    folders: HashSet<Vec<u8>>,
    submodules: BTreeSet<Vec<u8>>,
    /// The files and links by their paths.
    files: HashMap<Vec<u8>, ManifestRow>,
    /// The files with several names.
    pub(super) hard_links: HardLinks,
    /// The bytes of files that others have replaced.
    replaced_bytes: u64,
    skipped: SkippedReport,
    /// The first file with permission bits that a base does not have, with these, and the number of such files.
    reduced_mode: Option<(Vec<u8>, u32)>,
    reduced_modes: u64,
    /// The files with fewer permissions than git gives them, with these.
    narrowed: BTreeMap<Vec<u8>, u32>,
}

/// What an import has written.
pub(super) struct WrittenTree {
    /// The files and links, in the order of a manifest.
    pub(super) rows: Vec<ManifestRow>,
    /// Every folder, the root included.
    pub(super) folders: Vec<Vec<u8>>,
    /// The paths of the submodules, sorted.
    pub(super) submodules: Vec<Vec<u8>>,
    /// The files with fewer permissions than git gives them, with these.
    pub(super) narrowed: Vec<(Vec<u8>, u32)>,
    pub(super) skipped: SkippedReport,
}

/// Why an entry was not written.
pub(crate) enum WriteError {
    /// A tree cannot contain it, for this reason.
    Unsupported(&'static str),
    /// The import has failed.
    Fatal(WorkspaceError),
}

impl<E: Into<WorkspaceError>> From<E> for WriteError {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

impl<'a> ImportWriter<'a> {
    /// Creates a writer whose contents go to `contents`.
    pub(crate) fn new(contents: &'a mut NewContents, limits: ImportLimits, watch: &'a dyn ImportObserver) -> Self {
        Self {
            contents,
            buffer: vec![0; BUFFER_BYTES],
            max_depth: limits.max_depth,
            entries: EntryQuota::new(limits),
            size: TreeSize { max_bytes: limits.max_bytes, watch, files: 0, bytes: 0, entry_bytes: 0 },
            folders: HashSet::new(),
            submodules: BTreeSet::new(),
            files: HashMap::new(),
            hard_links: HardLinks::default(),
            replaced_bytes: 0,
            skipped: SkippedReport::default(),
            reduced_mode: None,
            reduced_modes: 0,
            narrowed: BTreeMap::new(),
        }
    }

    /// Adds the folder at `path`, and those above it.
    pub(crate) fn folder(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.check_name(path)?;
        // A new folder is counted where it is added.
        if self.folders.contains(path) {
            self.count_skipped(path)?;
        }
        self.enter(path)
    }

    /// Adds the folder of a submodule, which stays empty, and reports that its files are missing.
    pub(super) fn submodule(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.skip(path, "a submodule");
        self.folder(path)?;
        self.submodules.insert(path.to_owned());
        Ok(())
    }

    /// Writes a file with the permission bits `mode`, of which those are kept that Git would set too. `size` is its expected size; it
    /// may differ. `oid` is its blob id, if the source knows it.
    pub(crate) fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        oid: Option<[u8; 20]>,
        from: &mut dyn Read,
    ) -> Result<(), WriteError> {
        self.begin(path, size)?;
        let mut next = self.contents.next()?;
        let mut sha256 = sha2::Sha256::new();
        let tree = &self.size;
        let bytes = each_chunk(from, &mut self.buffer, |chunk, bytes| {
            tree.check(1, bytes)?;
            tree.check_cancelled()?;
            sha256.update(chunk);
            Ok::<_, WriteError>(next.write_all(chunk)?)
        })?;
        let oid = if let Some(oid) = oid {
            oid
        } else {
            // Read again, since git hashes the size first, which may have changed while the file was read.
            let mut sha1 = object_hash("blob", bytes);
            each_chunk(&mut next.reader(), &mut self.buffer, |chunk, _| {
                sha1.update(chunk);
                Ok::<_, WriteError>(())
            })?;
            sha1.finalize().into()
        };
        let sha256 = sha256.finalize().into();
        next.add_blob(oid, sha256);
        self.add_file(ManifestRow { path: path.to_owned(), mode, oid, sha256, size: bytes, is_ignored: false });
        Ok(())
    }

    /// Adds a file whose bytes, the blob `oid`, an earlier base has. Returns whether one has.
    pub(super) fn known_file(&mut self, path: &[u8], mode: u32, oid: [u8; 20]) -> Result<bool, WriteError> {
        let Some((sha256, size)) = self.contents.blob(&oid) else { return Ok(false) };
        self.begin(path, size)?;
        self.add_file(ManifestRow { path: path.to_owned(), mode, oid, sha256, size, is_ignored: false });
        Ok(true)
    }

    /// Adds a copy of the file `original`, for a hard link in an archive.
    pub(crate) fn copy_of(&mut self, path: &[u8], mode: u32, original: &[u8]) -> Result<(), WriteError> {
        let row = self.files.get(original).filter(|row| row.mode != MODE_LINK).cloned();
        let row = row.ok_or(WriteError::Unsupported("a hard link that is not to an earlier file"))?;
        self.begin(path, row.size)?;
        self.add_file(ManifestRow { path: path.to_owned(), mode, ..row });
        Ok(())
    }

    /// Adds a file, whose mode is that of the source.
    fn add_file(&mut self, row: ManifestRow) {
        let (path, mode) = (&row.path, row.mode);
        let git_mode = model::git_mode(mode);
        // The service itself must be able to read the file.
        let kept = mode & git_mode & 0o777 | 0o600;
        if kept != git_mode & 0o777 {
            self.narrowed.insert(path.clone(), kept);
        }
        if git_mode & !mode & 0o077 != 0 || mode & 0o7000 != 0 {
            self.reduced_modes += 1;
            self.reduced_mode.get_or_insert_with(|| (path.clone(), mode));
        }
        self.size.files += 1;
        self.size.bytes += row.size;
        self.files.insert(path.clone(), ManifestRow { mode: git_mode, ..row });
    }

    /// Adds a symbolic link if it stays in the tree, and skips it otherwise. Returns whether it was added.
    pub(crate) fn link_inside(&mut self, path: &[u8], target: &[u8]) -> Result<bool, WriteError> {
        if link_stays_inside(path, target) {
            return self.link(path, target).map(|()| true);
        }
        self.count_entry(path)?;
        self.skip(path, "a symbolic link to a path outside the tree");
        Ok(false)
    }

    /// Adds a symbolic link with any target: the import does not follow it, and the guard does not follow one to a path
    /// outside the tree.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), WriteError> {
        if target.is_empty() || target.contains(&0) {
            self.count_entry(path)?;
            self.skip(path, "a symbolic link without a target");
            return Ok(());
        }
        if target.len() >= MAX_PATH_BYTES {
            self.count_entry(path)?;
            return Err(WriteError::Unsupported("a symbolic link whose target is too long"));
        }
        self.begin(path, ENTRY_BYTES)?;
        let size = target.len() as u64;
        let sha256 = self.contents.add(&mut &*target, size)?;
        self.size.files += 1;
        self.size.entry_bytes += ENTRY_BYTES;
        let row = ManifestRow {
            path: path.to_owned(),
            mode: MODE_LINK,
            oid: object_id("blob", target),
            sha256,
            size,
            is_ignored: false,
        };
        self.files.insert(path.to_owned(), row);
        Ok(())
    }

    /// Whether there is a file at `path`, which is no symbolic link.
    pub(super) fn has_file(&self, path: &[u8]) -> bool {
        self.files.get(path).is_some_and(|row| row.mode != MODE_LINK)
    }

    /// Removes a file that was added.
    pub(super) fn remove(&mut self, path: &[u8]) {
        self.size.files -= u64::from(self.files.remove(path).is_some());
        self.narrowed.remove(path);
        self.hard_links.forget(path);
    }

    /// Removes a file that another one of the source replaces. The base keeps its bytes, so that they are bounded.
    pub(super) fn replace(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.replaced_bytes += self.files.get(path).map_or(0, |row| row.size);
        self.remove(path);
        if self.replaced_bytes > MAX_REPLACED_BYTES {
            return Err(WriteError::Unsupported("it has replaced too many files by others of their names"));
        }
        Ok(())
    }

    /// Returns the `.gitignore` files of the tree.
    pub(super) fn ignore_files(&self) -> Result<IgnoreFiles, WorkspaceError> {
        tracked::ignore_files(self.contents, self.files.values())
    }

    /// Returns what was written.
    pub(super) fn finish(mut self) -> WrittenTree {
        if let Some((path, mode)) = self.reduced_mode.take() {
            let more = match self.reduced_modes - 1 {
                0 => String::new(),
                more => format!(", and those of {more} more"),
            };
            let reason = format!(
                "only its permissions {mode:04o}{more}: the tree does not widen them, but diffs, exports and restored files know only \
                 whether a file is executable"
            );
            self.skip(&path, &reason);
        }
        let mut rows: Vec<_> = self.files.into_values().collect();
        manifest::sort(&mut rows);
        WrittenTree {
            rows,
            folders: self.folders.into_iter().chain([Vec::new()]).collect(),
            submodules: self.submodules.into_iter().collect(),
            narrowed: self.narrowed.into_iter().collect(),
            skipped: self.skipped,
        }
    }

    /// Reports an entry that a tree cannot contain. Returns `None` for it.
    pub(super) fn skip_unsupported<T>(
        &mut self,
        path: &[u8],
        written: Result<T, WriteError>,
    ) -> Result<Option<T>, WorkspaceError> {
        match written {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Unsupported(reason)) => {
                self.skip(path, reason);
                Ok(None)
            }
            Err(WriteError::Fatal(error)) => Err(error),
        }
    }

    /// Reports an entry that the tree does not have.
    pub(crate) fn skip(&mut self, path: &[u8], reason: &str) {
        self.skipped.add(path, reason);
    }

    /// Counts an entry, which need not be written.
    pub(crate) fn count_skipped(&mut self, path: &[u8]) -> Result<(), WorkspaceError> {
        self.size.check_cancelled()?;
        self.entries.count(path)?;
        if self.entries.entries().is_multiple_of(REPORT_INTERVAL) {
            self.size.watch.progress("writing", self.size.files, self.size.bytes);
        }
        Ok(())
    }

    fn count_entry(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.count_skipped(path)?;
        self.check_name(path)
    }

    fn check_name(&self, path: &[u8]) -> Result<(), WriteError> {
        let mut names = path.split(|byte| *byte == b'/');
        let problem = if path.len() > MAX_PATH_BYTES {
            "its path is too long"
        } else if names.clone().count() > self.max_depth {
            "its path has too many names"
        } else if names.any(|name| name.len() > MAX_NAME_BYTES) {
            "its name is too long"
        } else {
            return Ok(());
        };
        Err(WriteError::Unsupported(problem))
    }

    /// Checks that an entry with `size` bytes may be added at `path`, and adds the folders above it.
    fn begin(&mut self, path: &[u8], size: u64) -> Result<(), WriteError> {
        self.count_entry(path)?;
        self.enter(split(path).0)?;
        if self.folders.contains(path) || self.files.contains_key(path) {
            return Err(WriteError::Unsupported("another entry has its name"));
        }
        Ok(self.size.check(1, size)?)
    }

    /// Adds the missing folders of `path`.
    fn enter(&mut self, path: &[u8]) -> Result<(), WriteError> {
        if self.folders.contains(path) {
            return Ok(());
        }
        for folder in prefixes(path) {
            if self.folders.contains(folder) {
                continue;
            }
            if self.files.contains_key(folder) {
                return Err(WriteError::Unsupported("another entry has its name"));
            }
            self.size.check(0, ENTRY_BYTES)?;
            self.count_skipped(folder)?;
            self.folders.insert(folder.to_owned());
            self.size.entry_bytes += ENTRY_BYTES;
        }
        Ok(())
    }
}

/// The size of a tree so far, and its bounds.
struct TreeSize<'a> {
    max_bytes: u64,
    watch: &'a dyn ImportObserver,
    files: u64,
    /// The bytes of all files that were written, including those that were removed again.
    bytes: u64,
    /// [`ENTRY_BYTES`] for each folder and link, since an archive of a few bytes may contain a million of them.
    entry_bytes: u64,
}

impl TreeSize<'_> {
    /// Checks the limit and the quota for so many more files and bytes. A link counts as a file, a folder does not.
    fn check(&self, files: u64, more: u64) -> Result<(), WorkspaceError> {
        let bytes = self.bytes.saturating_add(more);
        if bytes > self.max_bytes {
            return Err(too_large("bytes", self.max_bytes));
        }
        Ok(self.watch.check_quota(self.files + files, bytes.saturating_add(self.entry_bytes))?)
    }

    /// Returns `Cancelled` once the caller has disconnected.
    fn check_cancelled(&self) -> Result<(), WorkspaceError> {
        if self.watch.cancelled() { Err(WorkspaceError::Cancelled) } else { Ok(()) }
    }
}

/// Returns the part of `path` up to the first Git-internal name.
pub(super) fn git_internal(path: &[u8]) -> Option<&[u8]> {
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/') {
        end += name.len();
        if is_git_internal(name) {
            return Some(&path[..end]);
        }
        end += 1;
    }
    None
}

/// Whether some file system treats `name` as `.git`.
pub(crate) fn is_git_internal(name: &[u8]) -> bool {
    LogicalPath::parse(&String::from_utf8_lossy(name)) == Err(PathRejected::GitInternal)
}
