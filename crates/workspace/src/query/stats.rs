//! Statistics of a tree: files, folders, bytes and lines, by kind and by extension.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, Rules};
use serde::{Deserialize, Serialize};

use crate::guard::{Opened, TreeFolder};
use crate::opened_file::each_chunk;
use crate::query::entry::EntryType;
use crate::query::not_shown::{LeftOut, NotShown};
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
        let counter = Counter { tree: self, rules, cancel, skips_ignored };
        let mut stats = walk(self, &counter, root, TreeStats::default(), cancel)?;
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
}

/// What the walk has found at an entry.
enum StatsStep {
    File {
        extension: String,
        kind: FileKind,
        bytes: u64,
        /// `None` if they may not be counted.
        lines: Option<u64>,
    },
    Directory,
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
        Admission::VisitEntry { enters: true }
    }

    fn too_long(&self) -> Option<StatsStep> {
        Some(StatsStep::LeftOut(LeftOut::TooLong))
    }

    /// Counts the file; `None` if it was removed or replaced meanwhile.
    fn visit(
        &self,
        (): &mut (),
        dir: Option<&TreeFolder>,
        candidate: Candidate,
    ) -> Result<Option<StatsStep>, WorkspaceError> {
        if candidate.kind == FileKind::Directory {
            return Ok(Some(StatsStep::Directory));
        }
        let Some(dir) = dir else { return Ok(None) };
        let Some(stat) = self.tree.stat_in(dir, &candidate.name)? else { return Ok(None) };
        let (found, opened) = self.tree.describe(self.rules, dir, &candidate, &stat, true)?;
        let Some(kind) = found.kind.filter(|_| found.entry_type == EntryType::File) else { return Ok(None) };
        let lines = match opened.filter(|_| found.refused.is_none()) {
            Some(opened) => Some(count_lines(&opened, self.cancel)?),
            None => None,
        };
        let (extension, bytes) = (extension(candidate.at.shown.file_name()), found.size_bytes.unwrap_or(0));
        Ok(Some(StatsStep::File { extension, kind, bytes, lines }))
    }

    fn collect(&self, stats: &mut TreeStats, finding: Option<StatsStep>) -> bool {
        match finding {
            Some(StatsStep::File { extension, kind, bytes, lines }) => {
                let tally = Tally { files: 1, bytes, lines: lines.unwrap_or(0) };
                stats.not_counted += u64::from(lines.is_none());
                stats.total.add(tally);
                stats.by_kind.entry(kind).or_default().add(tally);
                stats.by_extension.entry(extension).or_default().add(tally);
            }
            Some(StatsStep::Directory) => stats.directories += 1,
            Some(StatsStep::LeftOut(reason)) => stats.not_shown.add(reason),
            None => {}
        }
        false
    }
}

impl TreeStats {
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
fn count_lines(opened: &Opened, cancel: &AtomicBool) -> Result<u64, WorkspaceError> {
    let (mut lines, mut last, mut half) = (0_u64, *b"\0\0", None);
    // The end of a line in UTF-16.
    let (mut wide, mut is_start) = (None, true);
    each_chunk(&opened.file, opened.size(), cancel, |chunk| {
        if std::mem::take(&mut is_start) {
            wide = match chunk {
                [0xff, 0xfe, ..] => Some(b"\n\0"),
                [0xfe, 0xff, ..] => Some(b"\0\n"),
                _ => None,
            };
        }
        match wide {
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
        }
        true
    })?;
    let ended = wide.map_or(last[1] == b'\n', |end| last == *end);
    Ok(if opened.size() == 0 || ended { lines } else { lines + 1 })
}
