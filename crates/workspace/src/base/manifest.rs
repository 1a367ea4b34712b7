//! What the tree was when the run began, file by file: so that a diff opens only what has changed.
//!
//! One file beside `repo/`, written once. In memory the hashes lie apart from what a walk compares, so that the walk
//! stays in the cache.

mod format;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use format::{read, read_commit, write};

/// A regular file, in git's words.
pub(crate) const MODE_FILE: u32 = 0o100_644;
/// A regular file that may be executed.
pub(crate) const MODE_EXECUTABLE: u32 = 0o100_755;
/// A symbolic link.
pub(crate) const MODE_LINK: u32 = 0o120_000;

/// By what a file is told from any other version of itself without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
}

impl Stamp {
    /// The stamp in what the kernel says of a file.
    pub(crate) fn of(stat: &rustix::fs::Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add_unsigned(nanos);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            modified_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Stamp {
    /// Whether the last change is more than a second ago, so that another one cannot leave the same times.
    #[expect(clippy::disallowed_methods, reason = "compared with times that the file system took from the same clock")]
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let last = u128::try_from(self.changed_ns.max(self.modified_ns)).unwrap_or(0);
        now.saturating_sub(last) > 1_000_000_000
    }
}

/// One file of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The path, as bytes of the disk.
    pub(crate) path: Vec<u8>,
    /// [`MODE_FILE`], [`MODE_EXECUTABLE`] or [`MODE_LINK`].
    pub(crate) mode: u32,
    /// The blob in the base's repository.
    pub(crate) oid: [u8; 20],
    /// Hash of the bytes.
    pub(crate) sha256: [u8; 32],
    /// As it was written.
    pub(crate) stamp: Stamp,
}

/// What is written before the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The base commit.
    pub(crate) commit: String,
    /// The `.gitignore` files of the base, each with the folder it lies in (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The base of a run, in memory.
#[derive(Debug)]
pub(crate) struct Manifest {
    names: Vec<u8>,
    by_path: HashMap<Box<[u8]>, FolderIndex>,
    /// In the order of the folders that they lie in, so that those of one folder are side by side.
    folders: Vec<Folder>,
    files: Vec<File>,
    hashes: Vec<([u8; 20], [u8; 32])>,
    /// Files that git ignores, which came in later.
    late: HashSet<FileIndex>,
    /// When it was written, by the clock of the file system.
    written_ns: i64,
}

#[derive(Debug)]
struct Folder {
    name: Range<u32>,
    files: Range<u32>,
    folders: Range<u32>,
    stamp: Stamp,
    /// Whether any file lies in or beneath it: the tree had folders without.
    is_tracked: bool,
    has_rules: bool,
}

#[derive(Debug)]
struct File {
    name: Range<u32>,
    mode: u32,
    stamp: Stamp,
}

/// A file of the base, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIndex(pub(crate) u32);

/// A folder that the tree had, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderIndex(u32);

impl Manifest {
    /// Adds files that git ignores, in folders that the tree had. They make no folder a tracked one.
    pub(crate) fn add_late(&mut self, rows: &[Row]) {
        for row in rows {
            let (folder, name) = format::split(&row.path);
            let Some(folder) = self.folder(folder) else { continue };
            let files = self.files_in(folder);
            let place = self.files[files.start as usize..files.end as usize]
                .binary_search_by(|file| self.bytes(&file.name).cmp(name));
            let (Err(place), Ok(start), Ok(len)) = (place, u32::try_from(self.names.len()), u32::try_from(name.len()))
            else {
                continue;
            };
            let at = files.start as usize + place;
            self.names.extend_from_slice(name);
            self.files.insert(at, File { name: start..start + len, mode: row.mode, stamp: row.stamp });
            self.hashes.insert(at, (row.oid, row.sha256));
            // Files stand in the order of their folders.
            self.folders[folder.0 as usize].files.end += 1;
            for behind in &mut self.folders[folder.0 as usize + 1..] {
                behind.files = behind.files.start + 1..behind.files.end + 1;
            }
            let at = files.start + u32::try_from(place).unwrap_or(u32::MAX);
            let moved = |file: FileIndex| if file.0 >= at { FileIndex(file.0 + 1) } else { file };
            self.late = self.late.drain().map(moved).chain([FileIndex(at)]).collect();
        }
    }

