//! What git ignores and does not track.
//!
//! A file is ignored where the rules of the tree's present `.gitignore` files say so, or those of the base: nobody
//! un-hides a file by editing rules. What the base tracks is never ignored, nor what the run itself has written: nobody hides
//! a change by editing rules either. Only `.gitignore` files inside the tree count.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use lru::LruCache;
use model::LogicalPath;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::guard::{Blocking, GuardError, Root, Stamp};
use rules::verdict;
pub(crate) use rules::{RuleFile, read as read_rules};

/// The name of a file with rules.
pub const GITIGNORE_NAME: &str = ".gitignore";
/// So many compiled files with rules are kept a tree.
const MAX_COMPILED: usize = 64;

/// What a run started with, as far as reading asks.
pub(crate) trait Baseline: std::fmt::Debug + Send + Sync {
    /// Whether the answers below come from memory.
    fn is_loaded(&self) -> bool;

    /// Whether the base holds the file or symbolic link at `path`.
    fn tracks(&self, path: &str) -> io::Result<bool>;

    /// Whether the base holds anything beneath the folder at `path`.
    fn tracks_beneath(&self, path: &str) -> io::Result<bool>;

    /// Every `.gitignore` of the base: the folder it lies in (`.` for the root) and its bytes.
    fn gitignores(&self) -> io::Result<Vec<(String, Vec<u8>)>>;
}

/// Answers for one run's tree whether something is ignored.
#[derive(Debug)]
pub(crate) struct Ignored {
    baseline: Arc<dyn Baseline>,
    /// Every path that the run has written.
    written: RwLock<BTreeSet<String>>,
    base: OnceLock<HashMap<Vec<u8>, Arc<RuleFile>>>,
    compiled: Mutex<LruCache<Stamp, Arc<RuleFile>>>,
}

/// The rules in force in one folder. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    level: Option<Arc<Level>>,
    /// Whether rules exclude the folder itself, and so everything in it.
    excluded: bool,
}

/// One folder that has rules, and those above it.
#[derive(Debug)]
struct Level {
    /// Length of the folder's path with its `/`; 0 for the root.
    prefix: usize,
    now: Option<Arc<RuleFile>>,
    base: Option<Arc<RuleFile>>,
    /// Whether the base's rules are others than the present ones, here or above.
    differs: bool,
    above: Option<Arc<Level>>,
}

impl Ignored {
    /// Answers by `baseline` and the tree's own files.
    pub(crate) fn new(baseline: Arc<dyn Baseline>) -> Self {
        let (written, compiled) = (RwLock::default(), Mutex::new(LruCache::unbounded()));
        Self { baseline, written, base: OnceLock::new(), compiled }
    }

    /// Counts `paths`, which the run has written, as tracked from here on.
    pub(crate) fn add_written(&self, paths: &[LogicalPath]) {
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        for path in paths {
            if !written.contains(path.as_str()) {
                written.insert(path.as_str().to_owned());
            }
        }
    }

    /// Whether the run has written `path`.
    pub(crate) fn has_written(&self, path: &LogicalPath) -> bool {
        self.written().contains(path.as_str())
    }

    fn written(&self) -> RwLockReadGuard<'_, BTreeSet<String>> {
        self.written.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tracks(&self, path: &str) -> io::Result<bool> {
        Ok(self.written().contains(path) || self.baseline.tracks(path)?)
    }

    fn tracks_beneath(&self, folder: &str) -> io::Result<bool> {
        let prefix = format!("{folder}/");
        let has_written = self.written().range(prefix.clone()..).next().is_some_and(|path| path.starts_with(&prefix));
        Ok(has_written || self.baseline.tracks_beneath(folder)?)
    }

    /// Whether the file, or what would be one, at `path` is ignored.
    pub(crate) fn holds_file(&self, root: &Root, path: &LogicalPath, wait: Blocking) -> io::Result<bool> {
        if path.is_root() {
            return Ok(false);
        }
        // Most of what is read is tracked: then no folder on the way is asked for its rules.
        if self.written().contains(path.as_str()) || self.baseline.is_loaded() && self.baseline.tracks(path.as_str())? {
            return Ok(false);
        }
        let parent = path.parent().unwrap_or_else(LogicalPath::root);
        let scope = self.scope_of(root, &parent, wait)?;
        if wait == Blocking::Never && scope.excludes(path.as_str().as_bytes(), false) && !self.baseline.is_loaded() {
            return Err(Errno::AGAIN.into());
        }
        self.hides(&scope, path.as_str().as_bytes(), false)
    }

    /// The rules in force in `folder`.
    pub(crate) fn scope_of(&self, root: &Root, folder: &LogicalPath, wait: Blocking) -> io::Result<Scope> {
        let mut scope = self.enter_by_path(root, &Scope::default(), ".", wait)?;
        if folder.is_root() {
            return Ok(scope);
        }
        let text = folder.as_str();
        for end in text.match_indices('/').map(|(at, _)| at).chain([text.len()]) {
            if scope.excluded {
                break;
            }
            scope = self.enter_by_path(root, &scope, &text[..end], wait)?;
        }
        Ok(scope)
    }

