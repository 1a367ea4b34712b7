//! Files by the pattern of their paths.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, Rules};
use rustix::fs::{AtFlags, FileType};
use serde::{Deserialize, Serialize};

use crate::first::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::globs::Globs;
use crate::list::{is_made, passing};
use crate::stat::Hashing;
use crate::survey::{Candidate, Visitor, WalkRoot, survey};
use crate::{EntryType, Tree, WorkspaceError};

/// So many hits are kept beyond those that are told, before they are thinned out.
const SLACK: usize = 4096;
/// And so many bytes of them.
const SLACK_BYTES: usize = 2 * MAX_ENTRIES_BYTES;
/// What a file is told with beside its path, in bytes of JSON.
const BESIDE_PATH: usize = 144;

/// The order of what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindSort {
    /// By path.
    #[default]
    Path,
    /// The last written first.
    Modified,
    /// The largest first.
    Size,
}

/// What to find. Every number is within its bounds already.
#[derive(Clone, Debug)]
pub struct FindQuery {
    /// A file is found where one of them matches its path from the root of the tree.
    pub globs: Vec<String>,
    /// The folder to look in.
    pub path: LogicalPath,
    /// At most so many files.
    pub max_results: usize,
    /// The order.
    pub sort: FindSort,
}

/// What was found.
#[derive(Debug)]
pub struct FindReport {
    /// In the order that was asked for, then by path; as many as were asked for and fit an answer.
    pub entries: Vec<FoundFile>,
    /// Whether files are missing because there were too many.
    pub truncated: bool,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundFile {
    /// Its path from the root of the tree.
    pub path: LogicalPath,
    /// What it is: a file or a symbolic link.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Its kind, where it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Its size, where it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When it was last written.
    pub modified_at: String,
    /// Whether `read_file` would tell its content.
    pub readable: bool,
    /// Why not: the code that reading it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A file whose path matches.
struct Hit {
    /// Greater for what comes earlier.
    rank: (i64, u64),
    path: LogicalPath,
}

/// What matches, as far as it may be told.
#[derive(Default)]
struct Hits {
    list: Vec<Hit>,
    bytes: usize,
}

impl Tree {
    /// Finds files and symbolic links by globs; hidden ones too, but nothing that git ignores, that is generated or
    /// vendored, unless the folder asked for is so itself.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`,
    /// `NOT_A_DIRECTORY` for the path; `Cancelled` once `cancel` is set.
    pub fn find(&self, rules: &Rules, query: &FindQuery, cancel: &AtomicBool) -> Result<FindReport, WorkspaceError> {
        let globs = Globs::compile(&query.globs, &[])?;
        let root = WalkRoot::of(self, self.open_folder(rules, Access::Read, &query.path)?, &query.path)?;
        let (passes_ignored, passes_made) = (!root.is_ignored(), !root.is_made(rules));
        let finder = Finder { rules, query, globs: &globs, passes_ignored, passes_made };
        let mut hits = survey(self, &finder, root, Hits::default(), cancel)?;
        finder.thin_out(&mut hits);
        let fit = finder.fitting(&hits.list);
        let truncated = hits.list.len() > fit;
        hits.list.truncate(fit);
        let mut entries = Vec::with_capacity(fit);
        for hit in hits.list {
            entries.extend(self.tell(rules, &hit.path, cancel)?);
        }
        Ok(FindReport { entries, truncated })
    }

    /// One entry; `None` where the file has gone away meanwhile.
    fn tell(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        cancel: &AtomicBool,
    ) -> Result<Option<FoundFile>, WorkspaceError> {
        let stat = match self.stat_as(rules, path, Hashing::Spared, cancel) {
            Err(WorkspaceError::Refused(_)) => return Ok(None),
            stat => stat?,
        };
        let found = stat.and_then(|stat| stat.found);
        Ok(found.map(|found| FoundFile {
            path: path.clone(),
            entry_type: found.entry_type,
            kind: found.kind,
            size_bytes: found.size_bytes,
            modified_at: found.modified_at,
            readable: found.refused.is_none(),
            reason: found.refused.map(|code| code.as_str().to_owned()),
        }))
    }
}

/// A search for files as a survey.
struct Finder<'a> {
    rules: &'a Rules,
    query: &'a FindQuery,
    globs: &'a Globs,
    passes_ignored: bool,
    passes_made: bool,
}

impl Finder<'_> {
    /// Brings the hits in order, and drops those that will never be told.
    fn thin_out(&self, hits: &mut Hits) {
        // They have come in order of path, which the sort keeps among equals.
        hits.list.sort_by_key(|hit| Reverse(hit.rank));
        // One more than is told tells that some are missing.
        hits.list.truncate(self.fitting(&hits.list) + 1);
        hits.bytes = hits.list.iter().map(Hit::bytes).sum();
    }

    /// How many of `hits` are told.
    fn fitting(&self, hits: &[Hit]) -> usize {
        let mut bytes = 0;
        let fits = hits.iter().take(self.query.max_results).take_while(|hit| {
            bytes += hit.bytes();
            bytes <= MAX_ENTRIES_BYTES
        });
        fits.count()
    }
}

impl Hit {
    fn bytes(&self) -> usize {
        entry_bytes(self.path.as_str(), BESIDE_PATH)
    }
}

impl Visitor for Finder<'_> {
    type Worker<'a>
        = ()
    where
        Self: 'a;
    type Finding = Option<Hit>;
    type Outcome = Hits;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) {}

    fn takes(&self, file_type: FileType) -> bool {
        matches!(file_type, FileType::RegularFile | FileType::Symlink)
    }

    fn is_asked_for(&self, path: &LogicalPath, is_folder: bool) -> bool {
        !self.globs.leave_out(path, is_folder)
    }

    fn admits(&self, candidate: &Candidate) -> bool {
        let kind = match candidate.kind {
            FileKind::Directory => self.rules.kind_of_dir(candidate.at.real()),
            kind => kind,
        };
        !(self.passes_ignored && candidate.ignored || self.passes_made && is_made(kind))
    }

    fn look(
        &self,
        (): &mut (),
        dir: Option<BorrowedFd<'_>>,
        candidate: Candidate,
    ) -> Result<Option<Hit>, WorkspaceError> {
        let path = candidate.at.shown;
        let Some(dir) = dir else { return Ok(None) };
        if self.query.sort == FindSort::Path {
            return Ok(Some(Hit { rank: (0, 0), path }));
        }
        let stat = match rustix::fs::statat(dir, &candidate.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return passing(errno).map(|()| None),
        };
        let rank = match self.query.sort {
            FindSort::Modified => (stat.st_mtime, stat.st_mtime_nsec),
            FindSort::Size | FindSort::Path => (stat.st_size, 0),
        };
        Ok(Some(Hit { rank, path }))
    }

    fn take(&self, hits: &mut Hits, hit: Option<Hit>) -> bool {
        let Some(hit) = hit else { return false };
        hits.bytes += hit.bytes();
        hits.list.push(hit);
        if self.query.sort == FindSort::Path {
            return hits.list.len() > self.query.max_results || hits.bytes > MAX_ENTRIES_BYTES;
        }
        let most = self.query.max_results.saturating_mul(2).saturating_add(SLACK);
        if hits.list.len() > most || hits.bytes > MAX_ENTRIES_BYTES + SLACK_BYTES {
            self.thin_out(hits);
        }
        false
    }
}
