//! What a run started from, stored outside `repo/`, where no tool reaches.

mod blobs;
mod cache;
mod file_change;
mod ignored_files;
pub(crate) mod manifest;
mod read;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use model::{BaseFolders, FileKind, Sha256};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

pub(crate) use blobs::{Blobs, OpenBlobs, missing_from_base};
pub(crate) use cache::BaseLru;
use cache::{BlobCache, DiffCache};
pub use file_change::DiffFile;
pub(crate) use file_change::FileChange;
pub(crate) use ignored_files::LIST_NAME as IGNORED_NAME;
use manifest::{BaseManifest, FileIndex, Head};
pub use read::BaseFile;
pub(crate) use read::describe;

use crate::git::{Git, GitHome};
use crate::ignored::{Baseline, RuleSet, SimilarPaths};
use crate::stamp::FileStamp;

/// The file beside `repo/` that describes the tree at the start of the run.
pub(crate) const MANIFEST_NAME: &str = "base.manifest";
/// The bare repository beside `repo/` that stores its bytes.
pub(crate) const GIT_NAME: &str = "base.git";
/// The largest manifest that is read, which is more than any import writes.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// What a run started from. Small: its file list is loaded on demand and shared by concurrent callers.
pub struct Base {
    commit: String,
    /// The paths of the submodules, sorted.
    submodules: Vec<String>,
    git: Git,
    file: File,
    lru: Arc<BaseLru>,
    loaded: Mutex<Weak<LoadedBase>>,
    /// Tracked folders with the names of build output; determined on first use.
    source_folders: OnceLock<HashSet<String>>,
}

/// A base in memory.
pub(crate) struct LoadedBase {
    pub(crate) manifest: BaseManifest,
    /// The `.gitignore` files of the base, each with its folder (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
    /// Stamps under which files were found to be unchanged, other than those in the manifest.
    same: Mutex<HashMap<FileIndex, FileStamp>>,
    diffs: Mutex<DiffCache>,
    files: Mutex<BlobCache>,
}

impl fmt::Debug for Base {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("commit", &self.commit).finish_non_exhaustive()
    }
}

impl Base {
    /// Opens the base of the run whose folder is `dir`, at the physical `path`.
    pub(crate) fn open(dir: BorrowedFd<'_>, path: &Path, home: &Arc<GitHome>, lru: Arc<BaseLru>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let manifest = rustix::fs::openat(dir, MANIFEST_NAME, flags, Mode::empty());
        let file = File::from(manifest.map_err(|errno| missing_part(errno, MANIFEST_NAME))?);
        let (commit, submodules) = manifest::read_start(&mut BufReader::with_capacity(512, &file))?;
        // No tool can name a path that is not UTF-8.
        let submodules = submodules.into_iter().filter_map(|path| String::from_utf8(path).ok()).collect();
        let git = Git::new(path.join(GIT_NAME), home);
        Ok(Self { commit, submodules, git, file, lru, loaded: Mutex::default(), source_folders: OnceLock::new() })
    }

    /// Returns the base commit.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Returns the base's files, loaded from disk if they are not in memory.
    pub(crate) fn load(&self) -> io::Result<Arc<LoadedBase>> {
        let mut loaded = self.loaded.lock();
        if let Some(loaded) = loaded.upgrade() {
            self.lru.touch(&loaded);
            return Ok(loaded);
        }
        let written = FileStamp::of(&rustix::fs::fstat(self.file.as_fd())?);
        let bytes = read_whole(&self.file, written.size)?;
        let (Head { ignores, .. }, mut manifest) = manifest::read(&bytes, written.modified_ns)?;
        manifest.add_ignored(&self.ignored_files()?);
        let fresh = Arc::new(LoadedBase {
            manifest,
            ignores,
            same: Mutex::default(),
            diffs: Mutex::default(),
            files: Mutex::default(),
        });
        *loaded = Arc::downgrade(&fresh);
        self.lru.touch(&fresh);
        Ok(fresh)
    }

    /// Whether the file list is in memory, so that it is not read from the disk.
    pub fn is_in_memory(&self) -> bool {
        self.loaded.lock().strong_count() > 0
    }

    /// Returns git on the base's repository.
    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    /// Returns a reader of the base's bytes.
    pub(crate) fn blobs(&self) -> Blobs<'_> {
        Blobs::new(&self.git)
    }
}

/// Checks that the repository of a base exists in the run's folder `dir`.
pub(crate) fn has_blobs(dir: BorrowedFd<'_>) -> io::Result<()> {
    let found = rustix::fs::statat(dir, GIT_NAME, AtFlags::SYMLINK_NOFOLLOW);
    found.map(drop).map_err(|errno| missing_part(errno, GIT_NAME))
}

/// Converts the error of opening a part of a run's folder. If the part is missing, the error names it.
pub(crate) fn missing_part(errno: Errno, name: &str) -> io::Error {
    match errno {
        Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is missing from the run's folder")),
        errno => errno.into(),
    }
}

