//! The diff of `diff_workspace`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use workspace::DiffFile;

use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::first_lines;
use crate::tool::text::{Rendered, quote};
use crate::tools::diff_workspace::DiffWorkspaceOutput;

/// How many files of an encoding are named.
const MAX_NAMED: usize = 5;

/// The maximum diff text of one response, in bytes.
pub(crate) const MAX_DIFF_BYTES: u64 = 1024 * 1024;

impl ToolOutput for DiffWorkspaceOutput {
    /// Renders the diff, or the statistics where there is no diff's text.
    fn to_text(&self) -> Rendered {
        let shown = if self.diff.is_empty() { &self.stat } else { &self.diff };
        let mut out = String::with_capacity(shown.len() + 128);
        out.push_str(shown);
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        if self.files_changed == 0 {
            out.push_str("[no changes]\n");
        }
        if self.tree_checked == Some(false) {
            out.push_str("[only files that calls have changed were compared]\n");
        }
        let mut end = String::new();
        if let Some(last) = last_file(&self.diff) {
            push_encodings(&mut end, self.files.get(..=last).unwrap_or(&self.files));
        }
        if self.truncated {
            let next = self.next_path.as_ref().map(|path| format!("continue with path={}", quote::quoted(path)));
            let narrow = (self.files_changed > 1).then(|| "narrow path".to_owned());
            let is_full = self.max_bytes.is_some_and(|bytes| bytes as u64 >= MAX_DIFF_BYTES);
            let raise = self.truncated_reason.as_ref().filter(|_| !is_full).map(|limit| format!("raise {limit}"));
            let ways: Vec<_> = [next, narrow, raise].into_iter().flatten().collect();
            let ways = match ways.split_last() {
                // One file of which the diff is larger than any answer.
                None => "read_file shows the file, and with atSeq=0 as it was at the start".to_owned(),
                Some((last, [])) => last.clone(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
            };
            end.push_line(format_args!("[the diff is cut; {ways}]"));
        }
        Rendered { body: out, end }
    }

    fn long_text(&self) -> Option<(&'static str, Cow<'_, str>)> {
        Some(("diff", Cow::Borrowed(&self.diff)))
    }

    fn withhold(&mut self) -> bool {
        !std::mem::take(&mut self.diff).is_empty()
    }
}

/// Appends a line for each encoding from which files were decoded.
fn push_encodings(end: &mut String, files: &[DiffFile]) {
    let mut decoded: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for file in files {
        if let Some(encoding) = file.encoding {
            decoded.entry((encoding.name(), file.encoding_guessed)).or_default().push(&file.path);
        }
    }
    for ((name, is_guessed), paths) in decoded {
        let shown: Vec<_> = paths.iter().take(MAX_NAMED).map(|path| quote::path(path)).collect();
        let more =
            if paths.len() > shown.len() { format!(", {} more", paths.len() - shown.len()) } else { String::new() };
        let guessed = if is_guessed { ", guessed" } else { "" };
        end.push_line(format_args!("[{name}{guessed}: {}{more}]", shown.join(", ")));
    }
}

/// Cuts a diff, or its statistics, after a line. Returns whether anything was cut off.
pub(crate) fn cut(text: &mut String, max_chars: usize) -> bool {
    let end = first_lines(text, max_chars).len();
    let is_cut = end < text.len();
    text.truncate(end);
    is_cut
}

/// Returns the index of the file at which a diff ends. Only the first line of a file's diff begins so.
pub(crate) fn last_file(diff: &str) -> Option<usize> {
    diff.lines().filter(|line| line.starts_with("diff --git ")).count().checked_sub(1)
}
