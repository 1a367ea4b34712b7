//! Matches of `search_text`.

use std::collections::BTreeMap;

use workspace::Match;

use super::lists::fitting;
use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::{continuation, counted, not_shown};
use crate::tool::text::{Rendered, quote};
use crate::tools::search_text::SearchTextOutput;

impl ToolOutput for SearchTextOutput {
    /// Renders each path, then its matching lines and the lines around them.
    fn to_text(&self) -> Rendered {
        let mut out = String::new();
        for file in self.matches.chunk_by(|a, b| a.path == b.path) {
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
        if self.matches.is_empty() {
            match self.matches_skipped {
                0 => out.push_str("[no matches]\n"),
                skipped => out.push_line(format_args!("[no more than the {}]", counted(skipped, "match", "matches"))),
            }
        }
        for note in &self.skipped {
            out.push_line(format_args!("[not searched: {}]", quote::one_line(note)));
        }
        for note in &self.notes {
            out.push_line(format_args!("[{}]", quote::one_line(note)));
        }
        out.extend(not_shown(&self.not_shown, "not searched", |_| Vec::new()));
        let mut end = String::new();
        if let Some(reason) = &self.truncated_reason {
            end.extend(self.next_cursor.as_deref().map(continuation));
            let shown = counted(self.matches.len() as u64, "match", "matches");
            match reason.as_str() {
                "maxTime" => {
                    end.push_line(format_args!("[{shown}; the search was stopped after 30 seconds; narrow path]"));
                }
                "maxBytes" => end.push_line(format_args!("[{shown}, more follow; narrow path]")),
                limit => end.push_line(format_args!("[{shown}, more follow; narrow path or raise {limit}]")),
            }
        }
        Rendered { body: out, end }
    }

    fn withhold(&mut self) -> bool {
        let mut had_content = false;
        for Match { snippet, before, after, .. } in &mut self.matches {
            had_content |= !(snippet.is_empty() && before.is_empty() && after.is_empty());
            (*snippet, *before, *after) = (String::new(), Vec::new(), Vec::new());
        }
        had_content
    }
}

/// The lines of a file in order, each once, with whether it matches: a match may be in the context of another.
pub fn lines_of(matches: &[Match]) -> BTreeMap<u64, (bool, &str)> {
    let mut lines: BTreeMap<u64, (bool, &str)> = BTreeMap::new();
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
