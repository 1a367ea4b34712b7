//! The diff of `diff_workspace`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::Encoding;
use serde::Deserialize;

use super::lines::PushLine as _;
use super::notes::first_lines;
use super::{Rendered, quote};

/// How many files of an encoding are named.
const MAX_NAMED: usize = 5;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Differences<'a> {
    files_changed: u64,
    #[serde(borrow)]
    stat: Cow<'a, str>,
    #[serde(borrow)]
    diff: Cow<'a, str>,
    truncated: bool,
    #[serde(borrow, default)]
    truncated_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    next_path: Option<Cow<'a, str>>,
    #[serde(default)]
    max_bytes: Option<u64>,
    tree_checked: Option<bool>,
    #[serde(borrow, default)]
    files: Vec<FileForm<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileForm<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    encoding: Option<Encoding>,
    #[serde(default)]
    encoding_guessed: bool,
}

/// The maximum diff text of one response, in bytes.
pub(crate) const MAX_DIFF_BYTES: u64 = 1024 * 1024;

/// Renders an answer of `diff_workspace`: the diff, or the statistics where there is no diff's text.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn diff_workspace(answer: &str) -> serde_json::Result<Rendered> {
    let diff: Differences<'_> = serde_json::from_str(answer)?;
    let shown = if diff.diff.is_empty() { &diff.stat } else { &diff.diff };
    let mut out = String::with_capacity(shown.len() + 128);
    out.push_str(shown);
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    if diff.files_changed == 0 {
        out.push_str("[no changes]\n");
    }
    if diff.tree_checked == Some(false) {
        out.push_str("[only files that calls have changed were compared]\n");
    }
    let mut end = String::new();
    if let Some(last) = last_file(&diff.diff) {
        push_encodings(&mut end, diff.files.get(..=last).unwrap_or(&diff.files));
    }
    if diff.truncated {
        let next = diff.next_path.map(|path| format!("continue with path={}", quote::quoted(&path)));
        let narrow = (diff.files_changed > 1).then(|| "narrow path".to_owned());
        let is_full = diff.max_bytes.is_some_and(|bytes| bytes >= MAX_DIFF_BYTES);
        let raise = diff.truncated_reason.filter(|_| !is_full).map(|limit| format!("raise {limit}"));
        let ways: Vec<_> = [next, narrow, raise].into_iter().flatten().collect();
        let ways = match ways.split_last() {
            // One file of which the diff is larger than any answer.
            None => "read_file shows the file, and with atSeq=0 as it was at the start".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        };
        end.push_line(format_args!("[the diff is cut; {ways}]"));
    }
    Ok(Rendered { body: out, end })
}

/// Appends a line for each encoding from which files were decoded.
fn push_encodings(end: &mut String, files: &[FileForm<'_>]) {
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
