//! Writing an imported tree: its contents to a segment, its names to a list.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Read, Write};

use model::{LogicalPath, MAX_PATH_BYTES, PathRejected, link_stays_inside};
use sha1::Digest as _;

use super::quota::{EntryQuota, too_large};
use super::{ImportError, ImportLimits, ImportObserver};
use crate::base_files::NewContents;
use crate::base_files::manifest::{MODE_LINK, ManifestRow};
use crate::byte_path::{prefixes, split};
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

/// The names of one file with several names, each with whether it still exists.
pub(super) type LinkedNames = BTreeMap<Vec<u8>, bool>;

/// Writes an imported tree.
pub(crate) struct ImportWriter<'a> {
    contents: &'a mut NewContents,
    buffer: Vec<u8>,
    limits: ImportLimits,
    watch: &'a dyn ImportObserver,
    quota: EntryQuota,
    /// Every folder, except the root.
    folders: HashSet<Vec<u8>>,
    submodules: BTreeSet<Vec<u8>>,
    /// The files and links by their paths.
    files: HashMap<Vec<u8>, ManifestRow>,
    /// The files with several names.
    linked: Vec<LinkedNames>,
    /// The bytes of all files that were written, including those that were removed again.
    bytes: u64,
    /// The bytes of files that others have replaced.
    replaced_bytes: u64,
    /// The number of links that were created.
    links: u64,
    skipped: SkippedReport,
    /// The first file with permission bits that a base does not have, with these, and the number of such files.
    reduced_mode: Option<(Vec<u8>, u32)>,
    reduced_modes: u64,
    /// The files with fewer permissions than git gives them, with these.
    narrowed: BTreeMap<Vec<u8>, u32>,
}

/// Why an entry was not written.
pub(crate) enum WriteError {
    /// Its bytes could not be read.
    Source(io::Error),
    /// A tree cannot contain it, for this reason.
    Unsupported(&'static str),
    /// The import has failed.
    Fatal(ImportError),
}

impl From<ImportError> for WriteError {
    fn from(error: ImportError) -> Self {
        Self::Fatal(error)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Fatal(ImportError::Io(error))
    }
}

impl<'a> ImportWriter<'a> {
    /// Creates a writer whose contents go to `contents`.
    pub(crate) fn new(contents: &'a mut NewContents, limits: ImportLimits, watch: &'a dyn ImportObserver) -> Self {
        Self {
            contents,
            buffer: vec![0; BUFFER_BYTES],
            limits,
            watch,
            quota: EntryQuota::new(limits),
            folders: HashSet::new(),
            submodules: BTreeSet::new(),
            files: HashMap::new(),
            linked: Vec::new(),
            bytes: 0,
            replaced_bytes: 0,
            links: 0,
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
        let bounds = self.bounds();
        let mut next = self.contents.next()?;
        let Copied { bytes, sha256, oid: hashed } =
            copy(from, &mut next, size, &mut self.buffer, oid.is_none(), &bounds)?;
        let oid = match oid.or(hashed) {
            Some(oid) => oid,
            // The file changed while it was read, so the size in git's header, which is hashed first, was wrong.
            None => hash_blob(&mut next.reader(), bytes)?,
        };
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
        let row = self.files.get(original).cloned();
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
        self.bytes += row.size;
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
        self.links += 1;
        let row = ManifestRow {
            path: path.to_owned(),
            mode: MODE_LINK,
            oid: blob_id(target),
            sha256,
            size,
            is_ignored: false,
        };
        self.files.insert(path.to_owned(), row);
        Ok(())
    }

    /// Removes a file that was added.
    pub(crate) fn remove(&mut self, path: &[u8]) {
        self.files.remove(path);
        self.narrowed.remove(path);
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

    /// Adds a file with several names, and returns its index.
    pub(super) fn new_linked(&mut self) -> usize {
        self.linked.push(LinkedNames::new());
        self.linked.len() - 1
    }

    /// Adds a name of the file `index`. `exists` is false if only the source has the name, not the tree.
    pub(super) fn add_linked_name(&mut self, index: usize, path: &[u8], exists: bool) {
        self.linked[index].insert(path.to_owned(), exists);
    }

    /// Takes the files with several names.
    pub(super) fn take_linked(&mut self) -> Vec<LinkedNames> {
        std::mem::take(&mut self.linked)
    }

    /// Returns the files and links, and their contents.
    pub(super) fn rows(&self) -> (impl Iterator<Item = &ManifestRow>, &NewContents) {
        (self.files.values(), self.contents)
    }

    /// Returns the files and links, sorted by path, and the skipped entries.
    pub(super) fn into_rows(mut self) -> (Vec<ManifestRow>, SkippedReport) {
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
        rows.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        (rows, self.skipped)
    }

    /// Returns every folder.
    pub(crate) fn folders(&self) -> Vec<Vec<u8>> {
        self.folders.iter().cloned().chain([Vec::new()]).collect()
    }

    /// Takes the files with fewer permissions than git gives them, with these.
    pub(super) fn take_narrowed(&mut self) -> Vec<(Vec<u8>, u32)> {
        std::mem::take(&mut self.narrowed).into_iter().collect()
    }

    /// Returns the paths of the submodules, sorted.
    pub(super) fn submodules(&self) -> Vec<Vec<u8>> {
        self.submodules.iter().cloned().collect()
    }

    /// Reports an entry that the tree does not have.
    pub(crate) fn skip(&mut self, path: &[u8], reason: &str) {
        self.skipped.add(path, reason);
    }

    /// Counts an entry, which need not be written.
    pub(crate) fn count_skipped(&mut self, path: &[u8]) -> Result<(), ImportError> {
        self.check_cancelled()?;
        self.quota.count(path)?;
        if self.quota.entries().is_multiple_of(REPORT_INTERVAL) {
            self.watch.progress("writing", self.files.len() as u64, self.bytes);
        }
        Ok(())
    }

    /// Returns `Cancelled` once the caller has disconnected.
    pub(crate) fn check_cancelled(&self) -> Result<(), ImportError> {
        if self.watch.cancelled() { Err(ImportError::Cancelled) } else { Ok(()) }
    }

    fn count_entry(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.count_skipped(path)?;
        self.check_name(path)
    }

    fn check_name(&self, path: &[u8]) -> Result<(), WriteError> {
        if path.len() > MAX_PATH_BYTES {
            return Err(WriteError::Unsupported("its path is too long"));
        }
        if path.split(|byte| *byte == b'/').count() > self.limits.max_depth {
            return Err(WriteError::Unsupported("its path has too many names"));
        }
        if path.split(|byte| *byte == b'/').any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(WriteError::Unsupported("its name is too long"));
        }
        Ok(())
    }

    /// Checks that an entry with `size` bytes may be added at `path`, and adds the folders above it.
    fn begin(&mut self, path: &[u8], size: u64) -> Result<(), WriteError> {
        self.count_entry(path)?;
        self.enter(split(path).0)?;
        if self.folders.contains(path) || self.files.contains_key(path) {
            return Err(WriteError::Unsupported("another entry has its name"));
        }
        Ok(self.bounds().check(1, size)?)
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
            self.bounds().check(0, ENTRY_BYTES)?;
            self.count_skipped(folder)?;
            self.folders.insert(folder.to_owned());
        }
        Ok(())
    }

