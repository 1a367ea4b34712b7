//! The bases of all runs, in `bases/` of the data folder: each is made once, and shared by every run that starts from it.
//!
//! | in `bases/{id}/` | |
//! |---|---|
//! | `manifest` | the list of the files, with their hashes |
//! | `contents` | where the bytes of each file are |
//! | `info` | what the base is, in a few lines |
//! | `git/` | a bare repository, with the base commit if that is one of a repository |
//!
//! `bases/segments/` has the bytes of all bases. `bases/sources/{origin}/{commit}` says which base a commit of a repository was imported as. Two repositories may name the same
//! commit, and only one of them may be readable for a caller, so that the origin is a part of the name.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use model::Sha256;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::fs::{AtFlags, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bare::make_bare;
use crate::base::{Base, BaseLru, GIT_NAME};
use crate::base_files::manifest::ManifestRow;
use crate::base_files::{LOCATIONS_NAME, NewContents, Segments, segment_names};
use crate::dir::{create_file, entries, fresh_name, open_dir, open_file};
use crate::fsync_tree;
use crate::git::{Git, GitHome};
use crate::remove::remove_tree;
use crate::skipped::SkippedReport;

/// The format of a base. Those of another one have other names.
const FORMAT: u32 = 3;
/// The folder in the data folder.
const BASES: &str = "bases";
/// The folder that says which commits were imported as which bases.
const SOURCES: &str = "sources";
/// The folder with the bytes of all bases.
const SEGMENTS: &str = "segments";
/// The file with the description of a base.
const INFO: &str = "info";
/// The prefix of a folder's name while a base is made.
const STAGING: &str = ".new-";
/// The prefix of a folder's name while a base is removed.
const TRASH: &str = ".trash-";
/// The packs of a repository.
const PACKS: &str = "objects/pack";
/// The file of a repository that names the commits without their parents.
const SHALLOW: &str = "shallow";
/// The ref that names the commit of an earlier base while another one is made.
pub(crate) const EARLIER: &str = "refs/workspaced/earlier";
/// A repository with more files of packs is not shared.
const MAX_SHARED_FILES: usize = 64;
/// The maximum size of a description: a report of skipped entries.
const MAX_BYTES: u64 = 1 << 20;

/// What a run started from, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBase {
    /// The base commit.
    pub commit: String,
    /// The hash of its files: [`ImportedRun::manifest_sha256`](crate::ImportedRun::manifest_sha256).
    pub manifest_sha256: Sha256,
    /// The hash of the files that git ignores, if there were any:
    /// [`ImportedRun::untracked_sha256`](crate::ImportedRun::untracked_sha256).
    pub untracked_sha256: Option<Sha256>,
}

/// What a base is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BaseInfo {
    pub(crate) commit: String,
    /// The hash of the files that git tracks.
    pub(crate) manifest_sha256: Sha256,
    /// The hash of the files that git ignores, if there are any.
    pub(crate) untracked_sha256: Option<Sha256>,
    /// The number of files and links.
    pub(crate) files: u64,
    /// The size of the files.
    pub(crate) bytes: u64,
    /// The size that counts toward a quota at the import, with that of folders and links.
    pub(crate) quota_bytes: u64,
    /// The hash of the file with the list, which also has what a git commit has not, such as folders without files.
    pub(crate) list_sha256: Sha256,
}

/// The base as which a source was imported.
#[derive(Serialize, Deserialize)]
pub(crate) struct CommitBase {
    pub(crate) base: String,
    pub(crate) skipped: SkippedReport,
}

/// The bases on this machine.
pub(crate) struct BaseStore {
    /// `None` if there are none yet, in a data folder that is only read.
    dir: Option<OwnedFd>,
    segments: Option<Arc<Segments>>,
    path: PathBuf,
    home: Arc<GitHome>,
    lru: Arc<BaseLru>,
    open: Mutex<HashMap<String, Weak<Base>>>,
    /// Held for reading while a base is chosen and touched, and until a run refers to it.
    in_use: Arc<RwLock<()>>,
}

/// A base that is being made. Dropping it removes it, unless it was placed.
pub(crate) struct StagedBase {
    all: OwnedFd,
    name: String,
    pub(crate) dir: OwnedFd,
    pub(crate) git: Git,
    pub(crate) contents: NewContents,
    segments: Arc<Segments>,
    in_use: Arc<RwLock<()>>,
    is_placed: bool,
}

impl BaseInfo {
    pub(crate) fn recorded(&self) -> RecordedBase {
        let Self { commit, manifest_sha256, untracked_sha256, .. } = self;
        RecordedBase { commit: commit.clone(), manifest_sha256: *manifest_sha256, untracked_sha256: *untracked_sha256 }
    }

    fn id(&self) -> String {
        format!("{}{}", name_of(&self.recorded()), &self.list_sha256.to_string()[..16])
    }
}

