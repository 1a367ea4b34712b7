//! The rules of a whole tree that does not change, such as a base.

use std::collections::HashMap;

use super::RuleFile;
use crate::byte_path::{prefixes, split};

/// Rule files by their folders (empty for the root).
pub(crate) struct RuleSet<'a>(HashMap<&'a [u8], RuleFile>);

impl<'a> RuleSet<'a> {
    /// Takes the text of each `.gitignore` with its folder.
    pub(crate) fn new(files: &'a [(Vec<u8>, Vec<u8>)]) -> Self {
        Self(files.iter().map(|(folder, text)| (&folder[..], RuleFile::new(text.clone()))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the rules exclude the folder at `path`, or one above it.
    pub(crate) fn exclude_folder(&self, path: &[u8]) -> bool {
        prefixes(path).any(|path| self.exclude(path, true))
    }

    /// Whether the rules exclude `path` itself. The nearest rule file with a match decides.
    fn exclude(&self, path: &[u8], is_folder: bool) -> bool {
        let mut folder = path;
        while !folder.is_empty() {
            folder = split(folder).0;
            let inside = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
            if let Some(ignored) = self.0.get(folder).and_then(|rules| rules.matches(inside, is_folder)) {
                return ignored;
            }
        }
        false
    }
}

/// Which files a set of rules excludes, with a cache of folders.
pub(crate) struct ExcludedFiles<'a> {
    rules: &'a RuleSet<'a>,
    folders: HashMap<Vec<u8>, bool>,
}

impl<'a> ExcludedFiles<'a> {
    pub(crate) fn by(rules: &'a RuleSet<'a>) -> Self {
        Self { rules, folders: HashMap::new() }
    }

    /// Whether the file at `path` is excluded, itself or with its folder.
    pub(crate) fn contains(&mut self, path: &[u8]) -> bool {
        let folder = split(path).0;
        let folder_ignored = self.folders.get(folder).copied().unwrap_or_else(|| {
            let is_ignored = self.rules.exclude_folder(folder);
            self.folders.insert(folder.to_owned(), is_ignored);
            is_ignored
        });
        folder_ignored || self.rules.exclude(path, false)
    }
}
