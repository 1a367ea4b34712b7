//! Lines of files: `read_file` and `read_files`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{Encoding, LineEnding, PageFormat};
use serde::Deserialize;

use super::lines::PushLine as _;
use super::notes::counted;
use super::{Rendered, quote};

/// The least width of a number in the content of an answer.
const LABEL_DIGITS: usize = 6;
/// What follows the number there.
const LABEL_END: usize = " | ".len();

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownPage<'a> {
    start_line: u64,
    end_line: u64,
    total_lines: u64,
    truncated: bool,
    next_start_line: Option<u64>,
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default)]
    lines_cut: u64,
    cut_line: Option<u64>,
    next_column: Option<u64>,
    #[serde(default)]
    format: PageFormat,
    encoding: Option<Encoding>,
    #[serde(default)]
    encoding_guessed: bool,
    line_ending: Option<LineEnding>,
    git_lfs_bytes: Option<u64>,
}

/// How the bytes of a file are written.
struct ShownForm {
    encoding: Option<Encoding>,
    is_guessed: bool,
    line_ending: Option<LineEnding>,
    git_lfs_bytes: Option<u64>,
}

impl ShownForm {
    /// The line that names what differs from UTF-8 with LF; empty for most files.
    fn note(&self) -> String {
        let mut notes = Vec::new();
        if let Some(bytes) = self.git_lfs_bytes {
            notes.push(format!("[Git LFS pointer: the content of {} is in Git LFS]", counted(bytes, "byte", "bytes")));
        }
        match self.encoding {
            None | Some(Encoding::Utf8) => {}
            Some(encoding) if self.is_guessed => notes.push(format!("[{}, guessed]", encoding.name())),
            Some(encoding) => notes.push(format!("[{}]", encoding.name())),
        }
        match self.line_ending {
            Some(LineEnding::Crlf) => notes.push("[CRLF]".to_owned()),
            Some(LineEnding::Mixed) => notes.push("[LF and CRLF]".to_owned()),
            Some(LineEnding::Lf | LineEnding::None) | None => {}
        }
        if notes.is_empty() { String::new() } else { notes.join(" ") + "\n" }
    }
}

/// How a page of lines is shown.
pub(crate) struct PageForm {
    /// Writes the number before a line.
    pub(crate) label: fn(&mut String, u64),
    /// The arguments that read on from a line.
    pub(crate) next: fn(u64) -> String,
    /// Whether the reader can continue a line that is cut.
    pub(crate) has_columns: bool,
}

/// Renders an answer of `read_file`: each line with its number and two spaces, without its ending.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn read_file(answer: &str) -> serde_json::Result<Rendered> {
    let label = |out: &mut String, number: u64| {
        out.push_str(&number.to_string());
        out.push_str("  ");
    };
    page_of_lines(answer, &PageForm { label, next: |line| format!("startLine={line}"), has_columns: true })
}

/// Renders an answer of `read_file` in another form. Lines are numbered unless the answer has them raw.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn page_of_lines(answer: &str, form: &PageForm) -> serde_json::Result<Rendered> {
    let page: ShownPage<'_> = serde_json::from_str(answer)?;
    if page.total_lines == 0 {
        return Ok("[empty file]\n".to_owned().into());
    }
    if page.start_line > page.total_lines {
        let lines = counted(page.total_lines, "line", "lines");
        return Ok(format!("[line {} is after the end: the file has {lines}]\n", page.start_line).into());
    }
    let mut out = String::with_capacity(page.content.len() + 128);
    match page.format {
        PageFormat::Numbered => {
            for (number, line) in (page.start_line..).zip(page.content.split_terminator('\n')) {
                let label = digits(number).max(LABEL_DIGITS) + LABEL_END;
                (form.label)(&mut out, number);
                out.push_str(line.get(label..).unwrap_or_default());
                out.push('\n');
            }
        }
        PageFormat::Raw => {
            out.push_str(&page.content);
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
    }
    if page.lines_cut > 0 {
        let lines = counted(page.lines_cut, "long line is", "long lines are");
        let first = if page.lines_cut > 1 { "the first continues" } else { "continue" };
        let way = rest_of_line(page.cut_line, page.next_column).filter(|_| form.has_columns);
        let way = way.map(|way| format!("; {first} with {way}"));
        out.push_line(format_args!("[{lines} cut{}]", way.unwrap_or_default()));
    }
    let end = form_of_page(&page).note() + &stopped(&page, form);
    Ok(Rendered { body: out, end })
}

