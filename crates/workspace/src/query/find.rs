//! Finding files by path patterns.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, Rules};
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::error::check_cancelled;
use crate::guard::TreeFolder;
use crate::ignored::is_machine_made;
use crate::query::bounded_entries::{BoundedEntries, EntryKey};
use crate::query::entry::is_redacted;
use crate::query::globs::QueryGlobs;
use crate::query::list::MAX_COUNTED;
use crate::query::not_shown::{LeftOut, NotShown};
use crate::walk::{Admission, Candidate, Visitor, WalkRoot, walk};
use crate::{EntryType, Tree, WorkspaceError};

/// The JSON size of a found file besides its path.
const ENTRY_OVERHEAD: usize = 144;

/// The order of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindSort {
    /// By path.
    #[default]
    Path,
    /// By time of the last write, the newest first.
    Modified,
    /// By size, the largest first.
    Size,
}

/// A query. Every number is within its bounds already.
#[derive(Clone, Debug)]
pub struct FindQuery {
    /// A file is found if one of these globs matches its path from the root of the tree.
    pub globs: Vec<String>,
    /// The folder to search.
    pub path: LogicalPath,
    /// The maximum number of files.
    pub max_results: usize,
    /// The order.
    pub sort: FindSort,
    /// Find only files after this one in the order.
    pub after: Option<FindPosition>,
    /// Whether to count all matching files if some are missing.
    pub counts_all: bool,
}

/// The position of a file in the order of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindPosition {
    /// Greater for what comes first.
    pub rank: (i64, u64),
    /// The path, which orders equals.
    pub path: LogicalPath,
}

