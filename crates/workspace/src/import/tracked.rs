//! What `git add -A` would take of a tree that came without git.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::sink::split;
use crate::base::manifest::{MODE_LINK, Row};
use crate::ignored::{RULES_NAME, RuleFile, read_rules};

/// The `.gitignore` files among `rows`: each with the folder it lies in and its text.
pub(super) fn ignore_files(root: BorrowedFd<'_>, rows: &[Row]) -> std::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.mode != MODE_LINK && split(&row.path).1 == RULES_NAME.as_bytes()) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = rustix::fs::openat2(root, &row.path[..], flags, Mode::empty(), resolve)?;
        found.push((split(&row.path).0.to_owned(), read_rules(fd)?));
    }
    Ok(found)
}

/// The files with rules, by the folders that they lie in.
type Rules<'a> = HashMap<&'a [u8], RuleFile>;

/// The rows that no `.gitignore` of `ignores` rules out.
pub(super) fn tracked<'a>(rows: &'a [Row], ignores: &[(Vec<u8>, Vec<u8>)]) -> Vec<&'a Row> {
    let rules: Rules<'_> = ignores.iter().map(|(folder, text)| (&folder[..], RuleFile::new(text.clone()))).collect();
    if rules.is_empty() {
        return rows.iter().collect();
    }
    let mut folders = HashMap::new();
    rows.iter()
        .filter(|row| {
            let folder = split(&row.path).0;
            let folder_ignored =
                *folders.entry(folder).or_insert_with(|| prefixes(folder).any(|path| is_ignored(&rules, path, true)));
            !folder_ignored && !is_ignored(&rules, &row.path, false)
        })
        .collect()
}

/// `a`, `a/b`, `a/b/c` of `a/b/c`.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).map(|end| &path[..end])
}

/// What the nearest file with an opinion says of `path` itself.
fn is_ignored(rules: &Rules<'_>, path: &[u8], is_folder: bool) -> bool {
    let mut folder = path;
    while !folder.is_empty() {
        folder = split(folder).0;
        let inside = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
        if let Some(ignored) = rules.get(folder).and_then(|rules| rules.says(inside, is_folder)) {
            return ignored;
        }
    }
    false
}
