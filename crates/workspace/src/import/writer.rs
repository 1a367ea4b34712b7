//! Writing an imported tree, by folder handles and one name at a time.
//!
//! No symbolic link is followed, so that no entry of a source can be written through an earlier one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::{LogicalPath, MAX_PATH_BYTES, PathRejected, link_stays_inside};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use sha1::Digest as _;

use super::quota::{EntryQuota, too_large};
use super::{ImportError, ImportLimits, ImportObserver};
use crate::base::manifest::{MODE_LINK, ManifestRow};
use crate::byte_path::split;
use crate::dir::{create_file, open_dir, open_file};
use crate::skipped::SkippedReport;

/// How many entries lie between two reports of progress.
const REPORT_INTERVAL: u64 = 200;
/// The size of a folder or link for the quota, since it has no bytes of its own.
pub(crate) const ENTRY_BYTES: u64 = 4096;
/// How much is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// The names of one file with several names, each with whether it still exists.
pub(super) type LinkedNames = BTreeMap<Vec<u8>, bool>;

/// Writes an imported tree into an empty folder.
pub(crate) struct ImportWriter<'a> {
    root: OwnedFd,
    /// The open folders on the path of the last entry, each with its path.
    open: Vec<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
    limits: ImportLimits,
    watch: &'a dyn ImportObserver,
    quota: EntryQuota,
    /// Every folder that was created, except the root.
    folders: HashSet<Vec<u8>>,
    submodules: BTreeSet<Vec<u8>>,
    /// Every file and link that was written, including those that were removed again.
    rows: Vec<ManifestRow>,
    /// The files with several names.
    linked: Vec<LinkedNames>,
    /// Files that were removed and not written again.
    removed: HashSet<Vec<u8>>,
    /// The bytes of all files that were written.
    bytes: u64,
    /// The number of links that were created.
    links: u64,
    skipped: SkippedReport,
    /// The first file with permission bits that a base does not have, with these, and the number of such files.
    reduced_mode: Option<(Vec<u8>, u32)>,
    reduced_modes: u64,
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

impl From<Errno> for WriteError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NAMETOOLONG => Self::Unsupported("its name is too long"),
            Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP => {
                Self::Unsupported("another entry has its name")
            }
            errno => Self::Fatal(errno.into()),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Fatal(ImportError::Io(error))
    }
}

impl<'a> ImportWriter<'a> {
    /// Creates a writer into the empty folder `root`.
    pub(crate) fn new(root: OwnedFd, limits: ImportLimits, watch: &'a dyn ImportObserver) -> Self {
        Self {
            root,
            open: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            limits,
            watch,
            quota: EntryQuota::new(limits),
            folders: HashSet::new(),
            submodules: BTreeSet::new(),
            rows: Vec::new(),
            linked: Vec::new(),
            removed: HashSet::new(),
            bytes: 0,
            links: 0,
            skipped: SkippedReport::default(),
            reduced_mode: None,
            reduced_modes: 0,
            narrowed: BTreeMap::new(),
        }
    }

    /// Creates the folder at `path`, and those above it.
    pub(crate) fn folder(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.check_name(path)?;
        // A new folder is counted where it is created.
        if self.folders.contains(path) {
            self.count_skipped(path)?;
        }
        self.enter(path).map(drop)
    }

