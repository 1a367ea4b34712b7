//! What differs from the index.

use std::collections::HashSet;
use std::ffi::CString;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::entry::{
    MAX_DEPTH, NodeKind, NodeStamp, NodeVersion, OWN_FOLDER, check_new_name, check_path, size_of, stays_inside,
};
use crate::error::ShimError;
use crate::folder::{ChangeKind, LeftEntry, PathChange, ScanReport};
use crate::handles::{for_each_entry, name_of, open_file, open_folder, stat};
use crate::index::CheckoutIndex;

/// The most entries that a scan walks over.
const MAX_WALKED: u64 = 2_000_000;
/// The most changes of one scan.
const MAX_CHANGES: usize = 250_000;
/// The most entries that are left whose names a scan returns.
const MAX_LEFT: usize = 100;
/// What to do with a folder that has too much.
const LESS: &str = "delete what is not meant for the run, or check the run out into another folder";
const CHUNK_BYTES: usize = 256 << 10;
/// The most characters of a path that is only shown.
pub(crate) const MAX_SHOWN_CHARS: usize = 300;

/// Looks at single paths.
pub(crate) struct Look<'a> {
    pub(crate) index: &'a CheckoutIndex,
}

/// What is at a path.
pub(crate) enum LookedAt {
    Absent,
    /// The version of the index. Its metadata may differ.
    Unchanged(NodeStamp),
    /// Another version.
    Node(NodeVersion, NodeStamp),
    Folder,
    Special,
}

impl Look<'_> {
    /// Looks at `path`, whose folder is `dir`.
    pub(crate) fn at(&self, dir: BorrowedFd<'_>, path: &str) -> Result<LookedAt, ShimError> {
        let Some(found) = stat(dir, name_of(path)).map_err(ShimError::of(path))? else { return Ok(LookedAt::Absent) };
        self.at_stat(dir, path, &found)
    }

    fn at_stat(&self, dir: BorrowedFd<'_>, path: &str, found: &Stat) -> Result<LookedAt, ShimError> {
        let Some(kind) = NodeKind::of(found) else {
            let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            return Ok(if is_folder { LookedAt::Folder } else { LookedAt::Special });
        };
        let known = self.index.entries.get(path);
        let stamp = NodeStamp::of(found);
        if known.is_some_and(|known| self.index.is_unchanged(known, &stamp)) {
            return Ok(LookedAt::Unchanged(stamp));
        }
        let version = match hash(dir, name_of(path), kind) {
            Ok(hash) => NodeVersion { kind, hash },
            // It went or was replaced since.
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => return Ok(LookedAt::Absent),
            Err(errno) => return Err(ShimError::io(path, errno)),
        };
        Ok(match known {
            Some(known) if known.version == version => LookedAt::Unchanged(stamp),
            _ => LookedAt::Node(version, stamp),
        })
    }
}

fn hash(dir: BorrowedFd<'_>, name: &str, kind: NodeKind) -> Result<[u8; 32], Errno> {
    if kind == NodeKind::Link {
        let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
        return Ok(Sha256::digest(target.as_bytes()).into());
    }
    let mut file = open_file(dir, name)?;
    let mut hasher = Sha256::new();
    // Not more than it has now: a file that grows is never at its end.
    let mut left = size_of(&rustix::fs::fstat(&file)?).saturating_add(1);
    let mut chunk = vec![0; chunk_bytes(left)];
    while left > 0 {
        let count = file.read(&mut chunk).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if count == 0 {
            break;
        }
        hasher.update(&chunk[..count]);
        left = left.saturating_sub(count as u64);
    }
    Ok(hasher.finalize().into())
}

/// The size of a buffer for a file: most files are small.
pub(crate) fn chunk_bytes(file_bytes: u64) -> usize {
    usize::try_from(file_bytes).unwrap_or(CHUNK_BYTES).clamp(1, CHUNK_BYTES)
}

/// A walk through a folder.
pub(crate) struct FolderScan<'a> {
    index: &'a mut CheckoutIndex,
    build_output: &'a [String],
    report: ScanReport,
    max_walked: u64,
    walked: u64,
    seen: HashSet<String>,
    /// Folders that could not be looked into: nothing is said of what the index has in them.
    unseen: Vec<String>,
    /// Whether the index knows more than before.
    has_learned: bool,
}

