//! What a run started from: kept outside `repo/`, where no tool reaches.

mod blobs;
mod kept;
mod late;
pub(crate) mod manifest;
mod parts;
mod read;
mod shelf;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use model::{FileKind, Sha256, SourceFolders};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

pub(crate) use blobs::{Blobs, OpenBlobs};
use kept::BlobCache;
use manifest::{FileIndex, Head, Manifest, Stamp};
pub(crate) use parts::Part;
use parts::Parts;
pub use read::BaseFile;
pub(crate) use shelf::Shelf;

use crate::git::{Git, GitHome};
use crate::ignored::Baseline;
use crate::import::{folder_rules, is_folder_ignored};

/// The file beside `repo/` that says what the tree was.
pub(crate) const MANIFEST_NAME: &str = "base.manifest";
/// The bare repository beside `repo/` that holds its bytes.
pub(crate) const GIT_NAME: &str = "base.git";

/// What a run started from. Small: what is large is loaded when it is asked for, and shared by those who ask at the same time.
pub struct Base {
    commit: String,
    git: Git,
    file: File,
    shelf: Arc<Shelf>,
    loaded: Mutex<Weak<Loaded>>,
    /// Folders with the names of build output that git tracks; found when one is first asked for.
    source_folders: OnceLock<HashSet<String>>,
}

/// The base in memory.
pub(crate) struct Loaded {
    pub(crate) manifest: Manifest,
    /// The `.gitignore` files of the base, each with the folder it lies in (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files whose bytes were found to be the base's under another stamp.
    same: Mutex<HashMap<FileIndex, Stamp>>,
    /// Changes that were diffed.
    parts: Mutex<Parts>,
    /// Files whose bytes in the base are in memory.
    kept: Mutex<BlobCache>,
}

impl fmt::Debug for Base {
    // Not where it is: no physical path in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("commit", &self.commit).finish_non_exhaustive()
    }
}

impl Base {
    /// Opens the base of the run whose folder is `dir`, at `path` on the machine.
    pub(crate) fn open(dir: BorrowedFd<'_>, path: &Path, home: &Arc<GitHome>, shelf: Arc<Shelf>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let manifest = rustix::fs::openat(dir, MANIFEST_NAME, flags, Mode::empty());
        let mut file = File::from(manifest.map_err(|errno| gone(errno, MANIFEST_NAME))?);
        let mut first = Vec::new();
        file.by_ref().take(256).read_to_end(&mut first)?;
        let commit = manifest::read_commit(&first)?;
        let git = Git::new(path.join(GIT_NAME), home);
        Ok(Self { commit, git, file, shelf, loaded: Mutex::default(), source_folders: OnceLock::new() })
    }

    /// The base commit.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// The base's files, from memory or from disk.
    pub(crate) fn load(&self) -> io::Result<Arc<Loaded>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = loaded.upgrade() {
            self.shelf.keep(&there);
            return Ok(there);
        }
        let written = Stamp::of(&rustix::fs::fstat(self.file.as_fd())?);
        let bytes = read_whole(&self.file, written.size)?;
        let (Head { ignores, .. }, mut manifest) = manifest::read(&bytes, written.modified_ns)?;
        manifest.add_late(&self.late()?);
        let fresh = Arc::new(Loaded {
            manifest,
            ignores,
            same: Mutex::default(),
            parts: Mutex::default(),
            kept: Mutex::default(),
        });
        *loaded = Arc::downgrade(&fresh);
        self.shelf.keep(&fresh);
        Ok(fresh)
    }

    /// Git on the base's repository.
    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    /// A reader of the base's bytes.
    pub(crate) fn blobs(&self) -> Blobs<'_> {
        Blobs::new(&self.git)
    }
}

/// Checks that the repository of a base is there, in the run's folder `dir`.
pub(crate) fn has_blobs(dir: BorrowedFd<'_>) -> io::Result<()> {
    let found = rustix::fs::statat(dir, GIT_NAME, AtFlags::SYMLINK_NOFOLLOW);
    found.map(drop).map_err(|errno| gone(errno, GIT_NAME))
}

/// The error of a part of a run's folder that cannot be opened; where it is gone, it says which.
pub(crate) fn gone(errno: Errno, name: &str) -> io::Error {
    match errno {
        Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, format!("`{name}` of the run's folder is gone")),
        errno => errno.into(),
    }
}

