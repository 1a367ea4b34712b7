//! The state of the tree at the start of the run, file by file, so that a diff opens only files that have changed.
//!
//! One file beside `repo/`, written once. In memory the hashes are stored apart from what a walk compares, so that the walk
//! stays in the processor's cache.

mod format;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use model::LogicalPath;

pub(crate) use format::{digest, read, read_start, write};

use crate::byte_path::{logical_path, split};
use crate::stamp::FileStamp;

/// A regular file, as a git mode.
pub(crate) const MODE_FILE: u32 = 0o100_644;
/// An executable file.
pub(crate) const MODE_EXECUTABLE: u32 = 0o100_755;
/// A symbolic link.
pub(crate) const MODE_LINK: u32 = 0o120_000;

/// One file of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestRow {
    /// The path, as bytes.
    pub(crate) path: Vec<u8>,
    /// [`MODE_FILE`], [`MODE_EXECUTABLE`] or [`MODE_LINK`].
    pub(crate) mode: u32,
    /// The blob in the base's repository.
    pub(crate) oid: [u8; 20],
    /// The hash of the bytes.
    pub(crate) sha256: [u8; 32],
    /// The stamp of the file as it was imported.
    pub(crate) stamp: FileStamp,
}

/// The header of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The base commit.
    pub(crate) commit: String,
    /// The paths of the commit's submodules, sorted.
    pub(crate) submodules: Vec<Vec<u8>>,
    /// The `.gitignore` files of the base, each with its folder (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A manifest in memory.
#[derive(Debug)]
pub(crate) struct BaseManifest {
    names: Vec<u8>,
    by_path: HashMap<Box<[u8]>, FolderIndex>,
    /// Sorted by parent folder, so that the folders in one folder are adjacent.
    folders: Vec<ManifestFolder>,
    files: Vec<ManifestFile>,
    hashes: Vec<([u8; 20], [u8; 32])>,
    /// Files that git ignores, added after the import.
    ignored: HashSet<FileIndex>,
    /// When the manifest was written, by the clock of the file system.
    written_ns: i64,
}

#[derive(Debug)]
struct ManifestFolder {
    name: Range<u32>,
    files: Range<u32>,
    folders: Range<u32>,
    stamp: FileStamp,
    /// Whether any file is in it or under it: the tree also had folders without files.
    is_tracked: bool,
    has_gitignore: bool,
}

#[derive(Debug)]
struct ManifestFile {
    name: Range<u32>,
    mode: u32,
    stamp: FileStamp,
}

/// The index of a file of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIndex(pub(crate) u32);

/// The index of a folder of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderIndex(u32);

impl BaseManifest {
    /// Adds files that git ignores, in folders that the base has. They do not make a folder tracked.
    pub(crate) fn add_ignored(&mut self, rows: &[ManifestRow]) {
        for row in rows {
            let (folder, name) = split(&row.path);
            let Some(folder) = self.folder(folder) else { continue };
            let files = self.files_in(folder);
            let found = self.files[files.start as usize..files.end as usize]
                .binary_search_by(|file| self.bytes(&file.name).cmp(name));
            let (Err(offset), Ok(start), Ok(len)) = (found, u32::try_from(self.names.len()), u32::try_from(name.len()))
            else {
                continue;
            };
            let at = files.start as usize + offset;
            self.names.extend_from_slice(name);
            self.files.insert(at, ManifestFile { name: start..start + len, mode: row.mode, stamp: row.stamp });
            self.hashes.insert(at, (row.oid, row.sha256));
            // Files are sorted by folder, so those of all later folders move.
            self.folders[folder.0 as usize].files.end += 1;
            for later in &mut self.folders[folder.0 as usize + 1..] {
                later.files = later.files.start + 1..later.files.end + 1;
            }
            let at = files.start + u32::try_from(offset).unwrap_or(u32::MAX);
            let moved = |file: FileIndex| if file.0 >= at { FileIndex(file.0 + 1) } else { file };
            self.ignored = self.ignored.drain().map(moved).chain([FileIndex(at)]).collect();
        }
    }

    /// Whether git ignores the file: the base has it since the run first changed it.
    pub(crate) fn is_ignored(&self, file: FileIndex) -> bool {
        self.ignored.contains(&file)
    }