impl<'a> FolderScan<'a> {
    pub(crate) fn new(index: &'a mut CheckoutIndex, build_output: &'a [String]) -> Self {
        let seen = HashSet::with_capacity(index.entries.len());
        let report = ScanReport::default();
        Self {
            index,
            build_output,
            report,
            max_walked: MAX_WALKED,
            walked: 0,
            seen,
            unseen: Vec::new(),
            has_learned: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_max_walked(self, max_walked: u64) -> Self {
        Self { max_walked, ..self }
    }

    /// Walks through the folder. Returns what it found, and whether the index knows more than before.
    pub(crate) fn run(mut self, root: &OwnedFd) -> Result<(ScanReport, bool), ShimError> {
        self.folder(root.as_fd(), "", 0)?;
        if self.seen.len() < self.index.entries.len() {
            self.deleted()?;
        }
        self.report.changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok((self.report, self.has_learned))
    }

    fn folder(&mut self, dir: BorrowedFd<'_>, prefix: &str, depth: usize) -> Result<(), ShimError> {
        let mut entries: Vec<(CString, FileType)> = Vec::new();
        let max = self.max_walked;
        let limit = max.saturating_sub(self.walked);
        for_each_entry(dir, |name, file_type| {
            entries.push((name.to_owned(), file_type));
            if entries.len() as u64 > limit { Err(Errno::TOOBIG) } else { Ok(()) }
        })
        .map_err(|errno| match errno {
            Errno::TOOBIG => ShimError::Refused(format!("the folder has more than {max} entries: {LESS}")),
            errno => ShimError::io(if prefix.is_empty() { "the folder" } else { prefix }, errno),
        })?;
        self.walked += entries.len() as u64;
        for (raw, file_type) in entries {
            if raw.as_bytes() == b".git" || (depth == 0 && raw.as_bytes() == OWN_FOLDER.as_bytes()) {
                continue;
            }
            let Ok(name) = raw.to_str() else {
                self.leave(&format!("{prefix}{}", raw.to_string_lossy()), "the name is not UTF-8");
                continue;
            };
            let path = format!("{prefix}{name}");
            if file_type == FileType::Directory {
                self.enter(dir, name, &path, depth)?;
            } else {
                self.node(dir, path)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, dir: BorrowedFd<'_>, name: &str, path: &str, depth: usize) -> Result<(), ShimError> {
        let is_build_output = self.build_output.iter().any(|output| output.eq_ignore_ascii_case(name));
        if is_build_output && !self.index.has_beneath(path) {
            if self.report.not_walked.len() < MAX_LEFT {
                self.report.not_walked.push(path.chars().take(MAX_SHOWN_CHARS).chain(['/']).collect());
            }
            return Ok(());
        }
        if depth + 1 >= MAX_DEPTH {
            self.leave(path, "the folder is too deep");
            self.unseen.push(format!("{path}/"));
            return Ok(());
        }
        match open_folder(dir, name) {
            Ok(folder) => self.folder(folder.as_fd(), &format!("{path}/"), depth + 1),
            // It went or was replaced since.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => {
                self.leave(path, &format!("the folder cannot be read: {}", errno.kind()));
                self.unseen.push(format!("{path}/"));
                Ok(())
            }
        }
    }

    fn node(&mut self, dir: BorrowedFd<'_>, path: String) -> Result<(), ShimError> {
        let Some(found) = stat(dir, name_of(&path)).map_err(ShimError::of(&path))? else { return Ok(()) };
        let Some(known) = self.index.entries.get(&path) else { return self.new_node(dir, path, &found) };
        if NodeKind::of(&found).is_some_and(|kind| kind != known.version.kind || size_of(&found) != known.stamp.size) {
            // It need not be read to know that it differs, however large it is now.
            self.seen.insert(path.clone());
            return self.change(path, ChangeKind::Modified, size_of(&found));
        }
        match (Look { index: self.index }).at_stat(dir, &path, &found) {
            Ok(LookedAt::Unchanged(stamp)) => {
                if let Some(known) = self.index.entries.get_mut(&path) {
                    // An entry that was as young as the index is older than the next one.
                    self.has_learned |= known.stamp != stamp || stamp.newest_ns() >= self.index.clock_ns;
                    known.stamp = stamp;
                }
                self.seen.insert(path);
            }
            Ok(LookedAt::Node(..)) => {
                self.seen.insert(path.clone());
                self.change(path, ChangeKind::Modified, size_of(&found))?;
            }
            Ok(LookedAt::Absent) => {}
            Ok(LookedAt::Folder | LookedAt::Special) => {
                self.seen.insert(path.clone());
                self.leave(&path, "it is no file any more");
            }
            Err(ShimError::Io { cause, .. }) => {
                self.seen.insert(path.clone());
                self.leave(&path, &format!("it cannot be read: {}", cause.kind()));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A path that the index does not know. It is not read now: whoever takes it reads it.
    fn new_node(&mut self, dir: BorrowedFd<'_>, path: String, found: &Stat) -> Result<(), ShimError> {
        if let Err(why) = check_path(&path).and_then(|()| check_new_name(&path)) {
            self.leave(&path, why);
            return Ok(());
        }
        match NodeKind::of(found) {
            None => self.leave(&path, "it is a device, a FIFO or a socket"),
            Some(NodeKind::Link) if !leads_inside(dir, &path) => {
                self.leave(&path, "the link leads out of the folder");
            }
            Some(_) => self.change(path, ChangeKind::Added, size_of(found))?,
        }
        Ok(())
    }

    fn deleted(&mut self) -> Result<(), ShimError> {
        let unseen = std::mem::take(&mut self.unseen);
        let is_gone = |path: &&String| {
            !self.seen.contains(*path) && !unseen.iter().any(|folder| path.starts_with(folder.as_str()))
        };
        let gone: Vec<_> = self.index.entries.keys().filter(is_gone).cloned().collect();
        gone.into_iter().try_for_each(|path| self.change(path, ChangeKind::Deleted, 0))
    }

    fn change(&mut self, path: String, change: ChangeKind, size: u64) -> Result<(), ShimError> {
        if self.report.changes.len() >= MAX_CHANGES {
            return Err(ShimError::Refused(format!("more than {MAX_CHANGES} files changed: {LESS}")));
        }
        self.report.changes.push(PathChange { path, change, size });
        Ok(())
    }

    fn leave(&mut self, path: &str, why: &str) {
        self.report.left_count += 1;
        if self.report.left.len() < MAX_LEFT {
            let path = path.chars().take(MAX_SHOWN_CHARS).collect();
            self.report.left.push(LeftEntry { path, why: why.to_owned() });
        }
    }
}

/// Whether the link at `path` leads to a place inside the folder, as its text says.
pub(crate) fn leads_inside(dir: BorrowedFd<'_>, path: &str) -> bool {
    let target = rustix::fs::readlinkat(dir, name_of(path), Vec::new());
    target.ok().and_then(|target| target.into_string().ok()).is_some_and(|target| stays_inside(path, &target))
}
