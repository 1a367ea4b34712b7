//! Building a diff from changes: counts, text up to a bound, and the hash of the whole text.

use std::fmt::Write as _;

use model::{LogicalPath, Sha256, quoted_name};
use sha2::Digest as _;

use super::{DiffQuery, WorkspaceDiff};
use crate::base::{DiffFile, FileChange};
use crate::query::bounded_entries::{MAX_ENTRIES_BYTES, entry_bytes};

/// The JSON size of a changed file besides its path and its line of the statistics.
const ENTRY_OVERHEAD: usize = 300;

/// A diff under construction.
pub(super) struct Report<'a> {
    query: &'a DiffQuery,
    diff: WorkspaceDiff,
    entries_bytes: usize,
    text: Vec<u8>,
    is_text_cut: bool,
    sha256: sha2::Sha256,
}

impl<'a> Report<'a> {
    pub(super) fn new(query: &'a DiffQuery) -> Self {
        let diff = WorkspaceDiff {
            files_changed: 0,
            files: Vec::new(),
            insertions: 0,
            deletions: 0,
            stat: String::new(),
            diff: String::new(),
            truncated: false,
            diff_sha256: Sha256::of(b""),
        };
        let (text, sha256) = (Vec::new(), sha2::Sha256::new());
        Self { query, diff, entries_bytes: 0, text, is_text_cut: false, sha256 }
    }

    /// Adds one change, with as much of its text as fits.
    pub(super) fn add(&mut self, path: &LogicalPath, change: &FileChange) {
        self.sha256.update(&change.text);
        if !self.query.stat_only && !self.is_text_cut {
            let left = self.query.max_bytes.saturating_sub(self.text.len());
            self.is_text_cut = change.text.len() > left;
            let cut = || change.text[..left].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let end = if self.is_text_cut { cut() } else { change.text.len() };
            self.text.extend_from_slice(&change.text[..end]);
        }
        let diff = &mut self.diff;
        diff.files_changed += 1;
        diff.insertions += change.file.insertions;
        diff.deletions += change.file.deletions;
        if self.entries_bytes <= MAX_ENTRIES_BYTES {
            let stat = stat_line(change);
            self.entries_bytes += entry_bytes(path.as_str(), ENTRY_OVERHEAD) + stat.len();
            if self.entries_bytes <= MAX_ENTRIES_BYTES {
                diff.stat.push_str(&stat);
                diff.files.push(change.file.clone());
            }
        }
    }

    pub(super) fn finish(self) -> WorkspaceDiff {
        let mut diff = self.diff;
        let left_out = diff.files_changed - diff.files.len();
        let plural = |count| if count == 1 { "" } else { "s" };
        // Writing to a string does not fail.
        if left_out > 0 {
            let _ = writeln!(diff.stat, "... and {left_out} more file{}", plural(left_out));
        }
        if let files @ 1.. = diff.files_changed {
            let (name, added, removed) = (plural(files), diff.insertions, diff.deletions);
            let _ = writeln!(diff.stat, "{files} file{name} changed | +{added} -{removed}");
        }
        diff.truncated = self.is_text_cut || left_out > 0;
        diff.diff = String::from_utf8_lossy(&self.text).into_owned();
        diff.diff_sha256 = Sha256::from_bytes(self.sha256.finalize().into());
        diff
    }
}

/// Returns a file's line of the statistics.
fn stat_line(FileChange { file, bytes: (before, after), .. }: &FileChange) -> String {
    let DiffFile { path, insertions, deletions, binary, .. } = file;
    let name = quoted_name("", path);
    match binary {
        true => format!("{name} | Bin {before} -> {after} bytes\n"),
        false => format!("{name} | +{insertions} -{deletions}\n"),
    }
}
