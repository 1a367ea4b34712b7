//! Answers in the forms that models were trained on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use workspace::{EntryType, FolderEntry};

use super::RenderAnswer;
use super::paths::FormRoot;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::{counted, glob_notes, not_shown, thousands};
use crate::tool::text::{Rendered, quote};
use crate::tools::find_files::FindFilesOutput;
use crate::tools::list_dir::ListDirOutput;
use crate::tools::read_file::ReadFileOutput;
use crate::tools::read_files::ReadFilesOutput;
use crate::tools::search_text::SearchTextOutput;
use crate::tools::text::files::PageForm;
use crate::tools::text::lists::{notes_of_entry, notes_of_found};
use crate::tools::text::search::lines_of;

/// Writes a number as `cat -n` does.
pub(super) fn cat_n(out: &mut String, number: u64) {
    let _infallible = write!(out, "{number:>6}\t");
}

/// Reads a page from the answer of `read_file`, whose lines have their numbers unless they are raw.
fn page_of(answer: &str) -> serde_json::Result<ReadFileOutput> {
    let mut page: ReadFileOutput = serde_json::from_str(answer)?;
    if page.format.is_none() {
        let text = |line: &str| line.split_once(" | ").map(|(_, text)| text.to_owned()).unwrap_or_default();
        page.content = page.content.split_inclusive('\n').map(text).collect();
    }
    Ok(page)
}

/// Lines of a file, numbered as by `cat -n` unless they were asked for as they are. `next` is how a reader continues.
pub(super) fn page(next: fn(u64) -> String) -> RenderAnswer {
    Box::new(move |answer| Ok(page_of(answer)?.lines_in(&PageForm { label: cat_n, next, has_columns: false })))
}

/// As [`page`], after a line that says what it shows.
pub(super) fn titled_page(title: String, next: fn(u64) -> String) -> RenderAnswer {
    Box::new(move |answer| {
        let mut page = page_of(answer)?.lines_in(&PageForm { label: cat_n, next, has_columns: false });
        page.body.insert_str(0, &format!("{}\n", quote::one_line(&title)));
        Ok(page)
    })
}

/// How the entries of a folder are listed.
pub(super) struct ListingForm {
    /// The line before them.
    pub(super) title: String,
    /// Writes one.
    pub(super) entry: fn(FormRoot, &FolderEntry) -> String,
    /// The line of an empty folder.
    pub(super) empty: String,
    /// Globs of names that are left out.
    pub(super) ignore: Vec<String>,
}

/// The entries of a folder.
pub(super) fn listing(root: FormRoot, form: ListingForm) -> RenderAnswer {
    Box::new(move |answer| {
        let list: ListDirOutput = serde_json::from_str(answer)?;
        let is_ignored = |entry: &FolderEntry| {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            form.ignore.iter().any(|glob| fits(glob, name))
        };
        let entries: Vec<_> = list.entries.iter().filter(|entry| !is_ignored(entry)).collect();
        let mut body = String::new();
        if entries.is_empty() {
            body.push_line(quote::one_line(&form.empty));
        } else {
            body.push_line(quote::one_line(&form.title));
        }
        for entry in &entries {
            body.push_line(format_args!("{}{}", (form.entry)(root, entry), notes_of_entry(entry)));
        }
        if entries.len() < list.entries.len() {
            let ignored = thousands((list.entries.len() - entries.len()) as u64);
            body.push_line(format_args!("[{ignored} left out by ignore]"));
        }
        body.extend(not_shown(&list.not_shown, "not shown", |_| Vec::new()));
        let end = cut(list.truncated, list.entries.len(), list.total_entries, "list a folder below it");
        Ok(Rendered { body, end })
    })
}

/// An entry by its whole path, folders with a `/` at the end.
pub(super) fn whole_path(root: FormRoot, entry: &FolderEntry) -> String {
    let slash = if entry.entry_type == EntryType::Directory { "/" } else { "" };
    format!("{}{slash}", quote::path(&root.show(&entry.path)))
}

