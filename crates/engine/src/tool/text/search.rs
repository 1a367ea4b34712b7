//! Matches of `search_text`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use workspace::{Match, NotShown};

use super::lines::PushLine as _;
use super::lists::fitting;
use super::notes::{continuation, counted, not_shown};
use super::{Rendered, quote};

/// The answer of `search_text`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Search<'a> {
    /// The matches, in path order.
    pub(crate) matches: Vec<Match>,
    /// How many matches were skipped before the first one.
    #[serde(default)]
    pub(crate) matches_skipped: u64,
    /// Why matches are missing; `None` if none are.
    #[serde(borrow, default)]
    pub(crate) truncated_reason: Option<Cow<'a, str>>,
    /// The files that could not be searched.
    #[serde(borrow, default)]
    pub(crate) skipped: Vec<Cow<'a, str>>,
    /// What was left out.
    #[serde(default)]
    pub(crate) not_shown: NotShown,
    /// What may be the reason that nothing was found.
    #[serde(borrow, default)]
    pub(crate) notes: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    next_cursor: Option<Cow<'a, str>>,
}

/// A line of a file: whether it matches, and its text.
pub(crate) type Line<'a> = (bool, &'a str);

/// Renders an answer of `search_text`: each path, then its matching lines and the lines around them.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn search_text(answer: &str) -> serde_json::Result<Rendered> {
    let search: Search<'_> = serde_json::from_str(answer)?;
    let mut out = String::with_capacity(answer.len() / 2);
    for file in search.matches.chunk_by(|a, b| a.path == b.path) {
        let lines = lines_of(file);
        // A caller without `file:read` is given paths only.
        if !out.is_empty() && !lines.is_empty() {
            out.push('\n');
        }
        out.extend(file.first().map(|first| format!("{}\n", quote::path(&first.path))));
        for (number, (is_match, text)) in lines {
            out.push_line(format_args!("  {number}{} {text}", if is_match { ':' } else { '-' }));
        }
    }
    if search.matches.is_empty() {
        match search.matches_skipped {
            0 => out.push_str("[no matches]\n"),
            skipped => out.push_line(format_args!("[no more than the {}]", counted(skipped, "match", "matches"))),
        }
    }
    for note in &search.skipped {
        out.push_line(format_args!("[not searched: {}]", quote::one_line(note)));
    }
    for note in &search.notes {
        out.push_line(format_args!("[{}]", quote::one_line(note)));
    }
    out.extend(not_shown(&search.not_shown, "not searched", |_| Vec::new()));
    let mut end = String::new();
    if let Some(reason) = &search.truncated_reason {
        end.extend(search.next_cursor.as_deref().map(continuation));
        let shown = counted(search.matches.len() as u64, "match", "matches");
        match reason.as_ref() {
            "maxTime" => {
                end.push_line(format_args!("[{shown}; the search was stopped after 30 seconds; narrow path]"));
            }
            "maxBytes" => end.push_line(format_args!("[{shown}, more follow; narrow path]")),
            limit => end.push_line(format_args!("[{shown}, more follow; narrow path or raise {limit}]")),
        }
    }
    Ok(Rendered { body: out, end })
}

/// The lines of a file in order, each once: a match may be in the context of another.
pub(crate) fn lines_of(matches: &[Match]) -> BTreeMap<u64, Line<'_>> {
    let mut lines: BTreeMap<u64, Line<'_>> = BTreeMap::new();
    for found in matches.iter().filter(|found| found.line > 0) {
        let first = found.line.saturating_sub(found.before.len() as u64);
        let before = (first..).zip(&found.before);
        let last = found.end_line.unwrap_or(found.line);
        let after = (last + 1..).zip(&found.after);
        for (number, text) in before.chain(after) {
            lines.entry(number).or_insert((false, text));
        }
        // A match that spans lines has them all in its snippet, or the first of them.
        for (number, text) in (found.line..).zip(found.snippet.split('\n')) {
            lines.insert(number, (true, text));
        }
    }
    lines
}

/// Returns how many of the matches have at most `max_chars` characters; at least one.
pub(crate) fn fitting_matches(matches: &[Match], max_chars: usize) -> usize {
    let mut last_path = None;
    let chars = matches.iter().map(|found| {
        let is_new = last_path.replace(&found.path) != Some(&found.path);
        let path = if is_new { quote::path(&found.path).chars().count() + 2 } else { 0 };
        let label = found.end_line.unwrap_or(found.line).to_string().len() + 5;
        let line = |text: &str| text.chars().count() + label;
        if found.line == 0 {
            // The caller is shown paths only, so that lines must not count.
            return path;
        }
        let around: usize = found.before.iter().chain(&found.after).map(|text| line(text)).sum();
        path + around + found.snippet.split('\n').map(line).sum::<usize>()
    });
    fitting(chars, max_chars)
}
