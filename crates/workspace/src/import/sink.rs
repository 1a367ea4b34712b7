//! Where every source puts what it has: a tree in the making, written by folder handles and one name at a time.
//!
//! Nothing here follows a symbolic link, so that no entry of a source can be written through one that came before.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::{Code, LogicalPath, MAX_PATH_BYTES, PathRejected, Refusal, SkippedEntry};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha1::Digest as _;

use super::linked::Names;
use super::{ImportError, ImportLimits, ImportObserver};
use crate::base::manifest::{MODE_EXECUTABLE, MODE_FILE, MODE_LINK, Row, Stamp};

/// How many characters of a path are told.
const MAX_SHOWN: usize = 200;
/// How many left-out entries a report lists.
const MAX_LEFT_OUT: usize = 1_000;
/// How many bytes of paths and reasons it holds: reports are kept with the run and are part of every list of runs.
const MAX_LEFT_OUT_BYTES: usize = 64 * 1024;
/// How many entries lie between two reports of progress.
const REPORT_EVERY: u64 = 200;
/// What a folder or a link takes on the disk, for the quota: it has no bytes of its own that tell.
const ENTRY_BYTES: u64 = 4096;
/// How much is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// What a source has named so far, whether or not it is in the tree: names are held in memory until the import ends.
pub(super) struct Tally {
    limits: ImportLimits,
    entries: u64,
    name_bytes: u64,
}

impl Tally {
    pub(super) fn new(limits: ImportLimits) -> Self {
        Self { limits, entries: 0, name_bytes: 0 }
    }

    /// Counts one entry.
    pub(super) fn add(&mut self, name: &[u8]) -> Result<(), ImportError> {
        self.entries += 1;
        self.name_bytes += name.len() as u64;
        if self.entries > self.limits.max_entries {
            return Err(too_large("entries", self.limits.max_entries));
        }
        if self.name_bytes > self.limits.max_name_bytes {
            return Err(too_large("bytes of names", self.limits.max_name_bytes));
        }
        Ok(())
    }
}

/// What an import has left out, bounded in number and in bytes.
#[derive(Debug, Default)]
pub(super) struct LeftOutReport {
    pub(super) entries: Vec<SkippedEntry>,
    bytes: usize,
    /// How many more there were.
    pub(super) more: u64,
}

impl LeftOutReport {
    fn add(&mut self, path: &[u8], reason: &str) {
        if self.entries.len() < MAX_LEFT_OUT && self.more == 0 {
            let path = shown(path);
            self.bytes += path.len() + reason.len();
            if self.bytes <= MAX_LEFT_OUT_BYTES {
                self.entries.push(SkippedEntry { path, reason: reason.to_owned() });
                return;
            }
        }
        self.more += 1;
    }
}

/// A tree in the making.
pub(crate) struct ImportWriter<'a> {
    root: OwnedFd,
    /// The folders on the way to where the last entry went, each with its path.
    open: Vec<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
    limits: ImportLimits,
    watch: &'a dyn ImportObserver,
    tally: Tally,
    /// Every folder that was made, but for the root.
    folders: HashSet<Vec<u8>>,
    /// What was written, also what is no longer there.
    rows: Vec<Row>,
    /// The names of each content that has several.
    linked: Vec<Names>,
    /// Files that were removed and not written again.
    withdrawn: HashSet<Vec<u8>>,
    /// Bytes of all files that were written.
    bytes: u64,
    /// Links that were made.
    links: u64,
    left_out: LeftOutReport,
}

/// Why an entry is not in the tree.
pub(crate) enum WriteError {
    /// Its bytes could not be read.
    Source(io::Error),
    /// It has no place in a tree.
    Misfit(&'static str),
    /// The import is over.
    Over(ImportError),
}

impl From<ImportError> for WriteError {
    fn from(error: ImportError) -> Self {
        Self::Over(error)
    }
}

impl From<Errno> for WriteError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NAMETOOLONG => Self::Misfit("its name is too long"),
            Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP => {
                Self::Misfit("something else has its name already")
            }
            errno => Self::Over(ImportError::Io(errno.into())),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Over(ImportError::Io(error))
    }
}

impl<'a> ImportWriter<'a> {
    /// A sink into the empty folder `root`.
    pub(crate) fn new(root: OwnedFd, limits: ImportLimits, watch: &'a dyn ImportObserver) -> Self {
        Self {
            root,
            open: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            limits,
            watch,
            tally: Tally::new(limits),
            folders: HashSet::new(),
            rows: Vec::new(),
            linked: Vec::new(),
            withdrawn: HashSet::new(),
            bytes: 0,
            links: 0,
            left_out: LeftOutReport::default(),
        }
    }