/// An entry by its name, folders after `[DIR]`.
pub(super) fn marked_name(_root: FormRoot, entry: &FolderEntry) -> String {
    let name = quote::path(entry.path.rsplit('/').next().unwrap_or_default()).into_owned();
    if entry.entry_type == EntryType::Directory { format!("[DIR] {name}") } else { name }
}

/// The entries of a folder as Anthropic's own memory lists them: the folder itself and what is in it, two levels deep, each after its
/// size. A folder is as large as the files that were listed in it.
pub(super) fn memory_listing(title: String, written: String, folder: String) -> RenderAnswer {
    Box::new(move |answer| {
        let list: ListDirOutput = serde_json::from_str(answer)?;
        let below = if folder == "." { String::new() } else { format!("{folder}/") };
        let below = below.as_str();
        let name_of = |entry: &'_ FolderEntry| entry.path.strip_prefix(below).unwrap_or(&entry.path).to_owned();
        let (mut all, mut sizes) = (0, BTreeMap::<String, u64>::new());
        for entry in &list.entries {
            let (name, bytes) = (name_of(entry), entry.size_bytes.unwrap_or_default());
            all += bytes;
            for (at, _) in name.match_indices('/').take(2) {
                *sizes.entry(name[..at].to_owned()).or_default() += bytes;
            }
        }
        let mut body = String::new();
        body.push_line(quote::one_line(&title));
        let written = written.trim_end_matches('/');
        body.push_line(format_args!("{}\t{}", size(all), quote::one_line(written)));
        for entry in &list.entries {
            let name = name_of(entry);
            if name.matches('/').count() > 1 {
                continue;
            }
            let is_folder = entry.entry_type == EntryType::Directory;
            let bytes = if is_folder { sizes.get(&name).copied() } else { entry.size_bytes };
            let path = format!("{written}/{name}");
            let slash = if is_folder { "/" } else { "" };
            let (bytes, path, notes) = (size(bytes.unwrap_or_default()), quote::path(&path), notes_of_entry(entry));
            body.push_line(format_args!("{bytes}\t{path}{slash}{notes}"));
        }
        body.extend(not_shown(&list.not_shown, "not shown", |_| Vec::new()));
        let end = cut(list.truncated, list.entries.len(), list.total_entries, "view a folder below it");
        Ok(Rendered { body, end })
    })
}

/// A size as Anthropic's own memory has it: `512B`, `4K`, `1.5K`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "K", "M", "G"];
    let (mut tenths, mut unit) = (u128::from(bytes) * 10, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    match tenths % 10 {
        0 => format!("{}{}", tenths / 10, UNITS[unit]),
        tenth => format!("{}.{tenth}{}", tenths / 10, UNITS[unit]),
    }
}

/// Raw lines of a file as Anthropic's own memory shows them: numbered, where what follows the last line ending is a line too. `lines` were
/// asked for.
pub(super) fn memory_page(title: String, lines: u64, next: fn(u64) -> String) -> RenderAnswer {
    Box::new(move |answer| {
        let form = PageForm { label: cat_n, next, has_columns: false };
        let numbered = page_of(answer)?.raw_lines_in(&form, lines);
        let Rendered { mut body, end } = numbered;
        body.insert_str(0, &format!("{}\n", quote::one_line(&title)));
        Ok(Rendered { body, end })
    })
}

