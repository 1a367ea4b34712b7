//! Files by the pattern of their paths.

use std::cmp::{Ordering, Reverse};
use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, Rules};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::search::Globs;
use crate::stat::Hashing;
use crate::sweep::{Passes, Seen};
use crate::{EntryType, Fault, Tree};

/// So many candidates are kept beyond those that are told, before they are thinned out.
const SLACK: usize = 4096;

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
pub struct Findings {
    /// In the order that was asked for, then by path.
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

/// A file that may be told.
struct Candidate {
    path: LogicalPath,
    modified: (i64, i64),
    size: i64,
}

impl Tree {
    /// Finds files and symbolic links by globs; hidden ones too, but nothing that git ignores, that is generated or
    /// vendored, unless the folder asked for is so itself.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`,
    /// `NOT_A_DIRECTORY` for the path; `Cancelled` once `cancel` is set.
    pub fn find(&self, rules: &Rules, query: &FindQuery, cancel: &AtomicBool) -> Result<Findings, Fault> {
        let globs = Globs::compile(&query.globs, &[])?;
        let order = |a: &Candidate, b: &Candidate| query.sort.compare(a, b);
        let (mut kept, mut truncated) = (Vec::new(), false);
        let room = query.max_results;
        self.sweep(rules, &query.path, Passes { ignored: true, made: true }, cancel, |seen| {
            kept.extend(candidate(&globs, seen));
            if kept.len() > room.saturating_mul(2).saturating_add(SLACK) {
                kept.select_nth_unstable_by(room, order);
                kept.truncate(room);
                truncated = true;
            }
            Ok(())
        })?;
        kept.sort_unstable_by(order);
        truncated |= kept.len() > room;
        kept.truncate(room);
        let mut entries = Vec::with_capacity(kept.len());
        for candidate in kept {
            entries.extend(self.tell(rules, &candidate.path, cancel)?);
        }
        Ok(Findings { entries, truncated })
    }

    /// One entry; `None` where the file has gone away meanwhile.
    fn tell(&self, rules: &Rules, path: &LogicalPath, cancel: &AtomicBool) -> Result<Option<FoundFile>, Fault> {
        let stat = match self.stat_as(rules, path, Hashing::Spared, cancel) {
            Err(Fault::Refused(_)) => return Ok(None),
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

impl FindSort {
    fn compare(self, a: &Candidate, b: &Candidate) -> Ordering {
        let first = match self {
            Self::Path => Ordering::Equal,
            Self::Modified => Reverse(a.modified).cmp(&Reverse(b.modified)),
            Self::Size => Reverse(a.size).cmp(&Reverse(b.size)),
        };
        first.then_with(|| a.path.cmp(&b.path))
    }
}

fn candidate(globs: &Globs, seen: &Seen<'_>) -> Option<Candidate> {
    let at = seen.at?;
    let file_type = FileType::from_raw_mode(seen.stat.st_mode);
    let is_wanted =
        matches!(file_type, FileType::RegularFile | FileType::Symlink) && !globs.leave_out(&at.shown, false);
    let nanoseconds = i64::try_from(seen.stat.st_mtime_nsec).unwrap_or(0);
    is_wanted.then(|| Candidate {
        path: at.shown.clone(),
        modified: (seen.stat.st_mtime, nanoseconds),
        size: seen.stat.st_size,
    })
}
