//! What `git add -A` would take of a tree that came without git.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::sink::split;
use crate::base::manifest::{MODE_LINK, Row};

/// What is read of a `.gitignore`.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The `.gitignore` files among `rows`: each with the folder it lies in and its text.
pub(super) fn ignore_files(root: BorrowedFd<'_>, rows: &[Row]) -> std::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.mode != MODE_LINK && split(&row.path).1 == b".gitignore") {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = rustix::fs::openat2(root, &row.path[..], flags, Mode::empty(), resolve)?;
        let mut text = Vec::new();
        File::from(fd).take(MAX_IGNORE_BYTES).read_to_end(&mut text)?;
        found.push((split(&row.path).0.to_owned(), text));
    }
    Ok(found)
}

/// The rows that no `.gitignore` of `ignores` rules out.
pub(super) fn tracked<'a>(rows: &'a [Row], ignores: &[(Vec<u8>, Vec<u8>)]) -> Vec<&'a Row> {
    let rules: std::collections::HashMap<&[u8], Gitignore> =
        ignores.iter().map(|(folder, text)| (&folder[..], compile(text))).collect();
    if rules.is_empty() {
        return rows.iter().collect();
    }
    let mut folders = std::collections::HashMap::new();
    rows.iter()
        .filter(|row| {
            let folder = split(&row.path).0;
            let folder_ignored =
                *folders.entry(folder).or_insert_with(|| prefixes(folder).any(|path| is_ignored(&rules, path, true)));
            !folder_ignored && !is_ignored(&rules, &row.path, false)
        })
        .collect()
}

fn compile(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in String::from_utf8_lossy(text).lines() {
        // git passes over a line that it cannot read, too.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// `a`, `a/b`, `a/b/c` of `a/b/c`.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).map(|end| &path[..end])
}

/// What the nearest file with an opinion says of `path` itself.
fn is_ignored(rules: &std::collections::HashMap<&[u8], Gitignore>, path: &[u8], is_dir: bool) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let mut folder = path;
    while !folder.is_empty() {
        folder = split(folder).0;
        let Some(rule) = rules.get(folder) else { continue };
        let inside = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
        match rule.matched(Path::new(std::ffi::OsStr::from_bytes(inside)), is_dir) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
    }
    false
}