/// Returns what the names of such bases begin with.
fn name_of(recorded: &RecordedBase) -> String {
    let RecordedBase { commit, manifest_sha256, untracked_sha256 } = recorded;
    let untracked = untracked_sha256.map(|hash| hash.to_string()).unwrap_or_default();
    Sha256::of(format!("{FORMAT}\n{commit}\n{manifest_sha256}\n{untracked}\n").as_bytes()).to_string()[..40].to_owned()
}

impl BaseStore {
    /// Creates the folder if it is missing.
    pub(crate) fn create(data_dir: &Path) -> io::Result<()> {
        let bases = data_dir.join(BASES);
        for folder in [bases.join(SOURCES), bases.join(SEGMENTS)] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(())
    }

    /// Opens the folder as it is.
    pub(crate) fn open_to_read(data_dir: &Path, home: &Arc<GitHome>) -> io::Result<Self> {
        let path = data_dir.join(BASES);
        let dir = match open_dir(rustix::fs::CWD, &path) {
            Err(Errno::NOENT) => None,
            dir => Some(dir?),
        };
        let segments = dir.as_ref().map(|dir| Segments::open(dir, SEGMENTS).map(Arc::new)).transpose()?;
        let (open, in_use) = (Mutex::default(), Arc::default());
        Ok(Self { dir, segments, path, home: Arc::clone(home), lru: Arc::default(), open, in_use })
    }

    pub(crate) fn set_home(&mut self, home: Arc<GitHome>) {
        self.home = home;
    }

