//! What `git add -A` would track of a tree that was imported without git.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;

use super::ImportError;
use super::quota::too_large;
use crate::base::manifest::{MODE_LINK, Row, split};
use crate::dir;
use crate::ignored::{GITIGNORE_NAME, RuleFile, read_rules};

/// The `.gitignore` files of a tree, each with its folder (empty for the root).
type IgnoreFiles = Vec<(Vec<u8>, Vec<u8>)>;

/// The maximum size of all `.gitignore` files together: they are held in memory while the run is open.
const MAX_IGNORE_BYTES: u64 = 8 << 20;

/// Reads the `.gitignore` files among `rows`.
pub(super) fn ignore_files(root: BorrowedFd<'_>, rows: &[Row]) -> Result<IgnoreFiles, ImportError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for row in rows.iter().filter(|row| row.mode != MODE_LINK && split(&row.path).1 == GITIGNORE_NAME.as_bytes()) {
        let text = read_rules(dir::open_under(root, &row.path[..], OFlags::empty())?)?;
        bytes += text.len() as u64;
        if bytes > MAX_IGNORE_BYTES {
            return Err(too_large("bytes of `.gitignore` files", MAX_IGNORE_BYTES));
        }
        found.push((split(&row.path).0.to_owned(), text));
    }
    Ok(found)
}

/// Rule files by their folders.
pub(crate) type Rules<'a> = HashMap<&'a [u8], RuleFile>;

/// Which paths rules exclude, with a cache of folders.
pub(super) struct Excluded<'a> {
    rules: &'a Rules<'a>,
    folders: HashMap<Vec<u8>, bool>,
}

impl<'a> Excluded<'a> {
    pub(super) fn by(rules: &'a Rules<'a>) -> Self {
        Self { rules, folders: HashMap::new() }
    }

    /// Whether the file at `path` is excluded, itself or with its folder.
    pub(super) fn contains(&mut self, path: &[u8]) -> bool {
        let folder = split(path).0;
        let folder_ignored = self.folders.get(folder).copied().unwrap_or_else(|| {
            let is_ignored = is_folder_ignored(self.rules, folder);
            self.folders.insert(folder.to_owned(), is_ignored);
            is_ignored
        });
        folder_ignored || is_ignored(self.rules, path, false)
    }
}

/// Takes the rows that the rules in `ignores` exclude.
pub(super) fn take_untracked(rows: &mut Vec<Row>, ignores: &[(Vec<u8>, Vec<u8>)]) -> Vec<Row> {
    let rules = folder_rules(ignores);
    if rules.is_empty() {
        return Vec::new();
    }
    let mut excluded = Excluded::by(&rules);
    rows.extract_if(.., |row| excluded.contains(&row.path)).collect()
}

/// Parses the rules in `ignores`.
pub(crate) fn folder_rules(ignores: &[(Vec<u8>, Vec<u8>)]) -> Rules<'_> {
    ignores.iter().map(|(folder, text)| (&folder[..], RuleFile::new(text.clone()))).collect()
}

/// Whether `rules` exclude the folder at `path`, or one above it.
pub(crate) fn is_folder_ignored(rules: &Rules<'_>, path: &[u8]) -> bool {
    prefixes(path).any(|path| is_ignored(rules, path, true))
}

/// Returns `a`, `a/b` and `a/b/c` for `a/b/c`.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).map(|end| &path[..end])
}

/// Whether rules exclude `path` itself. The nearest rule file with a match decides.
fn is_ignored(rules: &Rules<'_>, path: &[u8], is_folder: bool) -> bool {
    let mut folder = path;
    while !folder.is_empty() {
        folder = split(folder).0;
        let inside = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
        if let Some(ignored) = rules.get(folder).and_then(|rules| rules.matches(inside, is_folder)) {
            return ignored;
        }
    }
    false
}