/// The files that were found.
#[derive(Debug)]
pub struct FindReport {
    /// In the requested order, then by path, as far as they fit the maximum and an answer.
    pub entries: Vec<FoundFile>,
    /// The position of each entry.
    pub positions: Vec<FindPosition>,
    /// Whether files are missing at the end.
    pub truncated: bool,
    /// The number of all matching files, those before [`FindQuery::after`] included. `None` if it was not requested, if
    /// nothing is missing, or if there are more than 100,000.
    pub total: Option<u64>,
    /// The entries that the search has left out, as far as it went.
    pub not_shown: NotShown,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundFile {
    /// Its path from the root of the tree.
    pub path: LogicalPath,
    /// Whether it is a file or a symbolic link.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Its kind, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Its size, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The time of the last write.
    pub modified_at: String,
    /// Whether `read_file` would return its content.
    pub readable: bool,
    /// If not, the code that reading it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The hits so far.
struct Hits {
    first: BoundedEntries<(), FindPosition>,
    /// The number of all hits.
    total: u64,
    not_shown: NotShown,
}

/// What the walk has found at an entry.
enum FindStep {
    Hit(FindPosition),
    LeftOut(LeftOut),
}

impl Tree {
    /// Finds files and symbolic links by globs, including hidden ones. Ignored, generated and vendored files are left out,
    /// unless the requested folder is so itself, or a glob names a folder that is.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`,
    /// `NOT_A_DIRECTORY` for the path; `Cancelled` once `cancel` is set.
    pub fn find(&self, rules: &Rules, query: &FindQuery, cancel: &AtomicBool) -> Result<FindReport, WorkspaceError> {
        let globs = QueryGlobs::compile(&query.path, &query.globs, &[])?;
        let root = WalkRoot::of(self, self.open_folder(rules, Access::Read, &query.path)?, &query.path)?;
        let (skips_ignored, skips_machine_made) = (!root.is_ignored(), !root.is_machine_made(rules));
        let named = self.named_folders(rules, query)?;
        let finder = Finder { tree: self, rules, query, globs: &globs, skips_ignored, skips_machine_made, named };
        let first = BoundedEntries::new(query.max_results, ENTRY_OVERHEAD);
        let hits = walk(self, &finder, root, Hits { first, total: 0, not_shown: NotShown::default() }, cancel)?;
        let (first, truncated) = hits.first.finish();
        let total = Some(hits.total)
            .filter(|total| query.counts_all && *total <= MAX_COUNTED && (truncated || query.after.is_some()));
        let (mut entries, mut positions) = (Vec::with_capacity(first.len()), Vec::with_capacity(first.len()));
        for hit in first.into_keys() {
            check_cancelled(cancel)?;
            if let Some(entry) = self.found_file(rules, &hit.path)? {
                entries.push(entry);
                positions.push(hit);
            }
        }
        Ok(FindReport { entries, positions, truncated, total, not_shown: hits.not_shown })
    }

    /// Returns the folders with which the globs begin, if git ignores them or their files are generated or vendored: whoever names
    /// such a folder wants its contents.
    fn named_folders(&self, rules: &Rules, query: &FindQuery) -> Result<Vec<LogicalPath>, WorkspaceError> {
        let mut named: Vec<LogicalPath> = query.globs.iter().filter_map(|glob| folder_of_glob(glob)).collect();
        named.sort_unstable();
        named.dedup();
        let mut left_out = Vec::new();
        for folder in named {
            if is_machine_made(rules.kind_of_dir(&folder)) || self.scope_of(&folder)?.excludes_folder_itself() {
                left_out.push(folder);
            }
        }
        Ok(left_out)
    }

    /// Describes one file; `None` if it was removed meanwhile.
    fn found_file(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<FoundFile>, WorkspaceError> {
        let (dir, entry, stat) = match self.entry_at(rules, path) {
            Ok(Some(found)) => found,
            Ok(None) | Err(WorkspaceError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (found, _) = self.describe(rules, &dir, &entry, &stat, true)?;
        Ok(Some(FoundFile {
            path: path.clone(),
            entry_type: found.entry_type,
            kind: found.kind,
            size_bytes: found.size_bytes,
            modified_at: found.modified_at.to_string(),
            readable: found.refused.is_none(),
            reason: found.refused.map(|code| code.as_str().to_owned()),
        }))
    }
}

/// The visitor of a walk for files.
struct Finder<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    query: &'a FindQuery,
    globs: &'a QueryGlobs,
    skips_ignored: bool,
    skips_machine_made: bool,
    /// Folders whose contents are not left out.
    named: Vec<LogicalPath>,
}

/// Returns the folder with which every path begins that the glob matches; `None` if that is the root.
fn folder_of_glob(glob: &str) -> Option<LogicalPath> {
    let names: Vec<&str> = glob.strip_suffix('/').unwrap_or(glob).split('/').collect();
    let literal = names.iter().take_while(|name| !name.contains(['*', '?', '[', '{', '\\'])).count();
    // The last name of a glob without wildcards may be that of a file.
    let folders = if literal == names.len() && !glob.ends_with('/') { literal - 1 } else { literal };
    let path = LogicalPath::parse(names[..folders].join("/").trim_start_matches('/')).ok()?;
    (!path.is_root()).then_some(path)
}

impl Finder<'_> {
    /// Returns why the entry is left out; `None` if it is not.
    fn left_out(&self, candidate: &Candidate) -> Option<LeftOut> {
        let machine_made = self.skips_machine_made.then(|| LeftOut::machine_made(self.rules, candidate));
        machine_made.flatten().or_else(|| (self.skips_ignored && candidate.ignored).then_some(LeftOut::Ignored))
    }

    /// Whether the entry is in a folder that a glob names, or on the way to it.
    fn is_named(&self, candidate: &Candidate) -> bool {
        let path = &candidate.at.shown;
        let is_folder = candidate.kind == FileKind::Directory;
        self.named.iter().any(|named| path.is_under(named) || is_folder && (named == path || named.is_under(path)))
    }
}

impl PartialOrd for FindPosition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FindPosition {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank).then_with(|| self.path.cmp(&other.path))
    }
}

impl EntryKey for FindPosition {
    fn path(&self) -> &LogicalPath {
        &self.path
    }
}

impl Visitor for Finder<'_> {
    type Worker<'a>
        = ()
    where
        Self: 'a;
    type Finding = Option<FindStep>;
    type Outcome = Hits;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) {}

    fn threads(&self) -> usize {
        1
    }

    fn wants_type(&self, file_type: FileType) -> bool {
        matches!(file_type, FileType::RegularFile | FileType::Symlink)
    }

    fn is_requested(&self, path: &LogicalPath, is_folder: bool) -> bool {
        !self.globs.is_excluded(path, is_folder)
    }

    fn admit(&self, candidate: &Candidate) -> Admission<Option<FindStep>> {
        match self.left_out(candidate) {
            Some(reason) if !self.is_named(candidate) => Admission::Report(Some(FindStep::LeftOut(reason))),
            Some(_) | None => Admission::Visit,
        }
    }

    fn too_long(&self) -> Option<FindStep> {
        Some(FindStep::LeftOut(LeftOut::TooLong))
    }

    /// Returns the position of the file; `None` if it was removed meanwhile.
    fn visit(
        &self,
        (): &mut (),
        dir: Option<&TreeFolder>,
        candidate: Candidate,
    ) -> Result<Option<FindStep>, WorkspaceError> {
        let Some(dir) = dir else { return Ok(None) };
        let rank = match self.query.sort {
            FindSort::Path => Some((0, 0)),
            FindSort::Modified => {
                self.tree.stat_in(dir, &candidate.name)?.map(|stat| (stat.st_mtime, stat.st_mtime_nsec))
            }
            FindSort::Size => {
                let stat = self.tree.stat_in(dir, &candidate.name)?;
                // The size of a file of which only the keys are shown would be the length of its values.
                let size = |stat: &Stat| if is_redacted(self.rules, &candidate, stat) { 0 } else { stat.st_size };
                stat.map(|stat| (size(&stat), 0))
            }
        };
        Ok(rank.map(|rank| FindStep::Hit(FindPosition { rank, path: candidate.at.shown })))
    }

    fn collect(&self, hits: &mut Hits, finding: Option<FindStep>) -> bool {
        let hit = match finding {
            Some(FindStep::Hit(hit)) => hit,
            Some(FindStep::LeftOut(reason)) => {
                hits.not_shown.add(reason);
                return false;
            }
            None => return false,
        };
        hits.total += 1;
        if self.query.after.as_ref().is_none_or(|after| hit > *after) {
            hits.first.insert(hit, ());
        }
        // Whatever follows in path order is only counted.
        let is_full = self.query.sort == FindSort::Path && hits.first.is_truncated();
        is_full && (!self.query.counts_all || hits.total > MAX_COUNTED)
    }
}
