//! Which files git ignores.
//!
//! A file is ignored if the rules of the tree's current `.gitignore` files or those of the base exclude it, so that editing
//! rules reveals no file. A file that the base tracks or the run has written is never ignored, so that editing rules hides no
//! change. Only `.gitignore` files inside the tree count.

mod pattern;
mod rules;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use model::{FileKind, LogicalPath, composed};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use crate::base_files::GITIGNORE_NAME;
use crate::guard::{Blocking, GuardError, Opened, Root, TreeFolder};
use crate::stamp::DeviceStamp;
use rules::RuleFile;
pub(crate) use rules::{MAX_BYTES as MAX_RULES_BYTES, read as read_rules};
pub(crate) use scope::{ExcludedFiles, RuleScope, RuleSet};

/// How many files of the same name are looked at. More are no hint.
pub(crate) const MAX_SIMILAR: usize = 100;
/// How many compiled rule files are cached for one tree.
const MAX_COMPILED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

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
    fn rules(&self) -> io::Result<Arc<RuleSet>>;
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
        // Most names are told apart by their length.
        let is_similar = name.eq_ignore_ascii_case(self.name.as_bytes())
            || !self.name.is_ascii() && std::str::from_utf8(name).is_ok_and(|name| is_same_name(self.name, name));
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
    compiled: Mutex<LruCache<DeviceStamp, Arc<RuleFile>>>,
}

impl Ignored {
    /// Creates the rules of a tree with this base.
    pub(crate) fn new(baseline: Arc<dyn Baseline>) -> Self {
        let (written, compiled) = (RwLock::default(), Mutex::new(LruCache::new(MAX_COMPILED)));
        Self { baseline, written, compiled }
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
        let Some(parent) = path.parent() else { return Ok(false) };
        // Most files that are read are tracked: for those no rules are read.
        if self.has_written(path) {
            return Ok(false);
        }
        self.check_loaded(blocking)?;
        if self.baseline.tracks(path.as_str())? {
            return Ok(false);
        }
        let scope = self.scope_of(root, &parent, blocking)?;
        self.hides(&scope, path.as_str().as_bytes(), false)
    }

    /// Returns the rules in force in `folder`.
    pub(crate) fn scope_of(&self, root: &Root, folder: &LogicalPath, blocking: Blocking) -> io::Result<RuleScope> {
        let folders: Vec<_> = with_folders_above(folder).collect();
        folders.iter().rev().try_fold(RuleScope::default(), |above, folder| {
            self.descend(&above, folder.as_str().as_bytes(), blocking, || {
                let file = folder.child(GITIGNORE_NAME).map_err(GuardError::Rejected)?;
                root.open(&file, blocking)
            })
        })
    }

    /// Returns the rules in force in the folder at `path`, which is open as `dir`. `above` are those of its parent.
    pub(crate) fn enter(&self, root: &Root, above: &RuleScope, path: &[u8], dir: &TreeFolder) -> io::Result<RuleScope> {
        self.descend(above, path, Blocking::Allowed, || root.open_entry(dir, c".gitignore"))
    }

    /// As [`enter`](Self::enter), for a folder that is known to have no `.gitignore`.
    pub(crate) fn enter_without_gitignore(&self, above: &RuleScope, path: &[u8]) -> io::Result<RuleScope> {
        self.descend(above, path, Blocking::Allowed, || Err(GuardError::Missing))
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
        self.check_loaded(blocking)?;
        for path in with_folders_above(path) {
            if self.tracks(path.as_str())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fails if a call that must not block would have to load the base.
    fn check_loaded(&self, blocking: Blocking) -> io::Result<()> {
        if blocking == Blocking::Forbidden && !self.baseline.is_loaded() {
            return Err(Errno::AGAIN.into());
        }
        Ok(())
    }

    /// Returns the rules in force in the folder at `path`, whose `.gitignore` is opened by `open`.
    fn descend(
        &self,
        above: &RuleScope,
        path: &[u8],
        blocking: Blocking,
        open: impl FnOnce() -> Result<Opened, GuardError>,
    ) -> io::Result<RuleScope> {
        let path = if path == b"." { b"" } else { path };
        if let Some(scope) = above.excluded(path) {
            return Ok(scope);
        }
        let now = self.compiled(open(), blocking)?;
        Ok(above.with(path, now.as_ref(), self.baseline.rules()?.get(path)))
    }

    /// Returns the rules of an opened `.gitignore`. It has none if it is no file or was found behind a link.
    fn compiled(&self, opened: Result<Opened, GuardError>, blocking: Blocking) -> io::Result<Option<Arc<RuleFile>>> {
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return error.unless_disk().map(|()| None),
        };
        if opened.real.is_some() || !opened.file_type().is_file() || opened.size() == 0 {
            return Ok(None);
        }
        let stamp = DeviceStamp::of(&opened.stat);
        if let Some(known) = self.compiled.lock().get(&stamp) {
            return Ok(Some(Arc::clone(known)));
        }
        if blocking == Blocking::Forbidden {
            return Err(Errno::AGAIN.into());
        }
        let file = Arc::new(RuleFile::new(read_rules(opened.file.into_reader()?)?));
        self.compiled.lock().put(stamp, Arc::clone(&file));
        Ok(Some(file))
    }
}

/// Returns `path` and every folder above it, the root last.
fn with_folders_above(path: &LogicalPath) -> impl Iterator<Item = LogicalPath> {
    std::iter::successors(Some(path.clone()), LogicalPath::parent)
}

/// Whether files of this kind are generated by tools, so that listings omit them by default.
pub(crate) fn is_machine_made(kind: FileKind) -> bool {
    matches!(kind, FileKind::Generated | FileKind::Vendored)
}