    fn bounds(&self) -> ByteBounds<'a> {
        ByteBounds {
            max_bytes: self.limits.max_bytes,
            watch: self.watch,
            files: self.files.len() as u64,
            bytes: self.bytes,
            entry_bytes: (self.folders.len() as u64 + self.links) * ENTRY_BYTES,
        }
    }
}

/// What bounds the bytes of the next entry.
struct ByteBounds<'a> {
    max_bytes: u64,
    watch: &'a dyn ImportObserver,
    files: u64,
    bytes: u64,
    entry_bytes: u64,
}

impl ByteBounds<'_> {
    /// Checks the limit and the quota for so many more files and bytes. A link counts as a file, a folder does not; each takes
    /// [`ENTRY_BYTES`], since an archive of a few bytes may contain a million of them.
    fn check(&self, files: u64, more: u64) -> Result<(), ImportError> {
        let bytes = self.bytes.saturating_add(more);
        if bytes > self.max_bytes {
            return Err(too_large("bytes", self.max_bytes));
        }
        Ok(self.watch.check_quota(self.files + files, bytes.saturating_add(self.entry_bytes))?)
    }
}

fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    size: u64,
    buffer: &mut [u8],
    with_oid: bool,
    bounds: &ByteBounds<'_>,
) -> Result<Copied, WriteError> {
    let mut sha256 = sha2::Sha256::new();
    let mut sha1 = sha1::Sha1::new();
    sha1.update(format!("blob {size}\0"));
    let mut bytes = 0;
    loop {
        let count = match from.read(buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(WriteError::Source(error)),
        };
        bytes += count as u64;
        bounds.check(1, bytes)?;
        sha256.update(&buffer[..count]);
        if with_oid {
            sha1.update(&buffer[..count]);
        }
        to.write_all(&buffer[..count])?;
        if (bytes > size || count == buffer.len()) && bounds.watch.cancelled() {
            return Err(ImportError::Cancelled.into());
        }
    }
    let oid = (with_oid && bytes == size).then(|| sha1.finalize().into());
    Ok(Copied { bytes, sha256: sha256.finalize().into(), oid })
}

struct Copied {
    bytes: u64,
    sha256: [u8; 32],
    oid: Option<[u8; 20]>,
}

fn hash_blob(from: &mut dyn Read, bytes: u64) -> io::Result<[u8; 20]> {
    struct Hash(sha1::Sha1);
    impl Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hash = Hash(sha1::Sha1::new_with_prefix(format!("blob {bytes}\0")));
    io::copy(from, &mut hash)?;
    Ok(hash.0.finalize().into())
}

/// Returns git's object id of a blob of these bytes.
pub(crate) fn blob_id(bytes: &[u8]) -> [u8; 20] {
    let mut hash = sha1::Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().into()
}

/// Whether some file system treats `name` as `.git`.
pub(crate) fn is_git_internal(name: &[u8]) -> bool {
    LogicalPath::parse(&String::from_utf8_lossy(name)) == Err(PathRejected::GitInternal)
}
