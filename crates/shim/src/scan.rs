//! What differs from the index.

use std::collections::btree_map::IterMut;
use std::ffi::{CStr, CString};
use std::io::Read as _;
use std::iter::Peekable;
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
use crate::index::{CheckoutIndex, IndexEntry};

/// The most entries that a scan walks over.
const MAX_WALKED: u64 = 2_000_000;
/// The most changes of one scan.
const MAX_CHANGES: usize = 250_000;
/// The most entries that are left whose names a scan returns.
const MAX_LEFT: usize = 100;
/// What to do with a folder that has too much.
const LESS: &str = "delete what is not meant for the run, or check the run out into another folder";
const CHUNK_BYTES: usize = 256 << 10;
/// How much must have been read of unchanged files until the index is written again, which takes as long.
pub(crate) const WORTH_SAVING_BYTES: u64 = 4 << 20;
/// What to open a file costs, in bytes that are read.
const OPENED_FILE_BYTES: u64 = 16 << 10;
/// The most characters of a path that is only shown.
pub(crate) const MAX_SHOWN_CHARS: usize = 300;

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

/// Looks at `path`, whose folder is `dir`, and of which the index has `known`.
pub(crate) fn look(dir: BorrowedFd<'_>, path: &str, known: Option<&IndexEntry>) -> Result<LookedAt, ShimError> {
    let Some(found) = stat(dir, name_of(path)).map_err(ShimError::of(path))? else { return Ok(LookedAt::Absent) };
    look_at(dir, path, &found, known)
}

