//! Lines as answers show them: cut, and always valid text.

use std::ops::Range;
use std::str::Utf8Chunk;

use memchr::{memchr_iter, memrchr};

/// The maximum length of a line.
const MAX_CHARS: usize = 400;
/// How many characters are shown before the match if a line is cut.
const CHARS_BEFORE: usize = 120;
/// The maximum size of a character.
const MAX_CHAR_BYTES: usize = 4;
const CUT: char = '…';

/// The maximum size of the lines of a match that spans several.
const MAX_LINES_BYTES: usize = 4096;

/// Returns the lines of a text, without the `\n` at their ends. Most texts are one line: one pass of `memchr`.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr_iter(b'\n', text).chain([text.len()]).map(move |end| {
        let line = &text[start..end];
        start = end + 1;
        line
    })
}

/// Returns where the last `count` lines before `end` begin. A line begins at `end`, or it is the end of `text`.
pub(super) fn start_of_lines(text: &[u8], end: usize, count: usize) -> usize {
    let before = |end: usize| memrchr(b'\n', &text[..end.saturating_sub(1)]).map_or(0, |at| at + 1);
    (0..count).fold(end, |end, _| before(end))
}

/// Returns up to `count` lines before `at`, where a line begins.
pub(super) fn lines_before(text: &[u8], at: usize, count: usize) -> Vec<String> {
    let lines = text[start_of_lines(text, at, count)..at].strip_suffix(b"\n");
    lines.map(|lines| split_lines(lines).map(without_ending).map(head).collect()).unwrap_or_default()
}

/// Returns up to `count` lines from `at` on, where a line begins.
pub(super) fn lines_after(text: &[u8], at: usize, count: usize) -> Vec<String> {
    let rest = &text[at..];
    if rest.is_empty() {
        return Vec::new();
    }
    let rest = rest.strip_suffix(b"\n").unwrap_or(rest);
    split_lines(rest).take(count).map(without_ending).map(head).collect()
}

/// Returns the first of several lines, without its ending.
pub(super) fn first_line(lines: &[u8]) -> &[u8] {
    without_ending(split_lines(lines).next().unwrap_or_default())
}

/// Returns the lines of a match as text: each cut if it is long, the first around the match.
pub(super) fn of_match(lines: &[u8], found: &Range<usize>) -> String {
    let first = first_line(lines);
    let mut shown = around(first, &(found.start.min(first.len())..found.end.min(first.len())));
    for line in split_lines(lines).skip(1) {
        let line = head(without_ending(line));
        shown.push('\n');
        if shown.len() + line.len() > MAX_LINES_BYTES {
            shown.push(CUT);
            break;
        }
        shown.push_str(&line);
    }
    shown
}

pub(super) fn without_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns the character, from 1, at byte `at` of `line`. Bytes that are not UTF-8 count as one each.
pub(super) fn column(line: &[u8], at: usize) -> u64 {
    let before = &line[..at.min(line.len())];
    let count = |chunk: Utf8Chunk<'_>| chunk.valid().chars().count() + chunk.invalid().len();
    // Nearly every line is UTF-8 as a whole, which is checked in fewer steps than its chunks are searched in.
    let counted =
        str::from_utf8(before).map_or_else(|_| before.utf8_chunks().map(count).sum(), |text| text.chars().count());
    counted as u64 + 1
}

/// Returns `line` as text, cut around the match if it is long.
fn around(line: &[u8], found: &Range<usize>) -> String {
    // Most lines are short. Of a long one only the part around the match is decoded.
    if line.len() <= MAX_CHARS {
        let text = str::from_utf8(line).map(str::to_owned);
        return text.unwrap_or_else(|_| String::from_utf8_lossy(line).into_owned());
    }
    let reach_back = found.start.saturating_sub(CHARS_BEFORE * MAX_CHAR_BYTES);
    let start = (reach_back..=found.start).find(|at| is_boundary(line, *at)).unwrap_or(found.start);
    let before = String::from_utf8_lossy(&line[start..found.start]);
    let skip = before.chars().count().saturating_sub(CHARS_BEFORE);
    let end = line.len().min(found.start + MAX_CHARS * MAX_CHAR_BYTES);
    let after = String::from_utf8_lossy(&line[found.start..end]);
    let mut shown = String::new();
    let mut left = MAX_CHARS;
    if start > 0 || skip > 0 {
        shown.push(CUT);
        left -= 1;
    }
    let mut chars = before.chars().skip(skip).chain(after.chars());
    while left > 1 {
        let Some(next) = chars.next() else { return shown };
        shown.push(next);
        left -= 1;
    }
    match (chars.next(), chars.next()) {
        (Some(last), None) if end == line.len() => shown.push(last),
        (None, _) if end == line.len() => {}
        _ => shown.push(CUT),
    }
    shown
}

/// Returns `line` as text, cut at its end if it is long.
fn head(line: &[u8]) -> String {
    around(line, &(0..0))
}

/// Whether a character may begin at `at`.
fn is_boundary(line: &[u8], at: usize) -> bool {
    line.get(at).is_none_or(|byte| byte & 0b1100_0000 != 0b1000_0000)
}