/// Renders an answer of `read_file` with raw lines, each with its number. What follows the last line ending is a line too, if it is among
/// the `lines` that were asked for.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn page_of_raw(answer: &str, form: &PageForm, lines: u64) -> serde_json::Result<Rendered> {
    let page: ShownPage<'_> = serde_json::from_str(answer)?;
    if page.total_lines == 0 || page.start_line > page.total_lines {
        return page_of_lines(answer, form);
    }
    let mut out = String::with_capacity(page.content.len() + 128);
    let is_end = page.next_start_line.is_none() && page.end_line - page.start_line + 1 < lines;
    let content = if is_end { &page.content } else { page.content.strip_suffix('\n').unwrap_or(&page.content) };
    for (number, line) in (page.start_line..).zip(content.split('\n')) {
        (form.label)(&mut out, number);
        out.push_line(line.strip_suffix('\r').unwrap_or(line));
    }
    let end = form_of_page(&page).note() + &stopped(&page, form);
    Ok(Rendered { body: out, end })
}

fn form_of_page(page: &ShownPage<'_>) -> ShownForm {
    let ShownPage { encoding, encoding_guessed: is_guessed, line_ending, git_lfs_bytes, .. } = *page;
    ShownForm { encoding, is_guessed, line_ending, git_lfs_bytes }
}

fn form_of_file(file: &ShownFile<'_>) -> ShownForm {
    let ShownFile { encoding, encoding_guessed: is_guessed, line_ending, git_lfs_bytes, .. } = *file;
    ShownForm { encoding, is_guessed, line_ending, git_lfs_bytes }
}

/// The last line, where more follows.
fn stopped(page: &ShownPage<'_>, form: &PageForm) -> String {
    let ShownPage { start_line, end_line, total_lines, .. } = page;
    let is_line_cut = page.format == PageFormat::Raw && page.truncated && !page.content.ends_with('\n');
    let way = rest_of_line(page.cut_line, page.next_column).filter(|_| form.has_columns);
    let way = way.map(|way| format!("; continue with {way}")).unwrap_or_default();
    let rest = if is_line_cut { format!("[the rest of line {end_line} is omitted{way}]\n") } else { String::new() };
    match page.next_start_line {
        Some(next) => {
            let next = (form.next)(next);
            format!("{rest}[lines {start_line}-{end_line} of {total_lines}; continue with {next}]\n")
        }
        None => rest,
    }
}

/// The members of the input that read a line on.
fn rest_of_line(line: Option<u64>, column: Option<u64>) -> Option<String> {
    Some(format!("startLine={} column={}", line?, column?))
}

fn push_numbered(out: &mut String, number: u64, line: &str) {
    out.push_str(&number.to_string());
    out.push_str("  ");
    out.push_str(line);
    out.push('\n');
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownFiles<'a> {
    #[serde(borrow)]
    files: BTreeMap<Cow<'a, str>, ShownFile<'a>>,
    #[serde(borrow, default)]
    remaining: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    truncated_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownFile<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    total_lines: Option<u64>,
    next_start_line: Option<u64>,
    cut_line: Option<u64>,
    next_column: Option<u64>,
    #[serde(default)]
    truncated: bool,
    encoding: Option<Encoding>,
    #[serde(default)]
    encoding_guessed: bool,
    line_ending: Option<LineEnding>,
    git_lfs_bytes: Option<u64>,
}

/// Renders an answer of `read_files`: each path, then its lines as `read_file` shows them. An empty line between files.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn read_files(answer: &str) -> serde_json::Result<Rendered> {
    let ShownFiles { files, remaining, truncated_reason } = serde_json::from_str(answer)?;
    let mut out = String::with_capacity(answer.len());
    for (path, file) in &files {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&quote::path(path));
        if let Some(content) = &file.content {
            push_file(&mut out, file, content);
        } else {
            let message = file.message.as_deref().unwrap_or_default();
            out.push_line(format_args!(": {}: {}", file.status, quote::one_line(message)));
        }
    }
    let mut end = String::new();
    if !remaining.is_empty() {
        let paths: Vec<_> = remaining.iter().map(|path| quote::path(path)).collect();
        let limit = if truncated_reason.as_deref() == Some("maxChars") { "maxChars" } else { "64 KiB" };
        end.push_line(format_args!("\n[stopped at {limit}; not read: {}]", paths.join(", ")));
    }
    Ok(Rendered { body: out, end })
}

fn push_file(out: &mut String, file: &ShownFile<'_>, content: &str) {
    out.push('\n');
    if content.is_empty() {
        out.push_str("[empty file]\n");
    }
    let mut last = 0;
    for (number, line) in (1..).zip(content.split_inclusive('\n')) {
        let text = line.strip_suffix('\n').map_or(line, |text| text.strip_suffix('\r').unwrap_or(text));
        push_numbered(out, number, text);
        last = number;
    }
    out.push_str(&form_of_file(file).note());
    if file.truncated && !content.ends_with('\n') {
        let way =
            rest_of_line(file.cut_line, file.next_column).map(|way| format!("; continue with read_file and {way}"));
        out.push_line(format_args!("[the rest of line {last} is omitted{}]", way.unwrap_or_default()));
    }
    if let (Some(next), Some(total)) = (file.next_start_line, file.total_lines) {
        out.push_line(format_args!("[lines 1-{last} of {total}; continue with read_file and startLine={next}]"));
    }
}