impl Base {
    /// The folders with the names of build output that hold tracked files, and that no rule of the base ignores.
    fn source_folders(&self) -> io::Result<&HashSet<String>> {
        if let Some(known) = self.source_folders.get() {
            return Ok(known);
        }
        let loaded = self.load()?;
        let rules = folder_rules(&loaded.ignores);
        let is_source = |path: &[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            std::str::from_utf8(name).is_ok_and(FileKind::is_build_output)
                && loaded.manifest.has_files_beneath(path)
                && !is_folder_ignored(&rules, path)
        };
        let found = loaded.manifest.folders().map(|(path, _)| path).filter(|path| is_source(path));
        let found = found.filter_map(|path| String::from_utf8(path.to_vec()).ok()).collect();
        Ok(self.source_folders.get_or_init(|| found))
    }
}

impl SourceFolders for Base {
    fn is_source(&self, path: &str) -> bool {
        match self.source_folders() {
            Ok(folders) => folders.contains(path),
            Err(error) => {
                // The stricter answer; who opens what lies there meets the same error.
                tracing::warn!(%error, "the base of a run cannot be read");
                false
            }
        }
    }
}

impl Baseline for Base {
    fn is_loaded(&self) -> bool {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
    }

    fn tracks(&self, path: &str) -> io::Result<bool> {
        let loaded = self.load()?;
        Ok(loaded.manifest.get(path.as_bytes()).is_some_and(|file| !loaded.manifest.is_late(file)))
    }

    fn tracks_beneath(&self, path: &str) -> io::Result<bool> {
        Ok(self.load()?.manifest.has_files_beneath(if path == "." { b"" } else { path.as_bytes() }))
    }

    fn gitignores(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let text = |folder: &[u8]| Some(String::from_utf8(folder.to_vec()).ok()?).filter(|text| !text.is_empty());
        let loaded = self.load()?;
        // No tool reaches a folder whose name is not UTF-8, so its rules rule nothing.
        let reachable = loaded.ignores.iter().filter(|(folder, _)| std::str::from_utf8(folder).is_ok());
        Ok(reachable.map(|(folder, rules)| (text(folder).unwrap_or_else(|| ".".to_owned()), rules.clone())).collect())
    }
}

impl Loaded {
    /// Whether `stamp` alone proves the file to have the base's bytes.
    pub(crate) fn is_same(&self, file: FileIndex, stamp: &Stamp) -> bool {
        self.manifest.is_unchanged(file, stamp)
            || self.same.lock().unwrap_or_else(PoisonError::into_inner).get(&file) == Some(stamp)
    }

    /// Remembers that the file had the base's bytes under `stamp`, if a later write cannot leave the stamp as it is.
    pub(crate) fn found_same(&self, file: FileIndex, stamp: Stamp) {
        if !stamp.is_settled() {
            return;
        }
        self.same.lock().unwrap_or_else(PoisonError::into_inner).insert(file, stamp);
    }

    /// The change of `file` to what has `stamp` now (`None` where it is gone), if it was diffed before.
    pub(crate) fn part(&self, file: FileIndex, stamp: Option<Stamp>) -> Option<Arc<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).get(file, stamp)
    }

    /// The change of `file` to these bytes and this mode, if it was diffed before.
    pub(crate) fn part_of_content(&self, file: FileIndex, new: &Sha256, mode: (bool, bool)) -> Option<Arc<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).get_by_content(file, new, mode)
    }

    /// Keeps a change for the next diff: by the stamp of what is there, if a later write cannot leave that as it is.
    pub(crate) fn keep_part(&self, file: FileIndex, stamp: Option<Stamp>, part: &Arc<Part>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_none_or(|stamp| stamp.is_settled()) {
            parts.keep(file, stamp, part);
        } else {
            parts.keep_by_content(file, part);
        }
    }

    /// Keeps the change of `file` to what will be there, for when it is.
    pub(crate) fn keep_planned_part(&self, file: FileIndex, part: &Arc<Part>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).keep_by_content(file, part);
    }

    /// The bytes of `file` in the base, where they are in memory.
    pub(crate) fn kept(&self, file: FileIndex) -> Option<Arc<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(file)
    }

    /// Keeps the bytes of `file` in the base.
    pub(crate) fn keep_bytes(&self, file: FileIndex, bytes: &[u8]) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(file, bytes);
    }

    fn weight(&self) -> usize {
        self.manifest.weight() + self.ignores.iter().map(|(folder, text)| folder.len() + text.len()).sum::<usize>()
    }
}

fn read_whole(file: &File, size: u64) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::InvalidData)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
