//! Answers of our tools as formats show them.

use std::fmt::Write as _;

use engine::tools::text::{
    CommandForm, PageForm, PushLine as _, Rendered, counted, glob_notes, lines_of, not_shown, notes_of_entry,
    notes_of_found, page_of_lines, quote, thousands,
};
use engine::tools::{FindFilesOutput, ListDirOutput, SearchTextOutput};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::Value;
use workspace::{EntryType, FolderEntry, Match};

use crate::mapping::{Aside, MappedCall};
use crate::rows::{AnswerForm, MatchesMode};
use crate::templates::{at_line, fill, repeated};

/// Writes a number as `cat -n` does.
pub(crate) fn cat_n(out: &mut String, number: u64) {
    let _infallible = write!(out, "{number:>6}\t");
}

impl MappedCall {
    /// Renders the JSON answer of the call.
    pub(crate) fn render(&self, answer: &str) -> serde_json::Result<Rendered> {
        if self.call.name == "run_command" {
            let more = |id: &str, place| self.format.more_of_output(id, place);
            let is_process = matches!(self.row.answer, AnswerForm::Command { process: true });
            return CommandForm { more: &more, is_process, lines: self.aside.output_lines }.render(answer);
        }
        match &self.row.answer {
            AnswerForm::Page { title, next } => {
                let next = |line| at_line(next, line);
                let mut page = page_of_lines(answer, &PageForm { label: cat_n, next: &next, has_columns: false })?;
                if let Some(title) = title {
                    page.body.insert_str(0, &(self.line(title) + "\n"));
                }
                Ok(page)
            }
            AnswerForm::Listing { title, empty, names } => self.listing(answer, title, empty, *names),
            AnswerForm::Found { title, none } => self.found(answer, title.as_deref(), none),
            AnswerForm::Matches { mode, limit, next, none } => {
                let search: SearchTextOutput = serde_json::from_str(answer)?;
                let limit = self.aside.limit.filter(|limit| *limit > 0).or(*limit).unwrap_or(usize::MAX);
                Ok(self.matches(&search, self.aside.mode.unwrap_or(*mode), limit, next.as_deref(), none))
            }
            AnswerForm::Many => self.many(answer),
            AnswerForm::Change { created, done } => {
                let change: Value = serde_json::from_str(answer)?;
                let count = |name: &str| change[name].as_u64().unwrap_or_default();
                let text = created.as_ref().filter(|_| change["created"] == true).unwrap_or(done);
                let said = fill(text, |name| match name {
                    "counts" => Some(format!("(+{} -{})", count("insertions"), count("deletions"))),
                    "replacements" => Some(count("replacements").to_string()),
                    name => self.value(name),
                });
                Ok((said.unwrap_or_default() + "\n").into())
            }
            AnswerForm::Patched => {
                let change: Value = serde_json::from_str(answer)?;
                let mut body = String::from("Success. Updated the following files:\n");
                for file in change["files"].as_array().into_iter().flatten() {
                    let letter = match file["operation"].as_str() {
                        Some("created" | "copied") => 'A',
                        Some("deleted") => 'D',
                        _ => 'M',
                    };
                    body.push_line(format_args!("{letter} {}", quote::path(file["path"].as_str().unwrap_or_default())));
                }
                Ok(body.into())
            }
            AnswerForm::Command { .. } => Ok(Rendered::default()),
        }
    }