    /// Whether the file is one that git ignores: it is in the base since the run first changed it.
    pub(crate) fn is_late(&self, file: FileIndex) -> bool {
        self.late.contains(&file)
    }

    /// Whether there are such files.
    pub(crate) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The folder at `path` (empty for the root).
    pub(crate) fn folder(&self, path: &[u8]) -> Option<FolderIndex> {
        self.by_path.get(path).copied()
    }

    /// The files that lie in `folder` itself, in the order of their names.
    pub(crate) fn files_in(&self, folder: FolderIndex) -> Range<u32> {
        self.folders[folder.0 as usize].files.clone()
    }

    /// The names of the folders that lay in `folder`, tracked or not.
    pub(crate) fn folders_in(&self, folder: FolderIndex) -> impl Iterator<Item = &[u8]> {
        let range = &self.folders[folder.0 as usize].folders;
        self.folders[range.start as usize..range.end as usize].iter().map(|folder| self.bytes(&folder.name))
    }

    /// Whether a `.gitignore` lay in `folder`.
    pub(crate) fn has_rules(&self, folder: FolderIndex) -> bool {
        self.folders[folder.0 as usize].has_rules
    }

    /// Whether `stamp` alone proves that the folder has the entries that it had.
    pub(crate) fn has_same_entries(&self, folder: FolderIndex, stamp: &Stamp) -> bool {
        self.is_same(&self.folders[folder.0 as usize].stamp, stamp)
    }

    /// Whether any file lies in or beneath the folder at `path`.
    pub(crate) fn has_files_beneath(&self, path: &[u8]) -> bool {
        self.folder(path).is_some_and(|folder| self.folders[folder.0 as usize].is_tracked)
    }

    /// The file `name` among `files`.
    pub(crate) fn find(&self, files: Range<u32>, name: &[u8]) -> Option<FileIndex> {
        let slice = &self.files[files.start as usize..files.end as usize];
        let at = slice.binary_search_by(|file| self.bytes(&file.name).cmp(name)).ok()?;
        Some(FileIndex(files.start + u32::try_from(at).ok()?))
    }

    /// The file at `path`.
    pub(crate) fn get(&self, path: &[u8]) -> Option<FileIndex> {
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        self.find(self.files_in(self.folder(folder)?), name)
    }

    /// Every folder, with the files that lie in it.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (&[u8], Range<u32>)> {
        self.by_path.iter().map(|(path, folder)| (&**path, self.files_in(*folder)))
    }

    /// A file's name.
    pub(crate) fn name(&self, file: FileIndex) -> &[u8] {
        self.bytes(&self.files[file.0 as usize].name)
    }

    /// A file's mode, in git's words.
    pub(crate) fn mode(&self, file: FileIndex) -> u32 {
        self.files[file.0 as usize].mode
    }

    /// A file's size.
    pub(crate) fn size(&self, file: FileIndex) -> u64 {
        self.files[file.0 as usize].stamp.size
    }

    /// A file's blob.
    pub(crate) fn oid(&self, file: FileIndex) -> &[u8; 20] {
        &self.hashes[file.0 as usize].0
    }

    /// The hash of a file's bytes.
    pub(crate) fn sha256(&self, file: FileIndex) -> &[u8; 32] {
        &self.hashes[file.0 as usize].1
    }

    /// Whether `stamp` alone proves that the file is as it was imported.
    pub(crate) fn is_unchanged(&self, file: FileIndex, stamp: &Stamp) -> bool {
        self.is_same(&self.files[file.0 as usize].stamp, stamp)
    }

    fn is_same(&self, base: &Stamp, stamp: &Stamp) -> bool {
        // A change within the tick of the clock in which the manifest was written would leave the same times.
        base == stamp && base.changed_ns < self.written_ns && base.modified_ns < self.written_ns
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn weight(&self) -> usize {
        let paths: usize = self.by_path.keys().map(|path| path.len() + 48).sum();
        self.names.capacity()
            + self.files.len() * (size_of::<File>() + 52)
            + self.folders.len() * size_of::<Folder>()
            + paths
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.names[range.start as usize..range.end as usize]
    }
}
