//! Pages: the lines that one call returns. This is the most frequent operation of the service.

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
    /// As they are.
    Raw,
}

/// Some lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of the first line shown, from 1.
    pub start_line: u64,
    /// Number of the last line shown; `start_line - 1` where none is.
    pub end_line: u64,
    /// Lines in the whole text: its line ends, and what follows the last of them.
    pub total_lines: u64,
    /// The lines in the requested format.
    pub content: String,
    /// Whether lines follow, or the rest of a line that is longer than a page.
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

/// Cuts lines `start_line` … of a text: at most `max_lines` lines (one at least) and `max_bytes` bytes of content.
///
/// `bytes` is the whole file; the result is `None` if it is not text. Numbered lines end in `\n` for any line ending and are
/// cut at 2,000 characters. Raw lines are unchanged, in UTF-8 and without a byte order mark. A page ends with a
/// whole line. Only a single raw line of more than `max_bytes` is cut, between two characters: then the page is
/// `truncated`, counts it in `lines_cut`, and goes on with the line after it. A caller that continues at `next_start_line`
/// until it is `None` reaches the end.
pub fn page(bytes: &[u8], format: PageFormat, start_line: u64, max_lines: u64, max_bytes: usize) -> Option<Page> {
    let (text, encoding) = view(bytes)?;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let total_lines = ends as u64 + u64::from(!text.is_empty() && !text.ends_with('\n'));
    let start_line = start_line.max(1);
    let mut writer = Writer { content: String::new(), max_bytes, lines_cut: 0, rest_cut: false };
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

/// A page's content as it grows.
struct Writer {
    content: String,
    max_bytes: usize,
    lines_cut: u64,
    /// Whether the rest of the last line is on no page.
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
        while line <= last {
            let (text, next) = match ends.next() {
                Some(end) => (&lines[start..end], end + 1),
                None => (&lines[start..], lines.len()),
            };
            let ended = &lines.as_bytes()[start + text.len()..next];
            let text = if ended.is_empty() { text } else { text.strip_suffix('\r').unwrap_or(text) };
            let shown = first_chars(text);
            let label = number.label();
            if line > first && out.len() + label.len() + shown.len() + ended.len() > self.max_bytes {
                break;
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
        let mut taken = 0;
        let mut at = first;
        while at <= last {
            let end = line_end(lines, taken);
            if end > self.max_bytes {
                break;
            }
            taken = end;
            at += 1;
        }
        if at == first {
            taken = lines.floor_char_boundary(self.max_bytes);
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

/// The part of `line` that is shown.
fn first_chars(line: &str) -> &str {
    if line.len() <= MAX_LINE_CHARS {
        return line;
    }
    line.char_indices().nth(MAX_LINE_CHARS).map_or(line, |(at, _)| &line[..at])
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
