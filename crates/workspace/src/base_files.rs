//! The files of a base in memory: their list, and where their contents are.

mod codec;
pub(crate) mod manifest;
mod segments;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::Sha256;
use rustix::fs::{FileType, Stat};

use crate::byte_path::join;
use manifest::{BaseManifest, FileIndex, FolderIndex, Head, MODE_LINK};
use segments::Locations;
pub(crate) use segments::{LOCATIONS_NAME, NewContents, Segments, names as segment_names};

use crate::file_bytes::{Blocking, FileBytes};
use crate::hashing::copy_hashed;

/// The name of a file with ignore rules.
pub const GITIGNORE_NAME: &str = ".gitignore";
/// How many first bytes a file's kind is detected from.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;

/// The files of a base. Nobody changes them.
pub(crate) struct BaseFiles {
    pub(crate) manifest: BaseManifest,
    /// The `.gitignore` files of the base, each with its folder (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
    /// The files with fewer permissions than git gives them, with these.
    narrowed: HashMap<FileIndex, u32>,
    locations: Locations,
    /// Whether the bytes of each file were found to be those that the base must have.
    checked: Vec<AtomicBool>,
    /// The metadata of the file with the list, whose times are those of all files of the base.
    stat: Stat,
    /// Stands for the device of the files, which have none. Two values in memory differ.
    device: u64,
    /// The size of its lists as files, which is about what they take in memory.
    pub(crate) weight: usize,
}

/// An entry of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseEntry {
    /// A file or a symbolic link.
    File(FileIndex),
    Folder(FolderIndex),
}

impl BaseFiles {
    /// Parses the list of files in `bytes`, whose file has the metadata `stat`, and the list of the contents in `locations`.
    pub(crate) fn read(bytes: &[u8], stat: Stat, segments: &Segments, locations: &[u8]) -> io::Result<Self> {
        static DEVICES: AtomicU64 = AtomicU64::new(u64::MAX);
        let (Head { ignores, narrowed, .. }, manifest) = manifest::read(bytes)?;
        let weight = bytes.len() + locations.len();
        let locations = segments.read(locations, manifest.sizes())?;
        let narrowed = narrowed.into_iter().filter_map(|(path, mode)| Some((manifest.get(&path)?, mode))).collect();
        let checked = (0..manifest.len()).map(|_| AtomicBool::new(false)).collect();
        let device = DEVICES.fetch_sub(1, Ordering::Relaxed);
        Ok(Self { manifest, ignores, narrowed, locations, checked, stat, device, weight })
    }

    /// Returns what is at `path`; empty for the root.
    pub(crate) fn entry(&self, path: &[u8]) -> Option<BaseEntry> {
        let folder = || self.manifest.folder(path).map(BaseEntry::Folder);
        self.manifest.get(path).map(BaseEntry::File).or_else(folder)
    }

    pub(crate) fn file_type(&self, entry: BaseEntry) -> FileType {
        match entry {
            BaseEntry::Folder(_) => FileType::Directory,
            BaseEntry::File(file) if self.is_link(file) => FileType::Symlink,
            BaseEntry::File(_) => FileType::RegularFile,
        }
    }

    /// Whether `file` is a symbolic link, whose bytes are its target.
    pub(crate) fn is_link(&self, file: FileIndex) -> bool {
        self.manifest.mode(file) == MODE_LINK
    }

    /// Returns the metadata of an entry, as the kernel would of a file of its own.
    pub(crate) fn stat(&self, entry: BaseEntry) -> Stat {
        let (mode, size, inode) = match entry {
            BaseEntry::Folder(folder) => (FileType::Directory.as_raw_mode() | 0o755, 0, u64::from(folder.0) << 32),
            BaseEntry::File(file) => {
                let mode = match self.narrowed.get(&file) {
                    Some(mode) => FileType::RegularFile.as_raw_mode() | mode,
                    None if self.is_link(file) => FileType::Symlink.as_raw_mode() | 0o777,
                    None => self.manifest.mode(file),
                };
                (mode, self.manifest.size(file), u64::from(file.0))
            }
        };
        let mut stat = self.stat;
        (stat.st_mode, stat.st_nlink) = (mode, 1);
        (stat.st_size, stat.st_ino, stat.st_dev) = (i64::try_from(size).unwrap_or(i64::MAX), inode, self.device);
        stat
    }

    /// Returns the bytes of `file`, which are not [checked](Self::check).
    pub(crate) fn unchecked(&self, file: FileIndex) -> FileBytes<'_> {
        let (segment, start) = self.locations.of(file);
        FileBytes::new(segment, start, self.manifest.size(file))
    }

    /// Whether the bytes of `file` are known to be those that the base must have.
    pub(crate) fn is_checked(&self, file: FileIndex) -> bool {
        self.checked[file.0 as usize].load(Ordering::Relaxed)
    }

    /// Checks that the bytes of `file` are those that the base must have. Reads them only once.
    pub(crate) fn check(&self, file: FileIndex) -> io::Result<()> {
        if self.is_checked(file) {
            return Ok(());
        }
        let (found, _) = copy_hashed(&mut self.unchecked(file), &mut io::sink(), self.manifest.size(file))?;
        self.set_checked(file, &found)
    }

    /// Checks the bytes of every `.gitignore`.
    pub(crate) fn check_rules(&self) -> io::Result<()> {
        let files =
            self.ignores.iter().filter_map(|(folder, _)| self.manifest.get(&join(folder, GITIGNORE_NAME.as_bytes())));
        files.into_iter().try_for_each(|file| self.check(file))
    }

    /// As [`check`](Self::check), for all `bytes` of `file`.
    pub(crate) fn check_bytes(&self, file: FileIndex, bytes: &[u8]) -> io::Result<()> {
        if self.is_checked(file) { Ok(()) } else { self.set_checked(file, &Sha256::of(bytes)) }
    }

    fn set_checked(&self, file: FileIndex, found: &Sha256) -> io::Result<()> {
        if found.as_bytes() != self.manifest.sha256(file) {
            return Err(damaged("a file of a base was altered"));
        }
        self.checked[file.0 as usize].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the first bytes of `file`, from which the kind of a file is detected.
    pub(crate) fn head(&self, file: FileIndex) -> io::Result<Vec<u8>> {
        self.unchecked(file).chunk(0, HEAD_BYTES)
    }

    /// Returns all bytes of `file`, of a link its target.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the bytes are not those that the base must have ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn bytes(&self, file: FileIndex) -> io::Result<Vec<u8>> {
        let size = usize::try_from(self.manifest.size(file)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = Vec::new();
        self.unchecked(file).append_to(&mut bytes, size, 0, Blocking::Allowed)?;
        self.check_bytes(file, &bytes)?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for BaseFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BaseFiles").field("files", &self.manifest.len()).finish_non_exhaustive()
    }
}

/// The cause of an error: what a run started from is not on the disk as it must be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DamagedBase(&'static str);

/// Returns the error of a damaged base.
pub(crate) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, DamagedBase(what))
}
