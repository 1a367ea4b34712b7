//! Statistics of a tree: files, folders, bytes and lines, by kind and by extension.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::guard::{Opened, TreeFolder};
use crate::opened_file::head_of;
use crate::query::not_shown::{LeftOut, NotShown};
use crate::query::stat::{RANGED_READ_FACTOR, each_chunk};
use crate::walk::{Admission, Candidate, Visitor, WalkRoot, walk};
use crate::{Tree, WorkspaceError};

/// A longer extension counts as part of the name.
const MAX_EXTENSION_BYTES: usize = 16;
/// How many extensions are listed. The rarest ones are counted together.
const MAX_EXTENSIONS: usize = 200;
/// The key for the rarest extensions. No extension contains a dot.
const OTHERS: &str = "...";

/// Counts of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// The number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The lines of those that are text, may be read and are not too large.
    pub lines: u64,
}

/// The statistics of a folder, including everything under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeStats {
    /// All files.
    #[serde(flatten)]
    pub total: Tally,
    /// Folders, except the requested one.
    pub directories: u64,
    /// By kind.
    pub by_kind: BTreeMap<FileKind, Tally>,
    /// By extension in lower case, without the dot. Names without an extension have an empty key.
    pub by_extension: BTreeMap<String, Tally>,
    /// Files whose lines were not counted: hidden by policy, binary, or too large.
    pub not_counted: u64,
    /// The entries that are left out.
    #[serde(default, skip_serializing_if = "NotShown::is_empty")]
    pub not_shown: NotShown,
}

impl Tree {
    /// Counts the files under a folder. Ignored files are left out, unless the folder is ignored itself. Symbolic links and
    /// special files are not counted.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_DIRECTORY`; `Cancelled` once
    /// `cancel` is set.
    pub fn stats(&self, rules: &Rules, path: &LogicalPath, cancel: &AtomicBool) -> Result<TreeStats, WorkspaceError> {
        let root = WalkRoot::of(self, self.open_folder(rules, Access::Read, path)?, path)?;
        let skips_ignored = !root.is_ignored();
        let counter = Counter { tree: self, rules, cancel, skips_ignored, directories: AtomicU64::new(0) };
        let mut stats = walk(self, &counter, root, TreeStats::default(), cancel)?;
        stats.directories = counter.directories.into_inner();
        stats.join_rare_extensions();
        Ok(stats)
    }
}

/// The visitor that counts.
struct Counter<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    cancel: &'a AtomicBool,
    skips_ignored: bool,
    directories: AtomicU64,
}

/// The counts of one file.
struct Counted {
    kind: FileKind,
    extension: String,
    bytes: u64,
    /// `None` if they may not be counted.
    lines: Option<u64>,
}

/// What the walk has found at an entry.
enum StatsStep {
    Counted(Counted),
    LeftOut(LeftOut),
}

impl Visitor for Counter<'_> {
    type Worker<'a>
        = ()
    where
        Self: 'a;
    type Finding = Option<StatsStep>;
    type Outcome = TreeStats;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) {}

    fn is_requested(&self, _path: &LogicalPath, _is_folder: bool) -> bool {
        true
    }

    fn admit(&self, candidate: &Candidate) -> Admission<Option<StatsStep>> {
        if self.skips_ignored && candidate.ignored {
            return Admission::Report(Some(StatsStep::LeftOut(LeftOut::Ignored)));
        }
        if candidate.kind == FileKind::Directory {
            self.directories.fetch_add(1, Ordering::Relaxed);
        }
        Admission::Visit
    }

    /// Returns the counts of the file; `None` if it was removed or replaced meanwhile.
    fn visit(
        &self,
        (): &mut (),
        dir: Option<&TreeFolder>,
        candidate: Candidate,
    ) -> Result<Option<StatsStep>, WorkspaceError> {
        let Some(dir) = dir else { return Ok(None) };
        let opened = match self.tree.root.open_entry(dir, &candidate.name) {
            Ok(opened) if opened.file_type() == FileType::RegularFile => opened,
            Ok(_) => return Ok(None),
            Err(error) => return Ok(error.unless_disk().map(|()| None)?),
        };
        let (kind, lines) = self.count(&opened, &candidate)?;
        let extension = extension(candidate.at.shown.file_name());
        Ok(Some(StatsStep::Counted(Counted { kind, extension, bytes: opened.size(), lines })))
    }

    fn collect(&self, stats: &mut TreeStats, finding: Option<StatsStep>) -> bool {
        match finding {
            Some(StatsStep::Counted(counted)) => stats.add(counted),
            Some(StatsStep::LeftOut(reason)) => stats.not_shown.add(reason),
            None => {}
        }
        false
    }
}

