//! Lines of files: `read_file` and `read_files`.

use std::borrow::Cow;

use model::{Encoding, LineEnding, PageFormat, Sha256};

use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::counted;
use crate::tool::text::{Rendered, quote};
use crate::tools::read_file::ReadFileOutput;
use crate::tools::read_files::{OneFile, ReadFilesOutput};

/// Returns the line that says how the bytes of a file differ from UTF-8 with LF; empty for most files.
fn form_note(
    encoding: Option<Encoding>,
    is_guessed: bool,
    line_ending: Option<LineEnding>,
    git_lfs_bytes: Option<u64>,
) -> String {
    let mut notes = Vec::new();
    if let Some(bytes) = git_lfs_bytes {
        notes.push(format!("[Git LFS pointer: the content of {} is in Git LFS]", counted(bytes, "byte", "bytes")));
    }
    match encoding {
        None | Some(Encoding::Utf8) => {}
        Some(encoding) if is_guessed => notes.push(format!("[{}, guessed]", encoding.name())),
        Some(encoding) => notes.push(format!("[{}]", encoding.name())),
    }
    match line_ending {
        Some(LineEnding::Crlf) => notes.push("[CRLF]".to_owned()),
        Some(LineEnding::Mixed) => notes.push("[LF and CRLF]".to_owned()),
        Some(LineEnding::Lf | LineEnding::None) | None => {}
    }
    if notes.is_empty() { String::new() } else { notes.join(" ") + "\n" }
}

/// How a page of lines is shown.
pub struct PageForm<'a> {
    /// Writes the number before a line.
    pub label: fn(&mut String, u64),
    /// The arguments that read on from a line.
    pub next: &'a dyn Fn(u64) -> String,
    /// Whether the reader can continue a line that is cut.
    pub has_columns: bool,
}

/// Renders an answer of `read_file`, given as JSON text, in another form. Lines are numbered unless the answer has them raw.
///
/// # Errors
///
/// If it is not one.
pub fn page_of_lines(answer: &str, form: &PageForm<'_>) -> serde_json::Result<Rendered> {
    let mut page: ReadFileOutput = serde_json::from_str(answer)?;
    if page.format.is_none() {
        let text = |line: &str| line.split_once(" | ").map(|(_, text)| text.to_owned()).unwrap_or_default();
        page.content = page.content.split_inclusive('\n').map(text).collect();
    }
    Ok(page.lines_in(form))
}

/// Writes the number of a line, and two spaces.
fn plain_label(out: &mut String, number: u64) {
    out.push_str(&number.to_string());
    out.push_str("  ");
}

impl ToolOutput for ReadFileOutput {
    /// Renders each line with its number and two spaces, without its ending.
    fn to_text(&self) -> Rendered {
        let form = PageForm { label: plain_label, next: &|line| format!("startLine={line}"), has_columns: true };
        self.lines_in(&form)
    }

    fn long_text(&self) -> Option<(&'static str, Cow<'_, str>)> {
        let content = match self.format {
            Some(PageFormat::Raw) => Cow::Borrowed(self.content.as_str()),
            Some(PageFormat::Numbered) | None => {
                Cow::Owned(model::number_lines(&self.content, self.start_line, self.end_line))
            }
        };
        Some(("content", content))
    }

    fn sha256(&self) -> Option<Sha256> {
        self.sha256
    }
}

impl ReadFileOutput {
    /// Renders the page in a form. Lines are numbered unless they are raw.
    fn lines_in(&self, form: &PageForm<'_>) -> Rendered {
        if self.total_lines == 0 {
            return "[empty file]\n".to_owned().into();
        }
        if self.start_line > self.total_lines {
            let lines = counted(self.total_lines, "line", "lines");
            return format!("[line {} is after the end: the file has {lines}]\n", self.start_line).into();
        }
        let mut out = String::with_capacity(self.content.len() * 5 / 4 + 128);
        if self.format == Some(PageFormat::Raw) {
            out.push_str(&self.content);
            if !out.ends_with('\n') {
                out.push('\n');
            }
        } else {
            for (number, line) in (self.start_line..=self.end_line).zip(self.content.split('\n')) {
                (form.label)(&mut out, number);
                out.push_str(line);
                out.push('\n');
            }
        }
        if self.lines_cut > 0 {
            let lines = counted(self.lines_cut, "long line is", "long lines are");
            let first = if self.lines_cut > 1 { "the first continues" } else { "continue" };
            let way = rest_of_line(self.cut_line, self.next_column).filter(|_| form.has_columns);
            let way = way.map(|way| format!("; {first} with {way}"));
            out.push_line(format_args!("[{lines} cut{}]", way.unwrap_or_default()));
        }
        Rendered { body: out, end: self.end_in(form) }
    }

    /// The last lines: how the file is written, and how to continue where more follows.
    fn end_in(&self, form: &PageForm<'_>) -> String {
        let Self { start_line, end_line, total_lines, .. } = self;
        let mut end = form_note(Some(self.encoding), self.encoding_guessed, Some(self.line_ending), self.git_lfs_bytes);
        if self.format == Some(PageFormat::Raw) && self.truncated && !self.content.ends_with('\n') {
            let way = rest_of_line(self.cut_line, self.next_column).filter(|_| form.has_columns);
            let way = way.map(|way| format!("; continue with {way}")).unwrap_or_default();
            end.push_line(format_args!("[the rest of line {end_line} is omitted{way}]"));
        }
        if let Some(next) = self.next_start_line {
            let next = (form.next)(next);
            end.push_line(format_args!("[lines {start_line}-{end_line} of {total_lines}; continue with {next}]"));
        }
        end
    }
}

/// The members of the input that read a line on.
fn rest_of_line(line: Option<u64>, column: Option<u64>) -> Option<String> {
    Some(format!("startLine={} column={}", line?, column?))
}

impl ToolOutput for ReadFilesOutput {
    /// Renders each path, then its lines as `read_file` shows them. An empty line between files.
    fn to_text(&self) -> Rendered {
        let mut out = String::new();
        for (path, file) in &self.files {
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
        if !self.remaining.is_empty() {
            let paths: Vec<_> = self.remaining.iter().map(|path| quote::path(path)).collect();
            let limit = if self.truncated_reason.as_deref() == Some("maxChars") { "maxChars" } else { "64 KiB" };
            end.push_line(format_args!("\n[stopped at {limit}; not read: {}]", paths.join(", ")));
        }
        Rendered { body: out, end }
    }
}

fn push_file(out: &mut String, file: &OneFile, content: &str) {
    out.push('\n');
    if content.is_empty() {
        out.push_str("[empty file]\n");
    }
    let mut last = 0;
    for (number, line) in (1..).zip(content.split_inclusive('\n')) {
        plain_label(out, number);
        out.push_str(line.strip_suffix('\n').map_or(line, |text| text.strip_suffix('\r').unwrap_or(text)));
        out.push('\n');
        last = number;
    }
    out.push_str(&form_note(file.encoding, file.encoding_guessed, file.line_ending, file.git_lfs_bytes));
    if file.truncated && !content.ends_with('\n') {
        let way =
            rest_of_line(file.cut_line, file.next_column).map(|way| format!("; continue with read_file and {way}"));
        out.push_line(format_args!("[the rest of line {last} is omitted{}]", way.unwrap_or_default()));
    }
    if let (Some(next), Some(total)) = (file.next_start_line, file.total_lines) {
        out.push_line(format_args!("[lines 1-{last} of {total}; continue with read_file and startLine={next}]"));
    }
}
