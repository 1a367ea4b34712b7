//! Which files git ignores.
//!
//! A file is ignored if the rules of the tree's current `.gitignore` files or those of the base exclude it, so that editing
//! rules reveals no file. A file that the base tracks or the run has written is never ignored, so that editing rules hides no
//! change. Only `.gitignore` files inside the tree count.

mod pattern;
mod rule_set;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use model::{FileKind, LogicalPath, composed};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::guard::{Blocking, GuardError, Root, TreeFolder};
use crate::stamp::DeviceStamp;
pub(crate) use rule_set::{ExcludedFiles, RuleSet};
use rules::is_excluded;
pub(crate) use rules::{MAX_BYTES as MAX_RULES_BYTES, RuleFile, read as read_rules};

/// The name of a file with ignore rules.
pub const GITIGNORE_NAME: &str = ".gitignore";
/// How many files of the same name are looked at. More are no hint.
pub(crate) const MAX_SIMILAR: usize = 100;
/// How many compiled rule files are cached for one tree.
const MAX_COMPILED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The `.gitignore` files of a base by their folders (`.` for the root).
pub(crate) type BaseRules = HashMap<Vec<u8>, Arc<RuleFile>>;

/// What the run started with.
pub(crate) trait Baseline: std::fmt::Debug + Send + Sync {
    /// Whether the answers below come from memory.
    fn is_loaded(&self) -> bool;

    /// Whether the base tracks the file or symbolic link at `path`.
    fn tracks(&self, path: &str) -> io::Result<bool>;

    /// Whether the base tracks anything under the folder at `path`.
    fn tracks_under(&self, path: &str) -> io::Result<bool>;

    /// Adds the similar files and folders of the base.
    fn add_similar_paths(&self, similar: &mut SimilarPaths<'_>) -> io::Result<()>;

    /// Returns every `.gitignore` of the base.
    fn rules(&self) -> io::Result<Arc<BaseRules>>;
}

/// The paths that a caller may have meant by another one, as far as the base or the run has them. They need not exist any more.
pub(crate) struct SimilarPaths<'a> {
    path: &'a str,
    name: &'a str,
    /// Those that are equal to it but for letter case and Unicode form.
    pub(crate) same_path: BTreeSet<LogicalPath>,
    /// The files elsewhere whose name is so. If there are too many, one more than [`MAX_SIMILAR`].
    pub(crate) same_name: BTreeSet<LogicalPath>,
}

impl<'a> SimilarPaths<'a> {
    fn new(path: &'a LogicalPath) -> Self {
        let (same_path, same_name) = (BTreeSet::new(), BTreeSet::new());
        Self { path: path.as_str(), name: path.file_name(), same_path, same_name }
    }

    /// Adds a file if it is similar. `name` is the file's name, `full` returns its path.
    pub(crate) fn add_file(&mut self, name: &[u8], full: impl Fn() -> Option<LogicalPath>) {
        let is_similar = std::str::from_utf8(name).is_ok_and(|name| is_same_name(self.name, name));
        let Some(full) = is_similar.then(full).flatten() else { return };
        if is_same_name(self.path, full.as_str()) {
            self.same_path.insert(full);
        } else if self.same_name.len() <= MAX_SIMILAR {
            self.same_name.insert(full);
        }
    }

    /// Adds a folder if its path is the same but for letter case and Unicode form.
    pub(crate) fn add_folder(&mut self, folder: &str) {
        if is_same_name(self.path, folder) {
            self.same_path.extend(LogicalPath::parse(folder));
        }
    }
}

/// Whether two names are equal but for letter case and Unicode form.
pub(crate) fn is_same_name(one: &str, two: &str) -> bool {
    let lower = |name: &str| composed(name).to_lowercase();
    // What equals ASCII is ASCII, but for a few characters that no keyboard has.
    one.eq_ignore_ascii_case(two) || !one.is_ascii() && !two.is_ascii() && lower(one) == lower(two)
}

/// The ignore rules of one run's tree.
#[derive(Debug)]
pub(crate) struct Ignored {
    baseline: Arc<dyn Baseline>,
    /// Every path that the run has written.
    written: RwLock<BTreeSet<String>>,
    base: OnceLock<Arc<BaseRules>>,
    compiled: Mutex<LruCache<DeviceStamp, Arc<RuleFile>>>,
}

/// The rules in force in one folder. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleScope {
    level: Option<Arc<FolderRules>>,
    /// Whether rules exclude the folder itself, and so everything in it.
    excluded: bool,
}