impl Counter<'_> {
    /// Returns a file's kind and, if they may be counted, its lines.
    fn count(&self, opened: &Opened, candidate: &Candidate) -> Result<(FileKind, Option<u64>), WorkspaceError> {
        let Candidate { at, kind, ignored, .. } = candidate;
        let (path, real_path, hard_linked) = (&at.shown, at.real.as_ref(), opened.is_hard_linked());
        let facts = PathFacts { path, real_path, kind: *kind, ignored: *ignored, hard_linked };
        if model::judge_path(self.rules, Access::Read, &facts).is_err() {
            return Ok((*kind, None));
        }
        let head = head_of(opened)?;
        let kind = self.rules.kind_of_file(at.real(), &head);
        let too_large = opened.size() > self.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
        if too_large || matches!(kind, FileKind::Binary | FileKind::SecretLike) || model::is_binary(&head) {
            return Ok((kind, None));
        }
        Ok((kind, Some(count_lines(opened, &head, self.cancel)?)))
    }
}

impl TreeStats {
    fn add(&mut self, counted: Counted) {
        let Counted { kind, extension, bytes, lines } = counted;
        let tally = Tally { files: 1, bytes, lines: lines.unwrap_or(0) };
        self.not_counted += u64::from(lines.is_none());
        self.total.add(tally);
        self.by_kind.entry(kind).or_default().add(tally);
        self.by_extension.entry(extension).or_default().add(tally);
    }

    fn join_rare_extensions(&mut self) {
        if self.by_extension.len() <= MAX_EXTENSIONS {
            return;
        }
        let mut sizes: Vec<_> = self.by_extension.iter().map(|(name, tally)| (tally.files, name.clone())).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut others = Tally::default();
        for (_, name) in sizes.split_off(MAX_EXTENSIONS - 1) {
            others.add(self.by_extension.remove(&name).unwrap_or_default());
        }
        self.by_extension.insert(OTHERS.to_owned(), others);
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines += other.lines;
    }
}

/// Returns the extension of a file's name. A name that only begins with a dot has none.
fn extension(name: &str) -> String {
    match name.trim_start_matches('.').rsplit_once('.') {
        Some((_, tail)) if (1..=MAX_EXTENSION_BYTES).contains(&tail.len()) => tail.to_lowercase(),
        Some(_) | None => String::new(),
    }
}

/// Counts the lines of a text, including a last one without a line ending.
fn count_lines(opened: &Opened, head: &[u8], cancel: &AtomicBool) -> Result<u64, WorkspaceError> {
    let wide = match head {
        [0xff, 0xfe, ..] => Some(b"\n\0"),
        [0xfe, 0xff, ..] => Some(b"\0\n"),
        _ => None,
    };
    let (mut lines, mut last, mut half) = (0_u64, *b"\0\0", None);
    each_chunk(opened, cancel, |chunk| match wide {
        None => {
            lines += memchr::memchr_iter(b'\n', chunk).count() as u64;
            last[1] = chunk.last().copied().unwrap_or_default();
        }
        Some(end) => {
            for byte in chunk {
                match half.take() {
                    None => half = Some(*byte),
                    Some(first) => {
                        last = [first, *byte];
                        lines += u64::from(last == *end);
                    }
                }
            }
        }
    })?;
    let ended = wide.map_or(last[1] == b'\n', |end| last == *end);
    Ok(if opened.size() == 0 || ended { lines } else { lines + 1 })
}