    /// Makes the folder at `path`, and those above it.
    pub(crate) fn folder(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.check_name(path)?;
        // A new one is counted where it is made.
        if self.folders.contains(path) {
            self.pass_over(path)?;
        }
        self.enter(path).map(drop)
    }

    /// Writes a file. `size` is what the source says; `from` decides. `oid` is its blob where the source knows it.
    pub(crate) fn file(
        &mut self,
        path: &[u8],
        executable: bool,
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
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(fd);
        let copied = self.copy(from, &mut file, size, &mut buffer, oid.is_none());
        self.buffer = buffer;
        let Copied { bytes, sha256, oid: hashed } = copied?;
        let oid = match oid.or(hashed) {
            Some(oid) => oid,
            // The file changed while it was read, so that git's header, which comes first, was wrong.
            None => hash_blob(&mut file, bytes)?,
        };
        rustix::fs::fchmod(&file, if executable { Mode::from(0o755) } else { Mode::from(0o644) })?;
        let stamp = Stamp::of(&rustix::fs::fstat(&file)?);
        let mode = if executable { MODE_EXECUTABLE } else { MODE_FILE };
        self.bytes += bytes;
        self.withdrawn.remove(path);
        self.rows.push(Row { path: path.to_owned(), mode, oid, sha256, stamp });
        Ok(())
    }

    /// Makes a symbolic link, if it stays in the tree, and returns whether it does. Another one is left out.
    pub(crate) fn link_inside(&mut self, path: &[u8], target: &[u8]) -> Result<bool, WriteError> {
        if stays_inside(path, target) {
            return self.link(path, target).map(|()| true);
        }
        self.count_entry(path)?;
        self.leave_out(path, "a symbolic link that leads out of the tree");
        Ok(false)
    }

    /// Makes a symbolic link as it is in its source, wherever it leads: nothing here follows it, and the guard lets no
    /// tool follow one that leads out.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), WriteError> {
        self.count_entry(path)?;
        if target.is_empty() || target.contains(&0) {
            self.leave_out(path, "a symbolic link that leads nowhere");
            return Ok(());
        }
        let (folder, name) = split(path);
        self.enter(folder)?;
        self.check_quota(ENTRY_BYTES)?;
        let dir = self.last();
        rustix::fs::symlinkat(target, dir, name)?;
        let stamp = Stamp::of(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
        self.links += 1;
        self.rows.push(Row {
            path: path.to_owned(),
            mode: MODE_LINK,
            oid: blob_id(target),
            sha256: *model::Sha256::of(target).as_bytes(),
            stamp,
        });
        Ok(())
    }

    /// Writes one file's bytes to another place: what a hard link in an archive stands for.
    pub(crate) fn copy_of(&mut self, path: &[u8], executable: bool, original: &[u8]) -> Result<(), WriteError> {
        let (folder, name) = split(original);
        let dir = self.enter(folder)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut from = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
        let size = from.metadata()?.len();
        self.file(path, executable, size, None, &mut from)
    }

    /// Removes the file at `path` again, of which nothing remains. Anything else stays.
    pub(crate) fn withdraw(&mut self, path: &[u8]) -> Result<(), WriteError> {
        let (folder, name) = split(path);
        let dir = self.enter(folder)?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
        self.withdrawn.insert(path.to_owned());
        Ok(())
    }

    /// A place for the names of one content.
    pub(super) fn new_linked(&mut self) -> usize {
        self.linked.push(Names::new());
        self.linked.len() - 1
    }

    /// Notes that the content at place `at` has, or had, the name `path`.
    pub(super) fn note_linked(&mut self, at: usize, path: &[u8], there: bool) {
        self.linked[at].insert(path.to_owned(), there);
    }

    /// The names of each content that has several.
    pub(super) fn take_linked(&mut self) -> Vec<Names> {
        std::mem::take(&mut self.linked)
    }

    /// The files and links that are there, by path.
    pub(super) fn rows(&mut self) -> &[Row] {
        let (rows, withdrawn) = (&mut self.rows, std::mem::take(&mut self.withdrawn));
        // Of two entries of one name, which an archive may have, the later is the one that is there.
        rows.reverse();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows.dedup_by(|later, first| later.path == first.path);
        rows.retain(|row| !withdrawn.contains(&row.path));
        rows
    }

    /// The files and links that are there, by path, and what was left out.
    pub(super) fn into_rows(mut self) -> (Vec<Row>, LeftOutReport) {
        self.rows();
        (self.rows, self.left_out)
    }