/// The rules of one folder, and of those above it.
#[derive(Debug)]
struct FolderRules {
    /// Length of the folder's path with its `/`; 0 for the root.
    prefix: usize,
    now: Option<Arc<RuleFile>>,
    base: Option<Arc<RuleFile>>,
    /// Whether the base's rules differ from the current ones, here or above.
    differs: bool,
    above: Option<Arc<FolderRules>>,
}

impl Ignored {
    /// Creates the rules of a tree with this base.
    pub(crate) fn new(baseline: Arc<dyn Baseline>) -> Self {
        let (written, compiled) = (RwLock::default(), Mutex::new(LruCache::new(MAX_COMPILED)));
        Self { baseline, written, base: OnceLock::new(), compiled }
    }

    /// Adds paths that the run has written: from now on they count as tracked.
    pub(crate) fn add_written(&self, paths: &[LogicalPath]) {
        let mut written = self.written.write();
        for path in paths {
            if !written.contains(path.as_str()) {
                written.insert(path.as_str().to_owned());
            }
        }
    }

    /// Whether the run has written `path`.
    pub(crate) fn has_written(&self, path: &LogicalPath) -> bool {
        self.written.read().contains(path.as_str())
    }

    /// Returns the files and folders of the base and of the run that are similar to `path`.
    pub(crate) fn similar_paths<'a>(&self, path: &'a LogicalPath) -> io::Result<SimilarPaths<'a>> {
        let mut similar = SimilarPaths::new(path);
        self.baseline.add_similar_paths(&mut similar)?;
        for written in self.written.read().iter() {
            let name = written.rsplit('/').next().unwrap_or(written);
            similar.add_file(name.as_bytes(), || LogicalPath::parse(written).ok());
            for (end, _) in written.match_indices('/') {
                similar.add_folder(&written[..end]);
            }
        }
        Ok(similar)
    }

    fn tracks(&self, path: &str) -> io::Result<bool> {
        Ok(self.written.read().contains(path) || self.baseline.tracks(path)?)
    }

    fn tracks_under(&self, folder: &str) -> io::Result<bool> {
        let prefix = format!("{folder}/");
        let has_written =
            self.written.read().range(prefix.clone()..).next().is_some_and(|path| path.starts_with(&prefix));
        Ok(has_written || self.baseline.tracks_under(folder)?)
    }

    /// Whether the file at `path`, which need not exist, is ignored.
    pub(crate) fn is_file_ignored(&self, root: &Root, path: &LogicalPath, blocking: Blocking) -> io::Result<bool> {
        if path.is_root() {
            return Ok(false);
        }
        // Most files that are read are tracked: for those no rules are read.
        if self.has_written(path) || self.baseline.is_loaded() && self.baseline.tracks(path.as_str())? {
            return Ok(false);
        }
        let parent = path.parent().unwrap_or_else(LogicalPath::root);
        let scope = self.scope_of(root, &parent, blocking)?;
        if blocking == Blocking::Forbidden
            && scope.excludes(path.as_str().as_bytes(), false)
            && !self.baseline.is_loaded()
        {
            return Err(Errno::AGAIN.into());
        }
        self.hides(&scope, path.as_str().as_bytes(), false)
    }

    /// Returns the rules in force in `folder`.
    pub(crate) fn scope_of(&self, root: &Root, folder: &LogicalPath, blocking: Blocking) -> io::Result<RuleScope> {
        let mut scope = self.enter_by_path(root, &RuleScope::default(), ".", blocking)?;
        if folder.is_root() {
            return Ok(scope);
        }
        let text = folder.as_str();
        for end in text.match_indices('/').map(|(at, _)| at).chain([text.len()]) {
            if scope.excluded {
                break;
            }
            scope = self.enter_by_path(root, &scope, &text[..end], blocking)?;
        }
        Ok(scope)
    }

    /// Returns the rules in force in the folder at `path`, which is open as `dir`. `above` are those of its parent.
    pub(crate) fn enter(&self, root: &Root, above: &RuleScope, path: &[u8], dir: &TreeFolder) -> io::Result<RuleScope> {
        if above.excludes_folder(path) {
            return Ok(RuleScope { excluded: true, ..above.clone() });
        }
        let now = match root.open_entry(dir, c".gitignore") {
            Ok(opened) => self.compile(&opened.stat, || read_rules(opened.file.into_reader()?))?,
            Err(GuardError::Io(error)) => return Err(error),
            Err(_) => None,
        };
        self.descend(above, path, now)
    }

    /// As [`enter`](Self::enter), for a folder that is known to have no `.gitignore`.
    pub(crate) fn enter_without_gitignore(&self, above: &RuleScope, path: &[u8]) -> io::Result<RuleScope> {
        if above.excludes_folder(path) {
            return Ok(RuleScope { excluded: true, ..above.clone() });
        }
        self.descend(above, path, None)
    }

    /// Whether the entry at `path`, in the folder of `scope`, is ignored: rules exclude it, and nothing in it is tracked or was
    /// written by the run.
    pub(crate) fn hides(&self, scope: &RuleScope, path: &[u8], is_folder: bool) -> io::Result<bool> {
        if !scope.excludes(path, is_folder) {
            return Ok(false);
        }
        // A name that is not UTF-8 cannot be looked up: it counts as not tracked, which is the stricter answer.
        let Ok(path) = std::str::from_utf8(path) else { return Ok(true) };
        if is_folder { Ok(!self.tracks_under(path)?) } else { Ok(!self.tracks(path)?) }
    }

    /// Whether `path` or something above it is tracked, such as a symbolic link to a folder.
    pub(crate) fn tracks_above(&self, path: &LogicalPath, blocking: Blocking) -> io::Result<bool> {
        if blocking == Blocking::Forbidden && !self.baseline.is_loaded() {
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

    fn enter_by_path(&self, root: &Root, above: &RuleScope, folder: &str, blocking: Blocking) -> io::Result<RuleScope> {
        if above.excludes_folder(folder.as_bytes()) {
            return Ok(RuleScope { excluded: true, ..above.clone() });
        }
        let file = if folder == "." { GITIGNORE_NAME.to_owned() } else { format!("{folder}/{GITIGNORE_NAME}") };
        let now = match root.probe(&file, blocking)? {
            None => None,
            Some(stat) => self.compile(&stat, || match blocking {
                Blocking::Forbidden => Err(Errno::AGAIN.into()),
                Blocking::Allowed => match LogicalPath::parse(&file).map(|path| root.open_unlinked(&path)) {
                    Ok(Ok(opened)) => read_rules(opened.file.into_reader()?),
                    // It was removed since the probe, so it has no rules.
                    Ok(Err(_)) | Err(_) => Ok(Vec::new()),
                },
            })?,
        };
        if blocking == Blocking::Forbidden && self.base.get().is_none() {
            return Err(Errno::AGAIN.into());
        }
        self.descend(above, folder.as_bytes(), now)
    }

    fn descend(&self, above: &RuleScope, folder: &[u8], now: Option<Arc<RuleFile>>) -> io::Result<RuleScope> {
        let base = self.base()?.get(folder).cloned();
        if now.is_none() && base.is_none() {
            return Ok(RuleScope { level: above.level.clone(), excluded: false });
        }
        let same = match (&now, &base) {
            (Some(now), Some(base)) => now.is_same_text(base),
            (None, None) => true,
            _ => false,
        };
        let differs = !same || above.level.as_ref().is_some_and(|level| level.differs);
        let prefix = if folder == b"." { 0 } else { folder.len() + 1 };
        let level = FolderRules { prefix, now, base, differs, above: above.level.clone() };
        Ok(RuleScope { level: Some(Arc::new(level)), excluded: false })
    }

    fn base(&self) -> io::Result<&BaseRules> {
        if let Some(base) = self.base.get() {
            return Ok(base);
        }
        let base = self.baseline.rules()?;
        Ok(self.base.get_or_init(|| base))
    }

    fn compile(&self, stat: &Stat, read: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Option<Arc<RuleFile>>> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size == 0 {
            return Ok(None);
        }
        let stamp = DeviceStamp::of(stat);
        if let Some(known) = self.compiled.lock().get(&stamp) {
            return Ok(Some(Arc::clone(known)));
        }
        let file = Arc::new(RuleFile::new(read()?));
        self.compiled.lock().put(stamp, Arc::clone(&file));
        Ok(Some(file))
    }
}

impl RuleScope {
    /// Whether rules exclude the entry at `path`, tracked or not. It must be in the folder of this scope.
    pub(crate) fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let Some(level) = &self.level else { return self.excluded };
        self.excluded
            || is_excluded(level, path, is_folder, |level| level.now.as_deref())
            || (level.differs && is_excluded(level, path, is_folder, |level| level.base.as_deref()))
    }

    /// Whether the folder of this scope is itself excluded, or is in one that is.
    pub(crate) fn excludes_folder_itself(&self) -> bool {
        self.excluded
    }

    fn excludes_folder(&self, path: &[u8]) -> bool {
        path != b"." && self.excludes(path, true)
    }
}

/// Whether files of this kind are generated by tools, so that listings omit them by default.
pub(crate) fn is_machine_made(kind: FileKind) -> bool {
    matches!(kind, FileKind::Generated | FileKind::Vendored)
}
