//! Pages: ranges of lines that one call returns. Reading a page is the most frequent operation of the service.

use serde::{Deserialize, Serialize};

use super::encoding::{Encoding, view};
use super::line_ending::LineEnding;

/// Characters of a numbered line that are shown.
pub const MAX_LINE_CHARS: usize = 2000;
/// The initial capacity of a page, which is enough for most pages.
const LIKELY_BYTES: usize = 12 * 1024;

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
pub struct Page {
    /// Number of the first line shown, from 1.
    pub start_line: u64,
    /// Number of the last line shown; `start_line - 1` if the page is empty.
    pub end_line: u64,
    /// The number of lines in the whole text, including a last line without an ending.
    pub total_lines: u64,
    /// The lines in the requested format.
    pub content: String,
    /// Whether more lines follow, or a line longer than the page was cut.
    pub truncated: bool,
    /// The line at which the next page starts, if lines follow.
    pub next_start_line: Option<u64>,
    /// The number of lines that were cut because of their length.
    pub lines_cut: u64,
    /// The text's encoding.
    pub encoding: Encoding,
    /// The text's line ending.
    pub line_ending: LineEnding,
}

/// Returns lines of a text from `start_line` on: at most `max_lines` lines (at least one) and `max_bytes` bytes of content.
///
/// `bytes` is the whole file; the result is `None` if it is not text. Numbered lines end in `\n` for any line ending and are
/// cut at 2,000 characters. Raw lines are unchanged, in UTF-8 and without a byte order mark. A page ends with a
/// whole line. Only a single raw line of more than `max_bytes` is cut, between two characters: then the page is
/// `truncated`, counts it in `lines_cut`, and the next page starts at the line after it. A caller that continues at `next_start_line`
/// until it is `None` reaches the end.
pub fn page(bytes: &[u8], format: PageFormat, start_line: u64, max_lines: u64, max_bytes: usize) -> Option<Page> {
    page_within(bytes, format, start_line, max_lines, PageSize { max_bytes, max_chars: None })
}

/// The maximum size of a page's content.
#[derive(Clone, Copy, Debug)]
pub struct PageSize {
    /// In bytes.
    pub max_bytes: usize,
    /// In characters, where the caller has asked for less than the bytes allow.
    pub max_chars: Option<usize>,
}

/// Does what [`page`] does, with a maximum in characters too. A first line of more characters is cut.
pub fn page_within(bytes: &[u8], format: PageFormat, start_line: u64, max_lines: u64, size: PageSize) -> Option<Page> {
    let (text, encoding) = view(bytes)?;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let total_lines = ends as u64 + u64::from(!text.is_empty() && !text.ends_with('\n'));
    let start_line = start_line.max(1);
    let mut writer = Writer { content: String::new(), size, lines_cut: 0, rest_cut: false };
    let mut end_line = start_line - 1;
    if start_line <= total_lines {
        let last = start_line.saturating_add(max_lines.max(1) - 1).min(total_lines);
        let lines = &text[offset_of(&text, start_line)..];
        end_line = match format {
            PageFormat::Numbered => writer.numbered(lines, start_line, last),
            PageFormat::Raw => writer.raw(lines, start_line, last),
        };
    }
    let follows = start_line <= total_lines && end_line < total_lines;
    Some(Page {
        start_line,
        end_line,
        total_lines,
        content: writer.content,
        truncated: follows || writer.rest_cut,
        next_start_line: follows.then(|| end_line + 1),
        lines_cut: writer.lines_cut,
        encoding,
        line_ending: LineEnding::with_lines(text.as_bytes(), ends),
    })
}

/// The offset of an existing line of `text`.
fn offset_of(text: &str, line: u64) -> usize {
    let Some(ends_before) = usize::try_from(line).ok().and_then(|line| line.checked_sub(2)) else { return 0 };
    memchr::memchr_iter(b'\n', text.as_bytes()).nth(ends_before).map_or(text.len(), |end| end + 1)
}

/// Builds the content of a page.
struct Writer {
    content: String,
    size: PageSize,
    lines_cut: u64,
    /// Whether the last line was cut, so that no page contains the rest of it.
    rest_cut: bool,
}

impl Writer {
    /// Writes the lines `first` to `last` with their numbers. Returns the last line written.
    fn numbered(&mut self, lines: &str, first: u64, last: u64) -> u64 {
        // Bytes are cheaper to append than text. Lines are cut between characters, so the check at the end succeeds.
        let mut out = Vec::with_capacity(LIKELY_BYTES.min(lines.len() * 2 + 16));
        let mut ends = memchr::memchr_iter(b'\n', lines.as_bytes());
        let mut number = Number::of(first);
        let (mut start, mut line) = (0, first);
        let max_line_chars = self.size.max_chars.map_or(MAX_LINE_CHARS, |most| most.min(MAX_LINE_CHARS));
        let mut chars = 0;
        while line <= last {
            let (text, next) = match ends.next() {
                Some(end) => (&lines[start..end], end + 1),
                None => (&lines[start..], lines.len()),
            };
            let ended = &lines.as_bytes()[start + text.len()..next];
            let text = if ended.is_empty() { text } else { text.strip_suffix('\r').unwrap_or(text) };
            let shown = first_chars(text, max_line_chars);
            let label = number.label();
            if line > first && out.len() + label.len() + shown.len() + ended.len() > self.size.max_bytes {
                break;
            }
            if let Some(most) = self.size.max_chars {
                chars += label.len() + shown.chars().count() + 1;
                if line > first && chars > most {
                    break;
                }
            }
            out.extend_from_slice(label);
            out.extend_from_slice(shown.as_bytes());
            out.extend_from_slice(ended);
            self.lines_cut += u64::from(shown.len() < text.len());
            number.step();
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
            at += 1;
        }
        self.content.push_str(&lines[..taken]);
        at - 1
    }
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