    /// Every folder with its stamp, once all is written.
    pub(crate) fn folders(&self) -> io::Result<Vec<(Vec<u8>, Stamp)>> {
        let mut stamps = vec![(Vec::new(), Stamp::of(&rustix::fs::fstat(&self.root)?))];
        for path in &self.folders {
            let stat = rustix::fs::statat(&self.root, &path[..], AtFlags::SYMLINK_NOFOLLOW)?;
            stamps.push((path.clone(), Stamp::of(&stat)));
        }
        Ok(stamps)
    }

    /// Reports what the tree does not have.
    pub(crate) fn leave_out(&mut self, path: &[u8], reason: &str) {
        self.left_out.add(path, reason);
    }

    /// Counts an entry, which need not be in the tree.
    pub(crate) fn pass_over(&mut self, path: &[u8]) -> Result<(), ImportError> {
        self.check_cancelled()?;
        self.tally.add(path)?;
        if self.tally.entries.is_multiple_of(REPORT_EVERY) {
            self.report("writing");
        }
        Ok(())
    }

    /// Stops where the orchestrator has gone.
    pub(crate) fn check_cancelled(&self) -> Result<(), ImportError> {
        if self.watch.cancelled() { Err(ImportError::Cancelled) } else { Ok(()) }
    }

    /// Tells how far it is.
    pub(crate) fn report(&self, stage: &'static str) {
        self.watch.progress(stage, self.rows.len() as u64, self.bytes);
    }

    fn count_entry(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.pass_over(path)?;
        self.check_name(path)
    }

    fn check_name(&self, path: &[u8]) -> Result<(), WriteError> {
        if path.len() > MAX_PATH_BYTES {
            return Err(WriteError::Misfit("its path is too long"));
        }
        if path.split(|byte| *byte == b'/').count() > self.limits.max_depth {
            return Err(WriteError::Misfit("it lies too deep"));
        }
        Ok(())
    }

    fn check_bytes(&self, more: u64) -> Result<(), ImportError> {
        if self.bytes.saturating_add(more) > self.limits.max_bytes {
            return Err(too_large("bytes", self.limits.max_bytes));
        }
        self.check_quota(more)
    }

    /// Asks for one entry more, with `more` bytes. Each folder and each link counts as a file here: an archive of a few bytes
    /// may name a million of them.
    fn check_quota(&self, more: u64) -> Result<(), ImportError> {
        let folders = self.folders.len() as u64;
        let bytes = self.bytes.saturating_add(more).saturating_add((folders + self.links) * ENTRY_BYTES);
        Ok(self.watch.check_quota(self.rows.len() as u64 + folders + 1, bytes)?)
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

    /// The handle of the folder at `path`, which is made where it is missing.
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
                self.check_quota(ENTRY_BYTES)?;
            }
            let fd = make_folder(self.last(), &path[start..end])?;
            if is_new {
                self.pass_over(&path[..end])?;
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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
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

/// The name that git gives a blob of these bytes.
pub(crate) fn blob_id(bytes: &[u8]) -> [u8; 20] {
    let mut hash = sha1::Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().into()
}

/// The folder (empty for the root) and the name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Whether some file system takes `name` for `.git`.
pub(crate) fn is_git_internal(name: &[u8]) -> bool {
    LogicalPath::parse(&String::from_utf8_lossy(name)) == Err(PathRejected::GitInternal)
}

/// Whether a link at `path` leads, by the letter, to a place in the tree.
pub(crate) fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    let mut depth = path.split(|byte| *byte == b'/').count() - 1;
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

/// A path of a source as text for people: bytes that are no UTF-8 are written `\xNN`, and of a long one only the start is
/// told, since a source may hold thousands of them, each as long as it likes. Credentials are taken out.
pub(crate) fn shown(path: &[u8]) -> String {
    use std::fmt::Write as _;

    // So much behind what is shown that a credential that begins there is still seen to be one.
    let start = &path[..path.len().min(4 * MAX_SHOWN + 512)];
    let mut text = String::new();
    for chunk in start.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    model::excerpt(&text, MAX_SHOWN)
}

/// The refusal of a source that passes a bound.
pub(super) fn too_large(what: &str, limit: u64) -> ImportError {
    Refusal::new(
        Code::InvalidRequest,
        format!("the source has more than {limit} {what}"),
        "Import a smaller tree: leave out what is built, vendored or data.",
    )
    .with_details(|details| details.limit = Some(limit))
    .into()
}
