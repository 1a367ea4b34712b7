//! Pages: ranges of lines that one call returns. Reading a page is the most frequent operation of the service.

use serde::{Deserialize, Serialize};

use super::encoding::{Encoding, view};
use super::line_ending::LineEnding;

/// Characters of a numbered line that are shown.
pub const MAX_LINE_CHARS: usize = 2000;
/// The length of the label of most lines.
const LABEL_BYTES: usize = 9;

/// How the lines of a page are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageFormat {
    /// `%6d | line`, with long lines cut.
    #[default]
    Numbered,
    /// Unchanged lines.
    Raw,
}

/// Some lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPage {
    /// Number of the first line shown, from 1.
    pub start_line: u64,
    /// Number of the last line shown; `start_line - 1` if the page is empty.
    pub end_line: u64,
    /// The number of lines in the whole text, including a last line without an ending.
    pub total_lines: u64,
    /// The lines in the requested format, without their numbers.
    pub content: String,
    /// Whether more lines follow, or a line longer than the page was cut.
    pub truncated: bool,
    /// The line at which the next page starts, if lines follow.
    pub next_start_line: Option<u64>,
    /// The number of lines that were cut because of their length.
    pub lines_cut: u64,
    /// The first of them, and where its rest begins.
    pub cut: Option<PageStart>,
    /// The text's encoding.
    pub encoding: Encoding,
    /// The text's line ending.
    pub line_ending: LineEnding,
}

/// Returns the lines `first` to `last` of a page with their numbers, as [`PageFormat::Numbered`] has them.
pub fn number_lines(content: &str, first: u64, last: u64) -> String {
    let count = usize::try_from(last.saturating_sub(first)).unwrap_or(usize::MAX).saturating_add(1);
    // Bytes are cheaper to append than text. What is appended is text, so the check at the end succeeds.
    let mut out = Vec::with_capacity(content.len().saturating_add(count.saturating_mul(LABEL_BYTES)));
    let mut number = Number::of(first);
    // The rest of a line without an ending may be empty.
    for (_, line) in (first..=last).zip(content.split_inclusive('\n').chain([""])) {
        out.extend_from_slice(number.label());
        out.extend_from_slice(line.as_bytes());
        number.step();
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Returns lines of a text from `start_line` on: at most `max_lines` lines (at least one) and `max_bytes` bytes of content.
///
/// `bytes` is the whole file; the result is `None` if it is not text. Numbered lines, of which the numbers count too, end in `\n` for any
/// line ending and are cut at 2,000 characters. Raw lines are unchanged, in UTF-8 and without a byte order mark. A page ends with a
/// whole line. Only a single raw line of more than `max_bytes` is cut, between two characters: then the page is
/// `truncated`, counts it in `lines_cut`, and the next page starts at the line after it. A caller that continues at `next_start_line`
/// until it is `None` reaches the end.
pub fn page(bytes: &[u8], format: PageFormat, start_line: u64, max_lines: u64, max_bytes: usize) -> Option<TextPage> {
    page_within(bytes, format, start_line.into(), max_lines, TextPageSize { max_bytes, max_chars: None })
}

/// Where a page starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStart {
    /// The line, from 1.
    pub line: u64,
    /// The character in this line, from 1. A numbered line is then not cut at 2,000 characters.
    pub column: Option<u64>,
}

impl From<u64> for PageStart {
    fn from(line: u64) -> Self {
        Self { line, column: None }
    }
}

/// The maximum size of a page's content.
#[derive(Clone, Copy, Debug)]
pub struct TextPageSize {
    /// In bytes.
    pub max_bytes: usize,
    /// In characters, where the caller has asked for less than the bytes allow.
    pub max_chars: Option<usize>,
}

/// Does what [`page`] does, from a column on and with a maximum in characters too. A first line of more characters is cut.
pub fn page_within(
    bytes: &[u8],
    format: PageFormat,
    start: PageStart,
    max_lines: u64,
    size: TextPageSize,
) -> Option<TextPage> {
    let (text, encoding) = view(bytes)?;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let total_lines = ends as u64 + u64::from(!text.is_empty() && !text.ends_with('\n'));
    let start_line = start.line.max(1);
    let mut writer =
        PageWriter { content: String::new(), size, column: start.column, lines_cut: 0, cut: None, rest_cut: false };
    let mut end_line = start_line - 1;
    if start_line <= total_lines {
        let last = start_line.saturating_add(max_lines.max(1) - 1).min(total_lines);
        let lines = &text[offset_of(&text, start_line)..];
        let lines = &lines[start.column.map_or(0, |column| offset_in_line(lines, column))..];
        end_line = match format {
            PageFormat::Numbered => writer.numbered(lines, start_line, last),
            PageFormat::Raw => writer.raw(lines, start_line, last),
        };
    }
    let follows = start_line <= total_lines && end_line < total_lines;
    Some(TextPage {
        start_line,
        end_line,
        total_lines,
        content: writer.content,
        truncated: follows || writer.rest_cut,
        next_start_line: follows.then(|| end_line + 1),
        lines_cut: writer.lines_cut,
        cut: writer.cut,
        encoding,
        line_ending: LineEnding::with_lines(text.as_bytes(), ends),
    })
}

/// The offset of an existing line of `text`.
fn offset_of(text: &str, line: u64) -> usize {
    let Some(ends_before) = usize::try_from(line).ok().and_then(|line| line.checked_sub(2)) else { return 0 };
    memchr::memchr_iter(b'\n', text.as_bytes()).nth(ends_before).map_or(text.len(), |end| end + 1)
}

/// The offset of a character in the first line of `lines`; the end of the line's text if it has fewer.
fn offset_in_line(lines: &str, column: u64) -> usize {
    let line = &lines[..line_end(lines, 0)];
    let text = line.strip_suffix('\n').map_or(line, |text| text.strip_suffix('\r').unwrap_or(text));
    let skipped = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at)
}