    fn dir(&self) -> io::Result<&OwnedFd> {
        self.dir.as_ref().ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(crate) fn segments(&self) -> io::Result<&Arc<Segments>> {
        self.segments.as_ref().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// No base is removed until the guard is dropped.
    pub(crate) fn keep(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read()
    }

    /// Opens the base `id`. All that have it open share one value.
    pub(crate) fn get(&self, id: &str) -> io::Result<Arc<Base>> {
        let mut open = self.open.lock();
        if let Some(base) = open.get(id).and_then(Weak::upgrade) {
            return Ok(base);
        }
        if id.contains('/') || id.starts_with('.') {
            return Err(ErrorKind::InvalidData.into());
        }
        let dir = open_dir(self.dir()?, id).map_err(|errno| match errno {
            Errno::NOENT => io::Error::new(ErrorKind::NotFound, "the run's base is missing"),
            errno => errno.into(),
        })?;
        let shared = (Arc::clone(self.segments()?), Arc::clone(&self.lru));
        let base = Base::open(id.to_owned(), dir.as_fd(), &self.path.join(id), &self.home, shared)?;
        let base = Arc::new(base);
        open.retain(|_, base| base.strong_count() > 0);
        open.insert(id.to_owned(), Arc::downgrade(&base));
        Ok(base)
    }

    /// Opens the folder of the base `id`.
    pub(crate) fn folder(&self, id: &str) -> io::Result<OwnedFd> {
        Ok(open_dir(self.dir()?, id)?)
    }

    /// Returns what the base `id` is.
    pub(crate) fn info(&self, id: &str) -> io::Result<BaseInfo> {
        read_json(&self.folder(id)?, INFO)
    }

    /// Returns the base that a run is recorded to start from, if it is on this machine: the one called `preferred`, if it is that, since
    /// the record does not say whether the run had empty folders. It is not removed soon.
    pub(crate) fn find(&self, recorded: &RecordedBase, preferred: Option<&str>) -> io::Result<Option<Arc<Base>>> {
        let Some(dir) = &self.dir else { return Ok(None) };
        let _kept = self.keep();
        let name = name_of(recorded);
        let is_one = |found: &str| found.starts_with(&name) && open_dir(dir, found).is_ok();
        let found = match preferred.filter(|preferred| is_one(preferred)) {
            Some(preferred) => Some(preferred.to_owned()),
            None => names(dir)?.into_iter().find(|found| is_one(found)),
        };
        let Some(found) = found else { return Ok(None) };
        self.touch(&found)?;
        self.get(&found).map(Some)
    }

    /// Notes that `commit` of `origin` was imported as a base.
    pub(crate) fn note(&self, origin: &Sha256, commit: &str, known: &CommitBase) -> io::Result<()> {
        let _kept = self.keep();
        let sources = open_dir(self.dir()?, SOURCES)?;
        match rustix::fs::mkdirat(&sources, origin.to_string(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let folder = open_dir(&sources, origin.to_string())?;
        let name = fresh_name(STAGING);
        create_file(&folder, &*name)?.write_all(&serde_json::to_vec(known)?)?;
        Ok(rustix::fs::renameat(&folder, &*name, &folder, commit)?)
    }

    /// Begins to make a base, which has no files and an empty repository yet.
    pub(crate) fn stage(&self) -> io::Result<StagedBase> {
        let all = self.dir()?.try_clone()?;
        let name = fresh_name(STAGING);
        rustix::fs::mkdirat(&all, &*name, Mode::RWXU)?;
        let dir = open_dir(&all, &*name)?;
        let git = Git::new(self.path.join(&name).join(GIT_NAME), &self.home);
        let segments = Arc::clone(self.segments()?);
        let (contents, in_use) = (segments.begin(None), Arc::clone(&self.in_use));
        let staged = StagedBase { all, name, dir, git, contents, segments, in_use, is_placed: false };
        make_bare(staged.git.dir())?;
        Ok(staged)
    }

    /// Notes that a run is about to refer to the base `id`.
    pub(crate) fn touch(&self, id: &str) -> io::Result<()> {
        touch(self.dir()?, id)
    }

    /// Removes the folders of bases that an earlier process was making or removing, and returns how many. No other process may be
    /// making any.
    pub(crate) fn remove_unfinished(&self) -> io::Result<u64> {
        let dir = self.dir()?;
        let mut removed = self.segments()?.remove_unfinished()?;
        for (name, _) in entries(dir, usize::MAX)? {
            let name = name.as_bytes();
            if [STAGING, TRASH].iter().any(|prefix| name.starts_with(prefix.as_bytes())) {
                remove_tree(dir.as_fd(), name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes the bases that are not `used` and that no run has begun to use for `unused_for`. Returns how many.
    pub(crate) fn sweep(&self, used: &HashSet<String>, unused_for: Duration) -> io::Result<usize> {
        let dir = self.dir()?;
        let mut trash = Vec::new();
        let swept = {
            // What a run has begun to use since `used` was read was touched.
            let _nobody_begins = self.in_use.write();
            for name in names(dir)? {
                if used.contains(&name) || age_of(dir, &name)? <= unused_for {
                    continue;
                }
                let gone = fresh_name(TRASH);
                rustix::fs::renameat(dir, &*name, dir, &*gone)?;
                self.open.lock().remove(&name);
                trash.push(gone);
            }
            if !trash.is_empty() {
                self.forget_sources()?;
            }
            self.remove_unused_segments()
        };
        for name in &trash {
            remove_tree(dir.as_fd(), name.as_bytes())?;
        }
        swept.map(|()| trash.len())
    }

    /// Removes the segments to which no base refers.
    fn remove_unused_segments(&self) -> io::Result<()> {
        let dir = self.dir()?;
        let mut used = HashSet::new();
        for name in names(dir)? {
            match open_file(&self.folder(&name)?, LOCATIONS_NAME) {
                // A base of an earlier format.
                Err(Errno::NOENT) => {}
                locations => used.extend(segment_names(&mut locations?)?),
            }
        }
        self.segments()?.sweep(|name| used.contains(name)).map(drop)
    }

    /// Removes the notes of commits whose bases are gone.
    fn forget_sources(&self) -> io::Result<()> {
        let sources = open_dir(self.dir()?, SOURCES)?;
        for (origin, _) in entries(&sources, usize::MAX)? {
            let folder = open_dir(&sources, &*origin)?;
            for (commit, _) in entries(&folder, usize::MAX)? {
                let known = commit.to_str().ok().and_then(|name| read_json::<CommitBase>(&folder, name).ok());
                if known.is_none_or(|known| self.folder(&known.base).is_err()) {
                    crate::dir::remove_file(&folder, &*commit)?;
                }
            }
            match crate::dir::remove_dir(&sources, &*origin) {
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl BaseStore {
    /// Returns the base of the commit of `origin` that was imported last, if there is one. It is not removed soon.
    pub(crate) fn newest(&self, origin: &Sha256) -> Option<Arc<Base>> {
        let folder = open_dir(self.dir().ok()?, format!("{SOURCES}/{origin}")).ok()?;
        let commits = entries(&folder, usize::MAX).ok()?.into_iter().filter_map(|(name, _)| name.into_string().ok());
        let modified = |commit: &String| open_file(&folder, &**commit).ok()?.metadata().ok()?.modified().ok();
        let newest = commits.filter(|commit| !commit.starts_with('.')).max_by_key(modified)?;
        self.known(origin, &newest).and_then(|known| self.get(&known.base).ok())
    }

    /// Returns the base that `commit` of `origin` was imported as, if it is here. It is not removed soon.
    pub(crate) fn known(&self, origin: &Sha256, commit: &str) -> Option<CommitBase> {
        let folder = open_dir(self.dir().ok()?, format!("{SOURCES}/{origin}")).ok()?;
        let _kept = self.keep();
        let known: CommitBase = read_json(&folder, commit).ok()?;
        // It may have been removed, and is imported again then.
        self.touch(&known.base).ok()?;
        self.get(&known.base).ok().map(|_| known)
    }
}

/// Returns the names of all bases.
fn names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let is_base = |name: &str| !name.starts_with('.') && name != SOURCES && name != SEGMENTS;
    let folders = entries(dir, usize::MAX)?.into_iter().filter(|(_, file_type)| file_type.is_dir());
    Ok(folders.filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_base(name)).collect())
}

fn touch(all: &OwnedFd, id: &str) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(rustix::fs::utimensat(all, id, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Returns how long ago the base `name` was used.
fn age_of(dir: &OwnedFd, name: &str) -> io::Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "compared with a time of the file system")]
    let now = SystemTime::now();
    let modified = File::from(open_dir(dir, name)?).metadata()?.modified()?;
    Ok(now.duration_since(modified).unwrap_or_default())
}

fn read_json<T: serde::de::DeserializeOwned>(dir: &OwnedFd, name: &str) -> io::Result<T> {
    let mut bytes = Vec::new();
    open_file(dir, name)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

impl StagedBase {
    /// Shares what `earlier` has, so that only what differs is fetched and written. Nothing must have been written yet. A base that is
    /// damaged is not shared.
    pub(crate) fn share(&mut self, earlier: &Base) -> io::Result<()> {
        let shared = earlier.load().and_then(|files| {
            // An import reads the rules, and must not fail for those of an earlier one.
            files.check_rules()?;
            self.contents = self.segments.begin(Some(&*files));
            share_objects(earlier.git(), &self.git, earlier.commit())
        });
        if let Err(error) = shared {
            tracing::warn!(%error, "an earlier base is not shared");
            self.contents = self.segments.begin(None);
            missing_is_fine(std::fs::remove_dir_all(self.git.dir().join(PACKS)))?;
            for name in [SHALLOW, EARLIER] {
                missing_is_fine(std::fs::remove_file(self.git.dir().join(name)))?;
            }
        }
        Ok(())
    }

    /// Writes where the contents of its files are, which are `rows` in the order of its list.
    pub(crate) fn write_locations(&mut self, rows: &[ManifestRow]) -> io::Result<()> {
        create_file(&self.dir, LOCATIONS_NAME)?.write_all(&self.contents.locations(rows)?)
    }

    /// Makes it the base of its content. One that is there already stays. Returns its name.
    pub(crate) fn place(mut self, info: &BaseInfo) -> io::Result<String> {
        missing_is_fine(std::fs::remove_file(self.git.dir().join(EARLIER)))?;
        create_file(&self.dir, INFO)?.write_all(&serde_json::to_vec(info)?)?;
        self.contents.sync()?;
        fsync_tree::sync(&self.dir, 0)?;
        failpoint::hit("base.made");
        let id = info.id();
        {
            let _kept = self.in_use.read();
            // Another import may have made it meanwhile, or before.
            if open_dir(&self.all, &*id).is_ok() {
                touch(&self.all, &id)?;
                return Ok(id);
            }
            self.contents.keep()?;
            match rustix::fs::renameat_with(&self.all, &*self.name, &self.all, &*id, RenameFlags::NOREPLACE) {
                Ok(()) => self.is_placed = true,
                Err(Errno::EXIST | Errno::NOTEMPTY) => touch(&self.all, &id)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::fs::fsync(&self.all)?;
        Ok(id)
    }
}

/// Links the packs of the repository `from` into that of `to`, which has none, and names `commit` there, so that a fetch asks for what
/// differs from it. A repository with many packs is not shared.
fn share_objects(from: &Git, to: &Git, commit: &str) -> io::Result<()> {
    let (from_packs, to_packs) = (from.dir().join(PACKS), to.dir().join(PACKS));
    let packs: Vec<_> = std::fs::read_dir(from_packs)?.collect::<io::Result<_>>()?;
    if packs.len() > MAX_SHARED_FILES {
        return Ok(());
    }
    std::fs::create_dir_all(&to_packs)?;
    for pack in packs {
        std::fs::hard_link(pack.path(), to_packs.join(pack.file_name()))?;
    }
    // Says which commits are there without their parents.
    missing_is_fine(std::fs::copy(from.dir().join(SHALLOW), to.dir().join(SHALLOW)).map(drop))?;
    let name = to.dir().join(EARLIER);
    std::fs::create_dir_all(name.parent().unwrap_or(to.dir()))?;
    std::fs::write(name, format!("{commit}\n"))
}

fn missing_is_fine(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

impl Drop for StagedBase {
    fn drop(&mut self) {
        if self.is_placed {
            return;
        }
        if let Err(error) = remove_tree(self.all.as_fd(), self.name.as_bytes()) {
            // The next start removes it.
            tracing::warn!(%error, "the files of a base that was not made could not be removed");
        }
    }
}