    /// The rules in force in the folder at `path`, which is open as `dir` and lies in `above`.
    pub(crate) fn enter(&self, root: &Root, above: &Scope, path: &[u8], dir: BorrowedFd<'_>) -> io::Result<Scope> {
        if above.excludes_folder(path) {
            return Ok(Scope { excluded: true, ..above.clone() });
        }
        let now = match root.open_entry(dir, c".gitignore") {
            Ok(file) => self.compile(&rustix::fs::fstat(&file)?, || read_rules(file))?,
            Err(errno) => match GuardError::from(errno) {
                GuardError::Io(error) => return Err(error),
                _ => None,
            },
        };
        self.descend(above, path, now)
    }

    /// As [`enter`](Self::enter) for a folder whose entries are known to hold no `.gitignore`.
    pub(crate) fn enter_without_rules(&self, above: &Scope, path: &[u8]) -> io::Result<Scope> {
        if above.excludes_folder(path) {
            return Ok(Scope { excluded: true, ..above.clone() });
        }
        self.descend(above, path, None)
    }

    /// Whether what is at `path`, in the folder that `scope` is of, is ignored: rules exclude it and nothing of it is
    /// tracked or was written by the run.
    pub(crate) fn hides(&self, scope: &Scope, path: &[u8], is_folder: bool) -> io::Result<bool> {
        if !scope.excludes(path, is_folder) {
            return Ok(false);
        }
        // A name that is not UTF-8 cannot be asked for: it counts as not tracked, which is the stricter answer.
        let Ok(path) = std::str::from_utf8(path) else { return Ok(true) };
        if is_folder { Ok(!self.tracks_beneath(path)?) } else { Ok(!self.tracks(path)?) }
    }

    /// Whether the base tracks `path` or something that `path` lies beneath, such as a symbolic link to a folder.
    pub(crate) fn tracks_on_the_way(&self, path: &LogicalPath, wait: Blocking) -> io::Result<bool> {
        if wait == Blocking::Never && !self.baseline.is_loaded() {
            return Err(Errno::AGAIN.into());
        }
        let text = path.as_str();
        for end in text.match_indices('/').map(|(at, _)| at).chain([text.len()]) {
            if self.tracks(&text[..end])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn enter_by_path(&self, root: &Root, above: &Scope, folder: &str, wait: Blocking) -> io::Result<Scope> {
        if above.excludes_folder(folder.as_bytes()) {
            return Ok(Scope { excluded: true, ..above.clone() });
        }
        let place = if folder == "." { GITIGNORE_NAME.to_owned() } else { format!("{folder}/{GITIGNORE_NAME}") };
        let now = match root.probe(&place, wait)? {
            None => None,
            Some(stat) => self.compile(&stat, || match wait {
                Blocking::Never => Err(Errno::AGAIN.into()),
                Blocking::Allowed => match LogicalPath::parse(&place).map(|path| root.open_unlinked(&path)) {
                    Ok(Ok(opened)) => read_rules(opened.file),
                    // It was there a moment ago. What is gone has no rules.
                    Ok(Err(_)) | Err(_) => Ok(Vec::new()),
                },
            })?,
        };
        if wait == Blocking::Never && self.base.get().is_none() {
            return Err(Errno::AGAIN.into());
        }
        self.descend(above, folder.as_bytes(), now)
    }

    fn descend(&self, above: &Scope, folder: &[u8], now: Option<Arc<RuleFile>>) -> io::Result<Scope> {
        let base = self.base()?.get(folder).cloned();
        if now.is_none() && base.is_none() {
            return Ok(Scope { level: above.level.clone(), excluded: false });
        }
        let same = match (&now, &base) {
            (Some(now), Some(base)) => now.is_same_text(base),
            (None, None) => true,
            _ => false,
        };
        let differs = !same || above.level.as_ref().is_some_and(|level| level.differs);
        let prefix = if folder == b"." { 0 } else { folder.len() + 1 };
        let level = Level { prefix, now, base, differs, above: above.level.clone() };
        Ok(Scope { level: Some(Arc::new(level)), excluded: false })
    }

    fn base(&self) -> io::Result<&HashMap<Vec<u8>, Arc<RuleFile>>> {
        if let Some(base) = self.base.get() {
            return Ok(base);
        }
        let files = self.baseline.gitignores()?.into_iter();
        let base = files.map(|(folder, bytes)| (folder.into_bytes(), Arc::new(RuleFile::new(bytes)))).collect();
        Ok(self.base.get_or_init(|| base))
    }

    fn compile(&self, stat: &Stat, read: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Option<Arc<RuleFile>>> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size == 0 {
            return Ok(None);
        }
        let stamp = Stamp::of(stat);
        if let Some(known) = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&stamp) {
            return Ok(Some(Arc::clone(known)));
        }
        let file = Arc::new(RuleFile::new(read()?));
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.put(stamp, Arc::clone(&file));
        if compiled.len() > MAX_COMPILED {
            compiled.pop_lru();
        }
        Ok(Some(file))
    }
}

impl Scope {
    /// Whether rules exclude what is at `path`, tracked or not. The folder it lies in is the one this scope is of.
    pub(crate) fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let Some(level) = &self.level else { return self.excluded };
        self.excluded
            || verdict(level, path, is_folder, |level| level.now.as_deref())
            || (level.differs && verdict(level, path, is_folder, |level| level.base.as_deref()))
    }

    /// Whether the folder that this scope is of is itself excluded, or lies in one that is.
    pub(crate) fn excludes_folder_itself(&self) -> bool {
        self.excluded
    }

    fn excludes_folder(&self, path: &[u8]) -> bool {
        path != b"." && self.excludes(path, true)
    }
}