/// Whether a name fits a glob of names: `*` and `?`.
fn fits(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<_>, Vec<_>) = (glob.chars().collect(), name.chars().collect());
    let (mut at, mut star, mut position) = (0, None, 0);
    while position < name.len() {
        match glob.get(at) {
            Some('*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[position] => (at, position) = (at + 1, position + 1),
            _ => match star {
                Some((star_at, from)) => {
                    (at, position) = (star_at + 1, from + 1);
                    star = Some((star_at, from + 1));
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|c| *c == '*')
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

/// Paths that were found, one a line.
pub(super) fn found(show: fn(&str) -> String, title: Option<fn(usize) -> String>, none: String) -> RenderAnswer {
    Box::new(move |answer| {
        let list: FindFilesOutput = serde_json::from_str(answer)?;
        let mut body = String::new();
        if list.entries.is_empty() {
            body.push_line(quote::one_line(&none));
            body.push_str(&glob_notes(&list.notes));
        } else if let Some(title) = title {
            body.push_line(title(list.entries.len()));
        }
        for entry in &list.entries {
            body.push_line(format_args!("{}{}", quote::path(&show(entry.path.as_str())), notes_of_found(entry)));
        }
        body.extend(not_shown(&list.not_shown, "not searched", |_| Vec::new()));
        Ok(Rendered {
            body,
            end: cut(list.truncated, list.entries.len(), list.total_entries, "search a folder below it"),
        })
    })
}

/// How matches are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchesMode {
    /// `path:line:text`, with or without the number.
    Lines {
        /// Whether lines have their numbers.
        numbered: bool,
    },
    /// The path of each file.
    Files,
    /// `path:count`.
    Counts,
    /// Below the path of each file, `L12: text`.
    Grouped,
}

/// How matches are shown, and how many.
pub(super) struct MatchesForm {
    /// How a path is written.
    pub(super) show: fn(&str) -> String,
    /// How matches are shown.
    pub(super) mode: MatchesMode,
    /// The most lines, files or counts.
    pub(super) limit: usize,
    /// How the form goes on after them, if it can.
    pub(super) paging: Option<MatchPaging>,
    /// The most matches of one file.
    pub(super) per_file: usize,
    /// What is said if there are none.
    pub(super) none: String,
}

/// Answers by parts.
pub(super) struct MatchPaging {
    /// The lines, files or counts before the part.
    pub(super) offset: usize,
    /// Whether the search has skipped them, and goes on wherever it was stopped. It counts matches, which are neither lines of context nor
    /// counts.
    pub(super) is_searched: bool,
    /// How the reader asks for those after so many.
    pub(super) next: fn(usize) -> String,
}

/// Lines that match.
pub(super) fn matches(form: MatchesForm) -> RenderAnswer {
    Box::new(move |answer| {
        let search: SearchTextOutput = serde_json::from_str(answer)?;
        let mut lines = Vec::new();
        for file in search.matches.chunk_by(|a, b| a.path == b.path) {
            push_matches(&mut lines, &form, file);
        }
        let offset = form.paging.as_ref().map_or(0, |paging| paging.offset);
        let is_searched = form.paging.as_ref().is_some_and(|paging| paging.is_searched);
        let skip = if is_searched { 0 } else { offset };
        let shown = lines.len().saturating_sub(skip).min(form.limit);
        let rest = lines.len().saturating_sub(skip.saturating_add(form.limit));
        let mut body = String::new();
        for line in lines.iter().skip(skip).take(form.limit) {
            body.push_line(line);
        }
        let before = if is_searched { search.matches_skipped } else { lines.len() as u64 };
        match (&form.paging, before) {
            _ if shown > 0 => {}
            (Some(MatchPaging { next, .. }), 1..) => {
                let (before, offset) = (counted(before, "line", "lines"), next(offset));
                let all = if search.truncated_reason.is_none() { " in all" } else { "" };
                body.push_line(format_args!("[{before}{all}, none after {offset}]"));
            }
            _ => {
                body.push_line(quote::one_line(&form.none));
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
        let next = form.paging.as_ref().filter(|_| shown > 0).map(|paging| (paging.next)(offset + shown));
        let is_timed_out = search.truncated_reason.as_deref() == Some("maxTime");
        let end = match (&search.truncated_reason, rest, next) {
            (Some(_), _, Some(next)) if rest > 0 || (is_searched && !is_timed_out) => {
                format!("[more follow; continue with {next}]\n")
            }
            (Some(_), _, _) => {
                let shown = counted(search.matches.len() as u64, "match", "matches");
                let counts = if form.mode == MatchesMode::Counts { ", so that the last count is too low" } else { "" };
                format!("[stopped after {shown}{counts}; search a folder below it, or for less]\n")
            }
            (None, 0, _) => String::new(),
            (None, rest, next) => {
                let more = counted(rest as u64, "line", "lines");
                let next = next.map(|next| format!("; continue with {next}")).unwrap_or_default();
                format!("[{more} more{next}]\n")
            }
        };
        Ok(Rendered { body, end })
    })
}

fn push_matches(lines: &mut Vec<String>, form: &MatchesForm, file: &[workspace::Match]) {
    let Some(first) = file.first() else { return };
    let path = (form.show)(&first.path);
    let path = quote::path(&path);
    // A caller without `file:read` is given paths only.
    let mode = if first.line == 0 { MatchesMode::Files } else { form.mode };
    let file = &file[..file.len().min(form.per_file)];
    match mode {
        MatchesMode::Files => lines.push(path.into_owned()),
        MatchesMode::Counts => lines.push(format!("{path}:{}", file.len())),
        MatchesMode::Lines { numbered } => {
            for (number, (is_match, text)) in lines_of(file) {
                let mark = if is_match { ':' } else { '-' };
                let number = if numbered { format!("{number}{mark}") } else { String::new() };
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

/// Several files, each below its path.
pub(super) fn many_files(show: fn(&str) -> String) -> RenderAnswer {
    Box::new(move |answer| {
        let read: ReadFilesOutput = serde_json::from_str(answer)?;
        let (mut body, mut end) = (String::new(), String::new());
        for (path, file) in &read.files {
            let path = show(path);
            let path = quote::path(&path);
            let Some(content) = &file.content else {
                end.push_line(format_args!("[not read: {path}: {}]", file.status));
                continue;
            };
            body.push_line(format_args!("--- {path} ---\n"));
            body.push_line(content.strip_suffix('\n').unwrap_or(content));
            if let Some(next) = file.next_start_line {
                body.push_line(format_args!("[cut; read_file with start_line={next} continues]"));
            }
            body.push('\n');
        }
        body.push_line("--- End of content ---");
        for path in &read.remaining {
            end.push_line(format_args!("[not read, too much together: {}]", quote::path(&show(path))));
        }
        Ok(Rendered { body, end })
    })
}

/// The answer of a tool that changes files.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeAnswer<'a> {
    /// Whether a file was created.
    #[serde(default)]
    pub(super) created: bool,
    /// The number of texts that were replaced.
    #[serde(default)]
    pub(super) replacements: u64,
    #[serde(default)]
    insertions: u64,
    #[serde(default)]
    deletions: u64,
    /// The files of a patch, or of a folder.
    #[serde(borrow, default)]
    pub(super) files: Vec<ChangedInPatch<'a>>,
}

/// A file of a patch.
#[derive(Deserialize)]
pub(super) struct ChangedInPatch<'a> {
    /// Its path.
    #[serde(borrow)]
    pub(super) path: Cow<'a, str>,
    /// What was done, in a patch.
    #[serde(borrow, default)]
    pub(super) operation: Cow<'a, str>,
}

impl ChangeAnswer<'_> {
    /// The lines that were added and removed.
    pub(super) fn counts(&self) -> String {
        format!("(+{} -{})", self.insertions, self.deletions)
    }
}

/// A change.
pub(super) fn change(say: impl Fn(&ChangeAnswer<'_>) -> String + Send + Sync + 'static) -> RenderAnswer {
    Box::new(move |answer| {
        let change: ChangeAnswer<'_> = serde_json::from_str(answer)?;
        Ok(format!("{}\n", say(&change)).into())
    })
}

/// The files of a patch, one a line after the letter of what was done.
pub(super) fn patched(change: &ChangeAnswer<'_>) -> String {
    let mut out = String::from("Success. Updated the following files:");
    for file in &change.files {
        let letter = match file.operation.as_ref() {
            "created" | "copied" => 'A',
            "deleted" => 'D',
            _ => 'M',
        };
        let _infallible = write!(out, "\n{letter} {}", quote::path(&file.path));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{fits, size};

    #[test]
    fn names_fit_globs() {
        for (glob, name) in
            [("*.rs", "a.rs"), ("*", ""), ("a*c*e", "abcde"), ("?", "x"), ("node_modules", "node_modules")]
        {
            assert!(fits(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("*.rs", "a.rsx"), ("?", ""), ("a*c", "abcd"), ("", "a")] {
            assert!(!fits(glob, name), "{glob} {name}");
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, want) in [(0, "0B"), (1023, "1023B"), (1024, "1K"), (1536, "1.5K"), (5 << 20, "5M")] {
            assert_eq!(size(bytes), want);
        }
    }
}
