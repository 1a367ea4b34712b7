//! What `git add -A` would track of a tree that was imported without git.

use model::Sha256;

use super::quota::too_large;
use crate::WorkspaceError;
use crate::base_files::GITIGNORE_NAME;
use crate::base_files::manifest::{MODE_LINK, ManifestRow};
use crate::base_files::{NewContents, damaged};
use crate::byte_path::split;
use crate::ignored::{ExcludedFiles, MAX_RULES_BYTES, RuleSet, read_rules};

/// The `.gitignore` files of a tree, each with its folder (empty for the root).
pub(super) type IgnoreFiles = Vec<(Vec<u8>, Vec<u8>)>;

/// The maximum size of all `.gitignore` files together: they are held in memory while the run is open.
const MAX_IGNORE_BYTES: u64 = 8 << 20;

/// Reads the `.gitignore` files among `rows`, and sorts them by folder.
pub(super) fn ignore_files<'a>(
    contents: &NewContents,
    rows: impl IntoIterator<Item = &'a ManifestRow>,
) -> Result<IgnoreFiles, WorkspaceError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let is_ignore_file = |row: &&ManifestRow| row.mode != MODE_LINK && split(&row.path).1 == GITIGNORE_NAME.as_bytes();
    for row in rows.into_iter().filter(is_ignore_file) {
        let text = read_rules(contents.read(&row.sha256, row.size)?)?;
        // They may be those of an earlier base. A larger file counts as one without rules.
        if row.size <= MAX_RULES_BYTES as u64 && Sha256::of(&text).as_bytes() != &row.sha256 {
            return Err(damaged("the rules of an earlier base were altered").into());
        }
        bytes += text.len() as u64;
        if bytes > MAX_IGNORE_BYTES {
            return Err(too_large("bytes of `.gitignore` files", MAX_IGNORE_BYTES));
        }
        found.push((split(&row.path).0.to_owned(), text));
    }
    found.sort_unstable();
    Ok(found)
}

/// Marks the rows that the rules in `ignores` exclude.
pub(super) fn mark_untracked(rows: &mut [ManifestRow], ignores: &[(Vec<u8>, Vec<u8>)]) {
    let rules = RuleSet::new(ignores);
    let mut excluded = ExcludedFiles::by(&rules);
    for row in rows {
        row.is_ignored = excluded.contains(&row.path);
    }
}