    /// Whether there are such files.
    pub(crate) fn has_ignored(&self) -> bool {
        !self.ignored.is_empty()
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the folder at `path` (empty for the root).
    pub(crate) fn folder(&self, path: &[u8]) -> Option<FolderIndex> {
        self.by_path.get(path).copied()
    }

    /// Returns the files directly in `folder`, sorted by name.
    pub(crate) fn files_in(&self, folder: FolderIndex) -> Range<u32> {
        self.folders[folder.0 as usize].files.clone()
    }

    /// Returns the names of the folders directly in `folder`, tracked or not.
    pub(crate) fn folders_in(&self, folder: FolderIndex) -> impl Iterator<Item = &[u8]> {
        let range = &self.folders[folder.0 as usize].folders;
        self.folders[range.start as usize..range.end as usize].iter().map(|folder| self.bytes(&folder.name))
    }

    pub(crate) fn has_gitignore(&self, folder: FolderIndex) -> bool {
        self.folders[folder.0 as usize].has_gitignore
    }

    /// Whether `stamp` alone proves that the folder has the same entries as in the base.
    pub(crate) fn has_same_entries(&self, folder: FolderIndex, stamp: &FileStamp) -> bool {
        self.is_same(&self.folders[folder.0 as usize].stamp, stamp)
    }

    /// Whether any file is in or under the folder at `path`.
    pub(crate) fn has_files_under(&self, path: &[u8]) -> bool {
        self.folder(path).is_some_and(|folder| self.folders[folder.0 as usize].is_tracked)
    }

    /// Returns the file `name` among `files`.
    pub(crate) fn find(&self, files: Range<u32>, name: &[u8]) -> Option<FileIndex> {
        let slice = &self.files[files.start as usize..files.end as usize];
        let at = slice.binary_search_by(|file| self.bytes(&file.name).cmp(name)).ok()?;
        Some(FileIndex(files.start + u32::try_from(at).ok()?))
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<FileIndex> {
        let (folder, name) = split(path);
        self.find(self.files_in(self.folder(folder)?), name)
    }

    /// Returns every folder's path with the files directly in it.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (&[u8], Range<u32>)> {
        self.by_path.iter().map(|(path, folder)| (&**path, self.files_in(*folder)))
    }

    /// Returns the path of `file`, which is in `folder`.
    pub(crate) fn path(&self, folder: &[u8], file: FileIndex) -> Vec<u8> {
        if folder.is_empty() { self.name(file).to_vec() } else { [folder, b"/", self.name(file)].concat() }
    }

    /// As [`path`](Self::path). `None` if no logical path can be that path, so that no tool reaches the file.
    pub(crate) fn logical_path(&self, folder: &[u8], file: FileIndex) -> Option<LogicalPath> {
        logical_path(&self.path(folder, file))
    }

    pub(crate) fn name(&self, file: FileIndex) -> &[u8] {
        self.bytes(&self.files[file.0 as usize].name)
    }

    /// Returns the file's git mode.
    pub(crate) fn mode(&self, file: FileIndex) -> u32 {
        self.files[file.0 as usize].mode
    }

    /// Returns the path of every folder, each after the one above it.
    pub(crate) fn sorted_folders(&self) -> Vec<&[u8]> {
        let mut folders: Vec<_> = self.by_path.keys().map(|path| &**path).collect();
        folders.sort_unstable();
        folders
    }

    /// Returns every file, by folders in the order of [`sorted_folders`](Self::sorted_folders).
    pub(crate) fn rows(&self) -> Vec<ManifestRow> {
        let folders = self.sorted_folders().into_iter().filter_map(|path| Some((path, self.folder(path)?)));
        folders.flat_map(|(path, folder)| self.rows_in(path, folder).map(|(_, row)| row)).collect()
    }

    /// Returns the files of `folder` as rows.
    pub(crate) fn rows_in(&self, path: &[u8], folder: FolderIndex) -> impl Iterator<Item = (FileIndex, ManifestRow)> {
        self.files_in(folder).map(FileIndex).map(move |index| {
            let (oid, sha256) = self.hashes[index.0 as usize];
            let ManifestFile { mode, stamp, .. } = self.files[index.0 as usize];
            (index, ManifestRow { path: self.path(path, index), mode, oid, sha256, stamp })
        })
    }

    pub(crate) fn size(&self, file: FileIndex) -> u64 {
        self.files[file.0 as usize].stamp.size
    }

    /// Returns the file's blob id.
    pub(crate) fn oid(&self, file: FileIndex) -> &[u8; 20] {
        &self.hashes[file.0 as usize].0
    }

    /// Returns the hash of the file's bytes.
    pub(crate) fn sha256(&self, file: FileIndex) -> &[u8; 32] {
        &self.hashes[file.0 as usize].1
    }

    /// Whether `stamp` alone proves that the file is as it was imported.
    pub(crate) fn is_unchanged(&self, file: FileIndex, stamp: &FileStamp) -> bool {
        self.is_same(&self.files[file.0 as usize].stamp, stamp)
    }

    fn is_same(&self, base: &FileStamp, stamp: &FileStamp) -> bool {
        // A change within the clock tick in which the manifest was written would leave the same times.
        base == stamp && base.changed_ns < self.written_ns && base.modified_ns < self.written_ns
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        let paths: usize = self.by_path.keys().map(|path| path.len() + 48).sum();
        self.names.capacity()
            + self.files.len() * (size_of::<ManifestFile>() + 52)
            + self.folders.len() * size_of::<ManifestFolder>()
            + paths
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.names[range.start as usize..range.end as usize]
    }
}