    /// Creates the folder of a submodule, which stays empty, and reports that its files are missing.
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
        self.count_entry(path)?;
        let (folder, name) = split(path);
        self.enter(folder)?;
        self.check_bytes(size)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let dir = self.last();
        let mut file = create_file(dir, name)?;
        let copied = self.copy(from, &mut file, size, &mut buffer, oid.is_none());
        self.buffer = buffer;
        let Copied { bytes, sha256, oid: hashed } = copied?;
        let oid = match oid.or(hashed) {
            Some(oid) => oid,
            // The file changed while it was read, so the size in git's header, which is hashed first, was wrong.
            None => hash_blob(&mut file, bytes)?,
        };
        let git_mode = model::git_mode(mode);
        // The service itself must be able to read the file.
        rustix::fs::fchmod(&file, Mode::from(mode & git_mode & 0o777 | 0o600))?;
        let kept = mode & git_mode & 0o777 | 0o600;
        if kept != git_mode & 0o777 {
            self.narrowed.insert(path.to_owned(), kept);
        }
        if git_mode & !mode & 0o077 != 0 || mode & 0o7000 != 0 {
            self.reduced_modes += 1;
            self.reduced_mode.get_or_insert_with(|| (path.to_owned(), mode));
        }
        self.bytes += bytes;
        self.removed.remove(path);
        self.rows.push(ManifestRow {
            path: path.to_owned(),
            mode: git_mode,
            oid,
            sha256,
            size: bytes,
            is_ignored: false,
        });
        Ok(())
    }

    /// Creates a symbolic link if it stays in the tree, and skips it otherwise. Returns whether it was created.
    pub(crate) fn link_inside(&mut self, path: &[u8], target: &[u8]) -> Result<bool, WriteError> {
        if link_stays_inside(path, target) {
            return self.link(path, target).map(|()| true);
        }
        self.count_entry(path)?;
        self.skip(path, "a symbolic link to a path outside the tree");
        Ok(false)
    }

    /// Creates a symbolic link with any target: the import does not follow it, and the guard does not follow one to a path
    /// outside the tree.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), WriteError> {
        self.count_entry(path)?;
        if target.is_empty() || target.contains(&0) {
            self.skip(path, "a symbolic link without a target");
            return Ok(());
        }
        let (folder, name) = split(path);
        self.enter(folder)?;
        self.check_quota(1, ENTRY_BYTES)?;
        let dir = self.last();
        rustix::fs::symlinkat(target, dir, name)?;
        self.links += 1;
        self.rows.push(ManifestRow {
            path: path.to_owned(),
            mode: MODE_LINK,
            oid: blob_id(target),
            sha256: *model::Sha256::of(target).as_bytes(),
            size: target.len() as u64,
            is_ignored: false,
        });
        Ok(())
    }

    /// Writes a copy of the file `original`, for a hard link in an archive.
    pub(crate) fn copy_of(&mut self, path: &[u8], mode: u32, original: &[u8]) -> Result<(), WriteError> {
        let (folder, name) = split(original);
        let dir = self.enter(folder)?;
        let mut from = open_file(dir, name)?;
        let size = from.metadata()?.len();
        self.file(path, mode, size, None, &mut from)
    }

    /// Removes a file that was written. Anything else at `path` stays.
    pub(crate) fn remove(&mut self, path: &[u8]) -> Result<(), WriteError> {
        let (folder, name) = split(path);
        let dir = self.enter(folder)?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
        self.removed.insert(path.to_owned());
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

    /// Returns every file and link that was written, in order.
    pub(crate) fn all_rows(&self) -> &[ManifestRow] {
        &self.rows
    }

    /// Returns the files and links that exist, sorted by path.
    pub(super) fn rows(&mut self) -> &[ManifestRow] {
        let (rows, removed) = (&mut self.rows, std::mem::take(&mut self.removed));
        // Of two entries with one name, which an archive may have, the later one exists.
        rows.reverse();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows.dedup_by(|later, first| later.path == first.path);
        rows.retain(|row| !removed.contains(&row.path));
        rows
    }

    /// Returns the files and links that exist, sorted by path, and the skipped entries.
    pub(super) fn into_rows(mut self) -> (Vec<ManifestRow>, SkippedReport) {
        self.rows();
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
        (self.rows, self.skipped)
    }

    /// Returns every folder.
    pub(crate) fn folders(&self) -> Vec<Vec<u8>> {
        self.folders.iter().cloned().chain([Vec::new()]).collect()
    }

    /// Takes the files with fewer permissions than git gives them, with these.
    pub(super) fn take_narrowed(&mut self) -> BTreeMap<Vec<u8>, u32> {
        let mut narrowed = std::mem::take(&mut self.narrowed);
        narrowed.retain(|path, _| !self.removed.contains(path));
        narrowed
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
            self.watch.progress("writing", self.rows.len() as u64, self.bytes);
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
        Ok(())
    }

    fn check_bytes(&self, more: u64) -> Result<(), ImportError> {
        if self.bytes.saturating_add(more) > self.limits.max_bytes {
            return Err(too_large("bytes", self.limits.max_bytes));
        }
        self.check_quota(1, more)
    }

    /// Checks the quota for so many more files and bytes. A link counts as a file, a folder does not; each takes [`ENTRY_BYTES`], since
    /// an archive of a few bytes may contain a million of them.
    fn check_quota(&self, files: u64, bytes: u64) -> Result<(), ImportError> {
        let entries = self.folders.len() as u64 + self.links;
        let bytes = self.bytes.saturating_add(bytes).saturating_add(entries * ENTRY_BYTES);
        Ok(self.watch.check_quota(self.rows.len() as u64 + files, bytes)?)
    }

    fn copy(
        &self,
        from: &mut dyn Read,
        to: &mut File,
        size: u64,
        buffer: &mut [u8],
        with_oid: bool,
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
            self.check_bytes(bytes)?;
            sha256.update(&buffer[..count]);
            if with_oid {
                sha1.update(&buffer[..count]);
            }
            to.write_all(&buffer[..count])?;
            if bytes > size || count == buffer.len() {
                self.check_cancelled()?;
            }
        }
        let oid = (with_oid && bytes == size).then(|| sha1.finalize().into());
        Ok(Copied { bytes, sha256: sha256.finalize().into(), oid })
    }

    /// Opens the folder at `path`. Creates missing folders.
    fn enter(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>, WriteError> {
        let is_above = |folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        while self.open.last().is_some_and(|(folder, _)| !is_above(folder)) {
            self.open.pop();
        }
        let mut start = self.open.last().map_or(0, |(folder, _)| folder.len() + 1);
        while start < path.len() {
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| start + at);
            let is_new = !self.folders.contains(&path[..end]);
            if is_new {
                self.check_quota(0, ENTRY_BYTES)?;
            }
            let fd = make_folder(self.last(), &path[start..end])?;
            if is_new {
                self.count_skipped(&path[..end])?;
                self.folders.insert(path[..end].to_owned());
            }
            self.open.push((path[..end].to_owned(), fd));
            start = end + 1;
        }
        Ok(self.last())
    }

    fn last(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd())
    }
}

struct Copied {
    bytes: u64,
    sha256: [u8; 32],
    oid: Option<[u8; 20]>,
}

fn make_folder(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(dir, name, Mode::from(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    open_dir(dir, name)
}

fn hash_blob(file: &mut File, bytes: u64) -> io::Result<[u8; 20]> {
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
    file.seek(SeekFrom::Start(0))?;
    io::copy(file, &mut hash)?;
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
