//! What `git add -A` would track of a tree that was imported without git.

use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;

use super::ImportError;
use super::quota::too_large;
use crate::base::manifest::{MODE_LINK, ManifestRow};
use crate::byte_path::split;
use crate::dir;
use crate::ignored::{ExcludedFiles, GITIGNORE_NAME, RuleSet, read_rules};

/// The `.gitignore` files of a tree, each with its folder (empty for the root).
type IgnoreFiles = Vec<(Vec<u8>, Vec<u8>)>;

/// The maximum size of all `.gitignore` files together: they are held in memory while the run is open.
const MAX_IGNORE_BYTES: u64 = 8 << 20;

/// Reads the `.gitignore` files among `rows`.
pub(super) fn ignore_files(root: BorrowedFd<'_>, rows: &[ManifestRow]) -> Result<IgnoreFiles, ImportError> {
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

/// Marks the rows that the rules in `ignores` exclude.
pub(super) fn mark_untracked(rows: &mut [ManifestRow], ignores: &[(Vec<u8>, Vec<u8>)]) {
    let rules = RuleSet::new(ignores);
    if rules.is_empty() {
        return;
    }
    let mut excluded = ExcludedFiles::by(&rules);
    for row in rows {
        row.is_ignored = excluded.contains(&row.path);
    }
}