fn look_at(dir: BorrowedFd<'_>, path: &str, found: &Stat, known: Option<&IndexEntry>) -> Result<LookedAt, ShimError> {
    let Some(kind) = NodeKind::of(found) else {
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        return Ok(if is_folder { LookedAt::Folder } else { LookedAt::Special });
    };
    let stamp = NodeStamp::of(found);
    if known.is_some_and(|known| known.stamp == stamp) {
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

/// What it costs to hash a file, in bytes that are read.
pub(crate) fn look_bytes(stamp: &NodeStamp) -> u64 {
    OPENED_FILE_BYTES.saturating_add(stamp.size)
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

/// A walk through a folder, in the order of the index: both are merged.
pub(crate) struct FolderScan<'a> {
    /// The entries of the index that the walk has not come to.
    known: Peekable<IterMut<'a, String, IndexEntry>>,
    build_output: &'a [String],
    /// The file system's time before the walk.
    began_ns: i64,
    report: ScanReport,
    /// The first empty folders.
    empty: Vec<LeftEntry>,
    max_walked: u64,
    walked: u64,
    /// How much was read to find that it is unchanged, which the index knows now.
    learned_bytes: u64,
}

impl<'a> FolderScan<'a> {
    pub(crate) fn new(index: &'a mut CheckoutIndex, build_output: &'a [String], began_ns: i64) -> Self {
        Self {
            known: index.entries.iter_mut().peekable(),
            build_output,
            began_ns,
            report: ScanReport::default(),
            empty: Vec::new(),
            max_walked: MAX_WALKED,
            walked: 0,
            learned_bytes: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_max_walked(self, max_walked: u64) -> Self {
        Self { max_walked, ..self }
    }

    /// Walks through the folder. Returns what it found, and whether the index has learned enough to be written.
    pub(crate) fn run(mut self, root: &OwnedFd) -> Result<(ScanReport, bool), ShimError> {
        self.folder(root.as_fd(), &mut String::new(), 0)?;
        while let Some((path, _)) = self.known.next() {
            self.change(path, ChangeKind::Deleted, None)?;
        }
        // Many of them keep the name of nothing else out.
        self.report.left.append(&mut self.empty);
        self.report.left.truncate(MAX_LEFT);
        Ok((self.report, self.learned_bytes >= WORTH_SAVING_BYTES))
    }

    /// Walks through the folder at `path`, which is empty for the root and ends with a slash otherwise.
    fn folder(&mut self, dir: BorrowedFd<'_>, path: &mut String, depth: usize) -> Result<(), ShimError> {
        let length = path.len();
        let entries = self.entries(dir, path)?;
        if entries.is_empty() && depth > 0 && !self.is_tracked(path) {
            self.report.left_count += 1;
            if self.empty.len() < MAX_LEFT {
                self.empty.push(left_entry(path, "an empty folder, which a run cannot have"));
            }
        }
        for (raw, file_type) in entries {
            if depth == 0 && raw.as_bytes() == b".git" {
                self.report.git_ns = git_changed_ns(dir);
            }
            if raw.as_bytes() == b".git" || (depth == 0 && raw.as_bytes() == OWN_FOLDER.as_bytes()) {
                continue;
            }
            let Ok(name) = raw.to_str() else {
                self.leave(&format!("{path}{}", raw.to_string_lossy()), "the name is not UTF-8");
                continue;
            };
            path.push_str(name);
            if file_type == FileType::Directory {
                path.push('/');
                self.enter(dir, &raw, path, depth)?;
            } else {
                self.node(dir, &raw, path)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    /// Returns the entries of a folder in the order of the index, in which a folder stands where its content does.
    fn entries(&mut self, dir: BorrowedFd<'_>, path: &str) -> Result<Vec<(CString, FileType)>, ShimError> {
        let mut entries: Vec<(CString, FileType)> = Vec::new();
        let max = self.max_walked;
        let limit = max.saturating_sub(self.walked);
        for_each_entry(dir, |name, file_type| {
            entries.push((name.to_owned(), file_type));
            if entries.len() as u64 > limit { Err(Errno::TOOBIG) } else { Ok(()) }
        })
        .map_err(|errno| match errno {
            Errno::TOOBIG => ShimError::Refused(format!("the folder has more than {max} entries: {LESS}")),
            errno => ShimError::io(if path.is_empty() { "the folder" } else { path }, errno),
        })?;
        self.walked += entries.len() as u64;
        // The byte that ends a name is that of a folder's content.
        let bytes = |(name, file_type): &(CString, FileType)| {
            let end = if *file_type == FileType::Directory { b'/' } else { 0 };
            (name.as_bytes().len(), end)
        };
        entries.sort_unstable_by(|one, other| {
            let ((one_length, one_end), (other_length, other_end)) = (bytes(one), bytes(other));
            let shared = one_length.min(other_length);
            let (one_name, other_name) = (one.0.as_bytes(), other.0.as_bytes());
            let next = |name: &[u8], end: u8| name.get(shared).copied().unwrap_or(end);
            one_name[..shared]
                .cmp(&other_name[..shared])
                .then_with(|| next(one_name, one_end).cmp(&next(other_name, other_end)))
        });
        Ok(entries)
    }

    /// Walks into the folder at `path`, which ends with a slash.
    fn enter(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &mut String, depth: usize) -> Result<(), ShimError> {
        self.skip_to(path)?;
        let is_tracked = self.is_tracked(path);
        let is_build_output =
            || self.build_output.iter().any(|output| output.as_bytes().eq_ignore_ascii_case(name.to_bytes()));
        if !is_tracked && is_build_output() {
            if self.report.not_walked.len() < MAX_LEFT {
                let path = path.trim_end_matches('/');
                self.report.not_walked.push(path.chars().take(MAX_SHOWN_CHARS).chain(['/']).collect());
            }
            return Ok(());
        }
        if depth + 1 >= MAX_DEPTH {
            self.unseen(path, "the folder is too deep");
            return Ok(());
        }
        match open_folder(dir, name) {
            Ok(folder) => self.folder(folder.as_fd(), path, depth + 1),
            // It went or was replaced since.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => {
                self.unseen(path, &format!("the folder cannot be read: {}", errno.kind()));
                Ok(())
            }
        }
    }

    /// Whether the index has something in the folder at `path`, to which the walk has come.
    fn is_tracked(&mut self, path: &str) -> bool {
        self.known.peek().is_some_and(|(known, _)| known.starts_with(path))
    }

    /// Leaves a folder that cannot be looked into: nothing is said of what the index has in it.
    fn unseen(&mut self, path: &str, why: &str) {
        self.leave(path.trim_end_matches('/'), why);
        while self.known.next_if(|(known, _)| known.starts_with(path)).is_some() {}
    }

    /// Names what the index has before `path`, which is gone.
    fn skip_to(&mut self, path: &str) -> Result<(), ShimError> {
        while let Some((gone, _)) = self.known.next_if(|(known, _)| known.as_str() < path) {
            self.change(gone, ChangeKind::Deleted, None)?;
        }
        Ok(())
    }

    fn node(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &str) -> Result<(), ShimError> {
        let Some(found) = stat(dir, name).map_err(ShimError::of(path))? else { return Ok(()) };
        self.skip_to(path)?;
        let Some((_, known)) = self.known.next_if(|(known, _)| known.as_str() == path) else {
            return self.new_node(dir, path, &found);
        };
        if NodeKind::of(&found).is_none_or(|kind| kind != known.version.kind || size_of(&found) != known.stamp.size) {
            // It need not be read to know that it differs, however large it is now, and if it is no file any more.
            return self.change(path, ChangeKind::Modified, Some(&found));
        }
        match look_at(dir, path, &found, Some(known)) {
            Ok(LookedAt::Unchanged(stamp)) => {
                let proven = stamp.proven_at(self.began_ns);
                if known.stamp != proven {
                    self.learned_bytes += look_bytes(&stamp);
                    known.stamp = proven;
                }
            }
            Ok(LookedAt::Node(..) | LookedAt::Folder | LookedAt::Special) => {
                self.change(path, ChangeKind::Modified, Some(&found))?;
            }
            // It went since.
            Ok(LookedAt::Absent) => self.change(path, ChangeKind::Deleted, None)?,
            Err(ShimError::Io { cause, .. }) => self.leave(path, &format!("it cannot be read: {}", cause.kind())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A path that the index does not know. It is not read now: whoever takes it reads it.
    fn new_node(&mut self, dir: BorrowedFd<'_>, path: &str, found: &Stat) -> Result<(), ShimError> {
        if let Err(why) = check_path(path).and_then(|()| check_new_name(path)) {
            self.leave(path, why);
            return Ok(());
        }
        match NodeKind::of(found) {
            None => self.leave(path, "it is a device, a FIFO or a socket"),
            Some(NodeKind::Link) if !leads_inside(dir, path) => {
                self.leave(path, "the link leads out of the folder");
            }
            Some(_) => self.change(path, ChangeKind::Added, Some(found))?,
        }
        Ok(())
    }

    fn change(&mut self, path: &str, change: ChangeKind, found: Option<&Stat>) -> Result<(), ShimError> {
        if self.report.changes.len() >= MAX_CHANGES {
            return Err(ShimError::Refused(format!("more than {MAX_CHANGES} files changed: {LESS}")));
        }
        let (size, changed_ns) = found.map_or((0, 0), |found| (size_of(found), NodeStamp::of(found).changed_ns));
        self.report.changes.push(PathChange { path: path.to_owned(), change, size, changed_ns });
        Ok(())
    }

    fn leave(&mut self, path: &str, why: &str) {
        self.report.left_count += 1;
        self.report.foreign_count += 1;
        if self.report.left.len() < MAX_LEFT {
            self.report.left.push(left_entry(path, why));
        }
    }
}

fn left_entry(path: &str, why: &str) -> LeftEntry {
    LeftEntry { path: path.chars().take(MAX_SHOWN_CHARS).collect(), why: why.to_owned() }
}

/// When git last moved its `HEAD` in the repository that a command made in the folder.
fn git_changed_ns(dir: BorrowedFd<'_>) -> i64 {
    let changed = |dir: &OwnedFd, name: &str| {
        let found = stat(dir, name).ok().flatten();
        found.map_or(0, |found| NodeStamp::of(&found).changed_ns)
    };
    let Ok(git) = open_folder(dir, ".git") else { return 0 };
    let logged = open_folder(&git, "logs").map_or(0, |logs| changed(&logs, "HEAD"));
    changed(&git, "HEAD").max(logged)
}

/// Whether the link at `path` leads to a place inside the folder, as its text says.
pub(crate) fn leads_inside(dir: BorrowedFd<'_>, path: &str) -> bool {
    let target = rustix::fs::readlinkat(dir, name_of(path), Vec::new());
    target.ok().and_then(|target| target.into_string().ok()).is_some_and(|target| stays_inside(path, &target))
}