/// Builds the content of a page.
struct PageWriter {
    content: String,
    size: TextPageSize,
    /// The column of the first line at which the page starts, if one is requested.
    column: Option<u64>,
    lines_cut: u64,
    cut: Option<PageStart>,
    /// Whether the last line was cut, so that no page contains the rest of it.
    rest_cut: bool,
}

impl PageWriter {
    /// Writes the lines `first` to `last`, with room for their numbers. Returns the last line written.
    fn numbered(&mut self, lines: &str, first: u64, last: u64) -> u64 {
        // Bytes are cheaper to append than text. Lines are cut between characters, so the check at the end succeeds.
        let mut out = Vec::with_capacity(lines.len().min(self.size.max_bytes));
        let mut ends = memchr::memchr_iter(b'\n', lines.as_bytes());
        let (mut start, mut line, mut labels) = (0, first, 0);
        let max_line_chars = self.size.max_chars.map_or(MAX_LINE_CHARS, |most| most.min(MAX_LINE_CHARS));
        let mut chars = 0;
        while line <= last {
            let (text, next) = match ends.next() {
                Some(end) => (&lines[start..end], end + 1),
                None => (&lines[start..], lines.len()),
            };
            let ended = &lines.as_bytes()[start + text.len()..next];
            let text = if ended.is_empty() { text } else { text.strip_suffix('\r').unwrap_or(text) };
            let label = label_bytes(line);
            let shown = if line == first && self.column.is_some() {
                // A caller that reads a long line on wants as much of it as a page holds.
                let fits = text.floor_char_boundary(self.size.max_bytes.saturating_sub(label));
                first_chars(&text[..fits], self.size.max_chars.unwrap_or(usize::MAX))
            } else {
                first_chars(text, max_line_chars)
            };
            labels += label;
            if line > first && labels + out.len() + shown.len() + ended.len() > self.size.max_bytes {
                break;
            }
            if let Some(most) = self.size.max_chars {
                chars += label + shown.chars().count() + 1;
                if line > first && chars > most {
                    break;
                }
            }
            out.extend_from_slice(shown.as_bytes());
            out.extend_from_slice(ended);
            if shown.len() < text.len() {
                self.lines_cut += 1;
                let from = if line == first { self.column.unwrap_or(1) } else { 1 };
                self.rest_cut |= line == first && self.column.is_some();
                self.cut = self.cut.or_else(|| Some(rest_of(line, from, shown)));
            }
            (start, line) = (next, line + 1);
        }
        self.content = String::from_utf8(out).unwrap_or_default();
        line - 1
    }

    /// Writes the lines `first` to `last` unchanged. Returns the last line written.
    fn raw(&mut self, lines: &str, first: u64, last: u64) -> u64 {
        let (mut taken, mut chars) = (0, 0);
        let mut at = first;
        while at <= last {
            let end = line_end(lines, taken);
            if end > self.size.max_bytes {
                break;
            }
            if let Some(most) = self.size.max_chars {
                chars += lines[taken..end].chars().count();
                if chars > most {
                    break;
                }
            }
            taken = end;
            at += 1;
        }
        if at == first {
            taken = lines.floor_char_boundary(self.size.max_bytes);
            if let Some(most) = self.size.max_chars {
                taken = first_chars(&lines[..taken], most).len();
            }
            self.rest_cut = true;
            self.lines_cut = 1;
            self.cut = Some(rest_of(first, self.column.unwrap_or(1), &lines[..taken]));
            at += 1;
        }
        self.content.push_str(&lines[..taken]);
        at - 1
    }
}

/// Where the rest of a line begins of which the page has `shown`, from the column `from` on.
fn rest_of(line: u64, from: u64, shown: &str) -> PageStart {
    PageStart { line, column: Some(from + shown.chars().count() as u64) }
}

/// The end of the line that begins at `start`, its ending included.
fn line_end(lines: &str, start: usize) -> usize {
    memchr::memchr(b'\n', &lines.as_bytes()[start..]).map_or(lines.len(), |at| start + at + 1)
}

/// The first characters of `line`, at most `most`.
fn first_chars(line: &str, most: usize) -> &str {
    if line.len() <= most {
        return line;
    }
    line.char_indices().nth(most).map_or(line, |(at, _)| &line[..at])
}

/// The length of the label of a line.
fn label_bytes(line: u64) -> usize {
    line.checked_ilog10().map_or(1, |digits| digits as usize + 1).max(LABEL_BYTES - 3) + 3
}

/// A line label `%6d | ` that is incremented in place.
struct Number {
    text: [u8; 24],
    start: usize,
}

/// The index of the last digit of a [`Number`].
const LAST_DIGIT: usize = 20;

impl Number {
    fn of(line: u64) -> Self {
        let mut text = [b' '; 24];
        text[LAST_DIGIT + 1..].copy_from_slice(b" | ");
        let digits = line.to_string();
        let start = LAST_DIGIT + 1 - digits.len();
        text[start..=LAST_DIGIT].copy_from_slice(digits.as_bytes());
        Self { text, start: start.min(LAST_DIGIT - 5) }
    }

    fn label(&self) -> &[u8] {
        &self.text[self.start..]
    }

    fn step(&mut self) {
        for at in (0..=LAST_DIGIT).rev() {
            match self.text[at] {
                b'9' => self.text[at] = b'0',
                b' ' => {
                    self.text[at] = b'1';
                    self.start = self.start.min(at);
                    return;
                }
                _ => {
                    self.text[at] += 1;
                    return;
                }
            }
        }
    }
}
