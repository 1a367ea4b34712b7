//! What runs start from: an immutable tree with its list of files, shared by all runs that start from it.

mod cache;
mod file_change;
mod read;

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use model::{BaseFolders, FileKind};
use parking_lot::Mutex;
use rustix::io::Errno;

pub(crate) use cache::{BaseLru, DiffCache};
pub use file_change::DiffFile;
pub(crate) use file_change::FileChange;
pub use read::BaseFile;

use crate::bare::FETCHED;
use crate::base_files::manifest::{self, FileIndex};
use crate::base_files::{BaseFiles, LOCATIONS_NAME, Segments};
use crate::dir::open_file;
use crate::file_bytes::FileBytes;
use crate::git::{Bounds, Git, GitError, GitHome};
use crate::guard::LowerLayer;
use crate::ignored::{Baseline, ExcludedFiles, RuleSet, SimilarPaths};

/// The file that lists what a base has.
pub(crate) const MANIFEST_NAME: &str = "manifest";
/// The bare repository with its commit.
pub(crate) const GIT_NAME: &str = "git";
/// The time limit for packing the objects of a base.
const REPACK_SECONDS: u64 = 900;
/// The largest manifest that is read, which is more than any import writes.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// What a run started from. Small: its file list is loaded on demand and shared by concurrent callers.
pub struct Base {
    /// The name of its folder.
    id: String,
    commit: String,
    /// The paths of the submodules, sorted.
    submodules: Vec<String>,
    git: Git,
    file: File,
    locations: File,
    segments: Arc<Segments>,
    lru: Arc<BaseLru>,
    repacking: Mutex<()>,
    loaded: Mutex<Weak<BaseFiles>>,
    /// Tracked folders with the names of build output; determined on first use.
    source_folders: OnceLock<HashSet<String>>,
    rules: OnceLock<Arc<RuleSet>>,
}

impl fmt::Debug for Base {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("commit", &self.commit).finish_non_exhaustive()
    }
}

impl Base {
    /// Opens the base `id`, whose folder is `dir`, at the physical `path`.
    pub(crate) fn open(
        id: String,
        dir: BorrowedFd<'_>,
        path: &Path,
        home: &Arc<GitHome>,
        (segments, lru): (Arc<Segments>, Arc<BaseLru>),
    ) -> io::Result<Self> {
        let file = open_file(dir, MANIFEST_NAME).map_err(|errno| missing_part(errno, MANIFEST_NAME))?;
        let locations = open_file(dir, LOCATIONS_NAME).map_err(|errno| missing_part(errno, LOCATIONS_NAME))?;
        let (commit, submodules) = manifest::read_start(&mut BufReader::with_capacity(512, &file))?;
        // No tool can name a path that is not UTF-8.
        let submodules = submodules.into_iter().filter_map(|path| String::from_utf8(path).ok()).collect();
        Ok(Self {
            id,
            commit,
            submodules,
            git: Git::new(path.join(GIT_NAME), home),
            file,
            locations,
            segments,
            lru,
            repacking: Mutex::default(),
            loaded: Mutex::default(),
            source_folders: OnceLock::new(),
            rules: OnceLock::new(),
        })
    }

    /// Returns the name of its folder.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the base commit.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Returns the base's files, loaded from disk if they are not in memory.
    pub(crate) fn load(&self) -> io::Result<Arc<BaseFiles>> {
        let mut loaded = self.loaded.lock();
        if let Some(loaded) = loaded.upgrade() {
            self.lru.touch(&loaded);
            return Ok(loaded);
        }
        let bytes = self.manifest_bytes()?;
        let locations = read_whole(&self.locations)?;
        let fresh = BaseFiles::read(&bytes, rustix::fs::fstat(&self.file)?, &self.segments, &locations)?;
        let fresh = Arc::new(fresh);
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

    /// Whether its commit is one of a repository, and in [`git`](Self::git).
    pub(crate) fn is_from_git(&self) -> bool {
        self.git.dir().join(FETCHED).exists()
    }

    /// Makes the repository one that has nothing but the base commit, as its copies must: it may have packs of an earlier base, whose
    /// commit its source may have withdrawn since.
    pub(crate) fn drop_other_objects(&self) -> io::Result<()> {
        let _alone = self.repacking.lock();
        let dir = self.git.dir();
        let packs = std::fs::read_dir(dir.join("objects/pack")).into_iter().flatten().flatten();
        if packs.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count() < 2 {
            return Ok(());
        }
        // On a disk that permits no writes, a copy has them too.
        if rustix::fs::access(dir, rustix::fs::Access::WRITE_OK) == Err(Errno::ROFS) {
            return Ok(());
        }
        let shallow = dir.join("shallow");
        if std::fs::read_to_string(&shallow).is_ok_and(|text| text.lines().any(|line| line == self.commit)) {
            std::fs::write(shallow, format!("{}\n", self.commit))?;
        }
        let repacked = self.git.output(&["repack", "-a", "-d", "-q"], 64 * 1024, &Bounds::seconds(REPACK_SECONDS));
        repacked.map(drop).map_err(|error| match error {
            GitError::Io(error) => error,
            error => io::Error::other(error),
        })
    }

    /// Returns the bytes of the file list.
    pub(crate) fn manifest_bytes(&self) -> io::Result<Vec<u8>> {
        read_whole(&self.file)
    }
}

/// Converts the error of opening a part of a base or of a run's folder. If the part is missing, the error names it.
pub(crate) fn missing_part(errno: Errno, name: &str) -> io::Error {
    match errno {
        Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is missing")),
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
        let rules = self.rules()?;
        let mut excluded = ExcludedFiles::by(&rules);
        let is_source = |path: &&[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            std::str::from_utf8(name).is_ok_and(FileKind::is_build_output)
                && loaded.manifest.has_files_under(path)
                && !excluded.contains_folder(path)
        };
        let found = loaded.manifest.folders().map(|(path, _)| path).filter(is_source);
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

impl LowerLayer for Base {
    fn files(&self) -> io::Result<Arc<BaseFiles>> {
        self.load()
    }

    fn files_in_memory(&self) -> Option<Arc<BaseFiles>> {
        let loaded = self.loaded.try_lock()?.upgrade()?;
        self.lru.touch(&loaded);
        Some(loaded)
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

    fn rules(&self) -> io::Result<Arc<RuleSet>> {
        if let Some(rules) = self.rules.get() {
            return Ok(Arc::clone(rules));
        }
        let loaded = self.load()?;
        Ok(Arc::clone(self.rules.get_or_init(|| Arc::new(RuleSet::new(&loaded.ignores)))))
    }
}

fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    if size > MAX_MANIFEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    FileBytes::new(file, 0, size).read_to_end(&mut bytes)?;
    Ok(bytes)
}
