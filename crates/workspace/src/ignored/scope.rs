//! The rules in force in a folder. They are asked in the same way for a tree on the disk and for a list of files.

use std::collections::HashMap;
use std::sync::Arc;

use super::RuleFile;
use crate::byte_path::{prefixes, split};

/// The rule files of a folder and of those above it.
#[derive(Debug)]
struct RuleChain {
    /// Length of the folder's path with its `/`; 0 for the root.
    prefix: usize,
    file: Arc<RuleFile>,
    above: Option<Arc<RuleChain>>,
}

/// The rules in force in one folder: those of the tree and those of its base, each of which exclude by themselves. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleScope {
    now: Option<Arc<RuleChain>>,
    /// The same chain as `now`, as long as the rules are the same.
    base: Option<Arc<RuleChain>>,
    /// Whether rules exclude the folder itself, and so everything in it.
    excluded: bool,
}

impl RuleScope {
    /// Whether rules exclude the entry at `path`, tracked or not. It must be in the folder of this scope.
    pub(crate) fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        self.excluded
            || is_excluded(self.now.as_deref(), path, is_folder)
            || !self.has_rules_of_base() && is_excluded(self.base.as_deref(), path, is_folder)
    }

    /// Whether the folder of this scope is itself excluded, or is in one that is.
    pub(crate) fn excludes_folder_itself(&self) -> bool {
        self.excluded
    }

    /// Returns the scope of the folder at `path` if the rules exclude it: no rules in it matter. `path` is empty for the root.
    pub(super) fn excluded(&self, path: &[u8]) -> Option<Self> {
        let is_excluded = !path.is_empty() && self.excludes(path, true);
        is_excluded.then(|| Self { excluded: true, ..self.clone() })
    }

    /// Returns the scope of the folder at `path`, which is not excluded, with its own rule files.
    pub(super) fn with(&self, path: &[u8], now: Option<&Arc<RuleFile>>, base: Option<&Arc<RuleFile>>) -> Self {
        let prefix = if path.is_empty() { 0 } else { path.len() + 1 };
        let chain = |file: Option<&Arc<RuleFile>>, above: &Option<Arc<RuleChain>>| match file {
            Some(file) => Some(Arc::new(RuleChain { prefix, file: Arc::clone(file), above: above.clone() })),
            None => above.clone(),
        };
        let sha256 = |file: Option<&Arc<RuleFile>>| file.map(|file| file.sha256);
        let is_same = self.has_rules_of_base() && sha256(now) == sha256(base);
        let now = chain(now, &self.now);
        let base = if is_same { now.clone() } else { chain(base, &self.base) };
        Self { now, base, excluded: false }
    }

    fn has_rules_of_base(&self) -> bool {
        self.now.as_ref().map(Arc::as_ptr) == self.base.as_ref().map(Arc::as_ptr)
    }
}

/// Whether the rules exclude `path` itself. The nearest rule file with a match decides.
fn is_excluded(nearest: Option<&RuleChain>, path: &[u8], is_folder: bool) -> bool {
    let mut rules = std::iter::successors(nearest, |rules| rules.above.as_deref());
    rules.find_map(|rules| rules.file.matches(path.get(rules.prefix..)?, is_folder)).unwrap_or(false)
}

/// The rule files of a tree that does not change, such as a base, by their folders (empty for the root).
#[derive(Debug)]
pub(crate) struct RuleSet(HashMap<Vec<u8>, Arc<RuleFile>>);

impl RuleSet {
    /// Takes the text of each `.gitignore` with its folder.
    pub(crate) fn new(files: &[(Vec<u8>, Vec<u8>)]) -> Self {
        Self(files.iter().map(|(folder, text)| (folder.clone(), Arc::new(RuleFile::new(text.clone())))).collect())
    }

    /// Returns the rule file of `folder`.
    pub(super) fn get(&self, folder: &[u8]) -> Option<&Arc<RuleFile>> {
        self.0.get(folder)
    }
}

/// Which files a set of rules excludes, with a cache of folders.
pub(crate) struct ExcludedFiles<'a> {
    rules: &'a RuleSet,
    folders: HashMap<Vec<u8>, RuleScope>,
}

impl<'a> ExcludedFiles<'a> {
    pub(crate) fn by(rules: &'a RuleSet) -> Self {
        Self { rules, folders: HashMap::new() }
    }

    /// Whether the file at `path` is excluded, itself or with its folder.
    pub(crate) fn contains(&mut self, path: &[u8]) -> bool {
        self.scope_of(split(path).0).excludes(path, false)
    }

    /// Whether the folder at `path`, or one above it, is excluded.
    pub(crate) fn contains_folder(&mut self, path: &[u8]) -> bool {
        self.scope_of(path).excluded
    }

    fn scope_of(&mut self, folder: &[u8]) -> RuleScope {
        if let Some(known) = self.folders.get(folder) {
            return known.clone();
        }
        let mut scope = RuleScope::default();
        for path in std::iter::once(&b""[..]).chain(prefixes(folder)) {
            let file = self.rules.get(path);
            let inner = || scope.excluded(path).unwrap_or_else(|| scope.with(path, file, file));
            scope = self.folders.entry(path.to_owned()).or_insert_with(inner).clone();
        }
        scope
    }
}
