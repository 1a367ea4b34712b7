//! What a base has, file by file. It says nothing of this machine, so that it is the same on every node.

mod format;
#[cfg(test)]
mod tests;

use std::ops::Range;

use model::LogicalPath;

pub(crate) use format::{digest, read, read_start, sort, write};

use crate::byte_path::{join, logical_path, split};

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
    /// The blob that git makes of the bytes.
    pub(crate) oid: [u8; 20],
    /// The hash of the bytes.
    pub(crate) sha256: [u8; 32],
    /// The number of bytes.
    pub(crate) size: u64,
    /// Whether git ignores the file, so that the base commit lacks it.
    pub(crate) is_ignored: bool,
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
    /// The files with fewer permissions than git gives them, with these, sorted.
    pub(crate) narrowed: Vec<(Vec<u8>, u32)>,
}

/// A manifest in memory.
#[derive(Debug)]
pub(crate) struct BaseManifest {
    names: Vec<u8>,
    /// By the path of the folder above and by name, so that a folder comes after the one above it and those of one folder are together.
    folders: Vec<ManifestFolder>,
    files: Vec<ManifestFile>,
    hashes: Vec<([u8; 20], [u8; 32])>,
}

#[derive(Debug)]
struct ManifestFolder {
    path: Range<u32>,
    files: Range<u32>,
    /// The folders directly in it.
    folders: Range<u32>,
    /// The number of files in it and under it.
    total: u32,
    /// Whether git tracks any of them.
    is_tracked: bool,
}

#[derive(Debug)]
struct ManifestFile {
    name: Range<u32>,
    mode: u32,
    size: u64,
    is_ignored: bool,
}

/// The index of a file of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIndex(pub(crate) u32);

/// The index of a folder of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderIndex(pub(crate) u32);

impl BaseManifest {
    /// Whether git ignores the file.
    pub(crate) fn is_ignored(&self, file: FileIndex) -> bool {
        self.files[file.0 as usize].is_ignored
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the folder at `path` (empty for the root).
    pub(crate) fn folder(&self, path: &[u8]) -> Option<FolderIndex> {
        let at = self.folders.binary_search_by(|folder| split(self.bytes(&folder.path)).cmp(&split(path))).ok()?;
        u32::try_from(at).ok().map(FolderIndex)
    }

    /// Returns the files directly in `folder`, sorted by name.
    pub(crate) fn files_in(&self, folder: FolderIndex) -> Range<u32> {
        self.folders[folder.0 as usize].files.clone()
    }

    /// Returns the folders directly in `folder`, sorted by name, each with its name.
    pub(crate) fn folders_in(&self, folder: FolderIndex) -> impl Iterator<Item = (FolderIndex, &[u8])> {
        let folders = self.folders[folder.0 as usize].folders.clone();
        folders.map(|index| (FolderIndex(index), split(self.bytes(&self.folders[index as usize].path)).1))
    }

    /// Returns the folder `name` in `folder`.
    pub(crate) fn folder_in(&self, folder: FolderIndex, name: &[u8]) -> Option<FolderIndex> {
        let Range { start, end } = self.folders[folder.0 as usize].folders.clone();
        let folders = &self.folders[start as usize..end as usize];
        let at = folders.binary_search_by(|folder| split(self.bytes(&folder.path)).1.cmp(name)).ok()?;
        Some(FolderIndex(start + u32::try_from(at).ok()?))
    }

    /// Returns the number of files in and under the folder at `path`.
    pub(crate) fn files_under(&self, path: &[u8]) -> u64 {
        self.folder(path).map_or(0, |folder| self.folders[folder.0 as usize].total.into())
    }

    /// Whether git tracks any file in or under the folder at `path`.
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

    /// Returns every folder's path with the files directly in it, each after the one above it.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (&[u8], Range<u32>)> {
        self.folders.iter().map(|folder| (self.bytes(&folder.path), folder.files.clone()))
    }

    /// Returns the path of `file`, which is in `folder`.
    pub(crate) fn path(&self, folder: &[u8], file: FileIndex) -> Vec<u8> {
        join(folder, self.name(file))
    }

    /// As [`path`](Self::path). `None` if no logical path can be that path, so that no tool reaches the file.
    pub(crate) fn logical_path(&self, folder: &[u8], file: FileIndex) -> Option<LogicalPath> {
        logical_path(&self.path(folder, file))
    }

    /// Returns every file in and under the folder at `path` (empty for the root) that a tool can reach, in no particular order.
    pub(crate) fn logical_files(&self, path: &[u8]) -> Vec<(LogicalPath, FileIndex)> {
        let mut files = Vec::new();
        let mut folders: Vec<_> = self.folder(path).map(|folder| (path.to_vec(), folder)).into_iter().collect();
        while let Some((path, folder)) = folders.pop() {
            let reached = |file| Some((self.logical_path(&path, file)?, file));
            files.extend(self.files_in(folder).map(FileIndex).filter_map(reached));
            folders.extend(self.folders_in(folder).map(|(inner, name)| (join(&path, name), inner)));
        }
        files
    }

    pub(crate) fn name(&self, file: FileIndex) -> &[u8] {
        self.bytes(&self.files[file.0 as usize].name)
    }

    /// Returns the file's git mode.
    pub(crate) fn mode(&self, file: FileIndex) -> u32 {
        self.files[file.0 as usize].mode
    }

    /// Returns every file, in the order of their indices.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (FileIndex, ManifestRow)> {
        let files = self.folders().flat_map(|(folder, files)| files.map(move |file| (folder, FileIndex(file))));
        files.map(|(folder, index)| {
            let (oid, sha256) = self.hashes[index.0 as usize];
            let ManifestFile { mode, size, is_ignored, .. } = self.files[index.0 as usize];
            (index, ManifestRow { path: self.path(folder, index), mode, oid, sha256, size, is_ignored })
        })
    }

    /// Returns the sizes of all files, in the order of their indices.
    pub(crate) fn sizes(&self) -> impl ExactSizeIterator<Item = u64> {
        self.files.iter().map(|file| file.size)
    }

    pub(crate) fn size(&self, file: FileIndex) -> u64 {
        self.files[file.0 as usize].size
    }

    /// Returns the file's blob id.
    pub(crate) fn oid(&self, file: FileIndex) -> &[u8; 20] {
        &self.hashes[file.0 as usize].0
    }

    /// Returns the hash of the file's bytes.
    pub(crate) fn sha256(&self, file: FileIndex) -> &[u8; 32] {
        &self.hashes[file.0 as usize].1
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.names[range.start as usize..range.end as usize]
    }
}