    /// Returns a value of the input that a text names.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        match name {
            "tool" => Some(self.tool.name.clone()),
            "path" => Some(quote::one_line(&self.aside.path).into_owned()),
            "old" => Some(repeated(&self.aside.old)),
            "pattern" => Some(quote::one_line(&self.aside.pattern).into_owned()),
            _ => None,
        }
    }

    fn line(&self, text: &str) -> String {
        fill(text, |name| self.value(name)).unwrap_or_default()
    }

    fn listing(&self, answer: &str, title: &str, empty: &str, names: bool) -> serde_json::Result<Rendered> {
        let list: ListDirOutput = serde_json::from_str(answer)?;
        let name_of = |entry: &FolderEntry| entry.path.rsplit('/').next().unwrap_or_default().to_owned();
        let ignored = names_matching(&self.aside.ignore);
        let entries: Vec<_> = list.entries.iter().filter(|entry| !ignored.is_match(name_of(entry))).collect();
        let mut body = String::new();
        body.push_line(self.line(if entries.is_empty() { empty } else { title }));
        for entry in &entries {
            let (is_folder, notes) = (entry.entry_type == EntryType::Directory, notes_of_entry(entry));
            if names {
                let mark = if is_folder { "[DIR] " } else { "" };
                body.push_line(format_args!("{mark}{}{notes}", quote::path(&name_of(entry))));
            } else {
                let slash = if is_folder { "/" } else { "" };
                body.push_line(format_args!("{}{slash}{notes}", quote::path(&self.format.show(&entry.path))));
            }
        }
        if entries.len() < list.entries.len() {
            let ignored = thousands((list.entries.len() - entries.len()) as u64);
            body.push_line(format_args!("[{ignored} left out by ignore]"));
        }
        body.extend(not_shown(&list.not_shown, "not shown", |_| Vec::new()));
        let end = cut(list.truncated, list.entries.len(), list.total_entries, "list a folder below it");
        Ok(Rendered { body, end })
    }

    fn found(&self, answer: &str, title: Option<&str>, none: &str) -> serde_json::Result<Rendered> {
        let list: FindFilesOutput = serde_json::from_str(answer)?;
        let mut body = String::new();
        if list.entries.is_empty() {
            body.push_line(self.line(none));
            body.push_str(&glob_notes(&list.notes));
        } else if let Some(title) = title {
            body.push_line(fill(title, |_| Some(list.entries.len().to_string())).unwrap_or_default());
        }
        for entry in &list.entries {
            let path = self.format.show(entry.path.as_str());
            body.push_line(format_args!("{}{}", quote::path(&path), notes_of_found(entry)));
        }
        body.extend(not_shown(&list.not_shown, "not searched", |_| Vec::new()));
        let end = cut(list.truncated, list.entries.len(), list.total_entries, "search a folder below it");
        Ok(Rendered { body, end })
    }

    fn matches(
        &self,
        search: &SearchTextOutput,
        mode: MatchesMode,
        limit: usize,
        next: Option<&str>,
        none: &str,
    ) -> Rendered {
        let mut lines = Vec::new();
        for file in search.matches.chunk_by(|a, b| a.path == b.path) {
            self.push_matches(&mut lines, mode, file);
        }
        let Aside { skip: offset, is_searched, .. } = self.aside;
        // A search that has skipped them goes on wherever it was stopped. It counts matches, which are neither context nor counts.
        let skip = if is_searched { 0 } else { offset };
        let shown = lines.len().saturating_sub(skip).min(limit);
        let rest = lines.len().saturating_sub(skip.saturating_add(limit));
        let mut body = String::new();
        for line in lines.iter().skip(skip).take(limit) {
            body.push_line(line);
        }
        let before = if is_searched { search.matches_skipped } else { lines.len() as u64 };
        let next = next.map(|next| |lines: usize| at_line(next, lines as u64));
        match (&next, before) {
            _ if shown > 0 => {}
            (Some(next), 1..) => {
                let all = if search.truncated_reason.is_none() { " in all" } else { "" };
                body.push_line(format_args!(
                    "[{}{all}, none after {}]",
                    counted(before, "line", "lines"),
                    next(offset)
                ));
            }
            _ => {
                body.push_line(self.line(none));
                body.push_str(&glob_notes(&search.notes));
                for note in search.notes.iter().filter(|note| note.starts_with("0 files searched")) {
                    body.push_line(format_args!("[{}]", quote::one_line(note)));
                }
            }
        }
        for note in &search.skipped {
            body.push_line(format_args!("[not searched: {}]", quote::one_line(note)));
        }
        body.extend(not_shown(&search.not_shown, "not searched", |_| Vec::new()));
        let next = next.filter(|_| shown > 0).map(|next| next(offset + shown));
        let is_timed_out = search.truncated_reason.as_deref() == Some("maxTime");
        let end = match (&search.truncated_reason, rest, next) {
            (Some(_), _, Some(next)) if rest > 0 || (is_searched && !is_timed_out) => {
                format!("[more follow; continue with {next}]\n")
            }
            (Some(_), _, _) => {
                let shown = counted(search.matches.len() as u64, "match", "matches");
                let counts = if mode == MatchesMode::Counts { ", so that the last count is too low" } else { "" };
                format!("[stopped after {shown}{counts}; search a folder below it, or for less]\n")
            }
            (None, 0, _) => String::new(),
            (None, rest, next) => {
                let next = next.map(|next| format!("; continue with {next}")).unwrap_or_default();
                format!("[{} more{next}]\n", counted(rest as u64, "line", "lines"))
            }
        };
        Rendered { body, end }
    }

    fn push_matches(&self, lines: &mut Vec<String>, mode: MatchesMode, file: &[Match]) {
        let Some(first) = file.first() else { return };
        let path = self.format.show(&first.path);
        let path = quote::path(&path);
        // A caller without `file:read` is given paths only.
        let mode = if first.line == 0 { MatchesMode::Files } else { mode };
        let file = &file[..file.len().min(self.aside.per_file.unwrap_or(usize::MAX))];
        match mode {
            MatchesMode::Files => lines.push(path.into_owned()),
            MatchesMode::Counts => lines.push(format!("{path}:{}", file.len())),
            MatchesMode::Content => {
                for (number, (is_match, text)) in lines_of(file) {
                    let mark = if is_match { ':' } else { '-' };
                    let number = if self.aside.unnumbered { String::new() } else { format!("{number}{mark}") };
                    lines.push(format!("{path}{mark}{number}{text}"));
                }
            }
            MatchesMode::Grouped => {
                lines.push(format!("File: {path}"));
                for (number, (is_match, text)) in lines_of(file) {
                    lines.push(format!("L{number}{} {text}", if is_match { ':' } else { '-' }));
                }
                lines.push("---".to_owned());
            }
        }
    }

    fn many(&self, answer: &str) -> serde_json::Result<Rendered> {
        let read: Value = serde_json::from_str(answer)?;
        let (mut body, mut end) = (String::new(), String::new());
        for (path, file) in read["files"].as_object().into_iter().flatten() {
            let path = self.format.show(path);
            let path = quote::path(&path);
            let Some(content) = file["content"].as_str() else {
                end.push_line(format_args!("[not read: {path}: {}]", file["status"].as_str().unwrap_or_default()));
                continue;
            };
            body.push_line(format_args!("--- {path} ---\n"));
            body.push_line(content.strip_suffix('\n').unwrap_or(content));
            if let Some(next) = file["nextStartLine"].as_u64() {
                body.push_line(format_args!("[cut; read_file with start_line={next} continues]"));
            }
            body.push('\n');
        }
        body.push_line("--- End of content ---");
        for path in read["remaining"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            end.push_line(format_args!("[not read, too much together: {}]", quote::path(&self.format.show(path))));
        }
        Ok(Rendered { body, end })
    }
}

/// Returns what matches the globs of names, as far as they are globs. Others match nothing.
fn names_matching(globs: &[String]) -> GlobSet {
    let mut all = GlobSetBuilder::new();
    for glob in globs.iter().filter_map(|glob| GlobBuilder::new(glob).build().ok()) {
        all.add(glob);
    }
    all.build().unwrap_or_default()
}

/// The last line of a list that is cut, which shows so many of all entries.
fn cut(is_cut: bool, shown: usize, total: Option<u64>, remedy: &str) -> String {
    if !is_cut {
        return String::new();
    }
    let shown = thousands(shown as u64);
    match total {
        Some(total) => format!("[{shown} of {} entries; {remedy}]\n", thousands(total)),
        None => format!("[{shown} entries, more follow; {remedy}]\n"),
    }
}