impl Base {
    /// Returns the folders with names of build output that contain tracked files and that no rule of the base ignores.
    fn source_folders(&self) -> io::Result<&HashSet<String>> {
        if let Some(known) = self.source_folders.get() {
            return Ok(known);
        }
        let loaded = self.load()?;
        let rules = RuleSet::new(&loaded.ignores);
        let is_source = |path: &[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            std::str::from_utf8(name).is_ok_and(FileKind::is_build_output)
                && loaded.manifest.has_files_under(path)
                && !rules.exclude_folder(path)
        };
        let found = loaded.manifest.folders().map(|(path, _)| path).filter(|path| is_source(path));
        let found = found.filter_map(|path| String::from_utf8(path.to_vec()).ok()).collect();
        Ok(self.source_folders.get_or_init(|| found))
    }
}

impl BaseFolders for Base {
    fn is_source(&self, path: &str) -> bool {
        match self.source_folders() {
            Ok(folders) => folders.contains(path),
            Err(error) => {
                // The stricter answer. Opening a file there fails with the same error.
                tracing::warn!(%error, "the base of a run cannot be read");
                false
            }
        }
    }

    fn is_in_submodule(&self, path: &str) -> bool {
        let is_submodule = |path: &str| self.submodules.binary_search_by(|one| one.as_str().cmp(path)).is_ok();
        !self.submodules.is_empty()
            && (is_submodule(path) || path.match_indices('/').any(|(end, _)| is_submodule(&path[..end])))
    }

    fn has_submodule_under(&self, path: &str) -> bool {
        self.submodules.iter().any(|one| one.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    }
}

impl Baseline for Base {
    fn is_loaded(&self) -> bool {
        self.is_in_memory()
    }

    fn tracks(&self, path: &str) -> io::Result<bool> {
        let loaded = self.load()?;
        Ok(loaded.manifest.get(path.as_bytes()).is_some_and(|file| !loaded.manifest.is_ignored(file)))
    }

    fn tracks_under(&self, path: &str) -> io::Result<bool> {
        Ok(self.load()?.manifest.has_files_under(if path == "." { b"" } else { path.as_bytes() }))
    }

    fn add_similar_paths(&self, similar: &mut SimilarPaths<'_>) -> io::Result<()> {
        let loaded = self.load()?;
        let manifest = &loaded.manifest;
        for (folder, files) in manifest.folders() {
            if let Ok(folder) = std::str::from_utf8(folder) {
                similar.add_folder(folder);
            }
            for file in files.map(FileIndex).filter(|file| !manifest.is_ignored(*file)) {
                similar.add_file(manifest.name(file), || manifest.logical_path(folder, file));
            }
        }
        Ok(())
    }

    fn gitignores(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let text = |folder: &[u8]| Some(String::from_utf8(folder.to_vec()).ok()?).filter(|text| !text.is_empty());
        let loaded = self.load()?;
        // No tool reaches a folder whose name is not UTF-8, so its rules have no effect.
        let reachable = loaded.ignores.iter().filter(|(folder, _)| std::str::from_utf8(folder).is_ok());
        Ok(reachable.map(|(folder, rules)| (text(folder).unwrap_or_else(|| ".".to_owned()), rules.clone())).collect())
    }
}

impl LoadedBase {
    /// Whether `stamp` alone proves that the file has the base's bytes.
    pub(crate) fn is_same(&self, file: FileIndex, stamp: &FileStamp) -> bool {
        self.manifest.is_unchanged(file, stamp) || self.same.lock().get(&file) == Some(stamp)
    }

    /// Remembers that the file had the base's bytes under `stamp`, if the stamp is settled.
    pub(crate) fn found_same(&self, file: FileIndex, stamp: FileStamp) {
        if stamp.is_settled() {
            self.same.lock().insert(file, stamp);
        }
    }

    /// Returns the cached change of `file` to the version with `stamp` (`None` for a deleted file).
    pub(crate) fn cached_change(&self, file: FileIndex, stamp: Option<FileStamp>) -> Option<Arc<FileChange>> {
        self.diffs.lock().get(file, stamp)
    }

    /// Returns the cached change of `file` to these bytes and this mode.
    pub(crate) fn cached_change_to(
        &self,
        file: FileIndex,
        new: &Sha256,
        mode: (bool, bool),
    ) -> Option<Arc<FileChange>> {
        self.diffs.lock().get_by_content(file, new, mode)
    }

    /// Caches a change for the next diff: by the stamp of the current version, if that is settled.
    pub(crate) fn cache_change(&self, file: FileIndex, stamp: Option<FileStamp>, change: &Arc<FileChange>) {
        if stamp.is_none_or(|stamp| stamp.is_settled()) {
            self.diffs.lock().insert(file, stamp, change);
        } else {
            self.diffs.lock().insert_by_content(file, change);
        }
    }

    /// Returns the bytes of `file` in the base, if they are cached.
    pub(crate) fn cached_bytes(&self, file: FileIndex) -> Option<Arc<Vec<u8>>> {
        self.files.lock().get(file)
    }

    /// Caches the bytes of `file` in the base.
    pub(crate) fn cache_bytes(&self, file: FileIndex, bytes: &[u8]) {
        self.files.lock().insert(file, bytes);
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
