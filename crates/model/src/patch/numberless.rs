//! Hunks without line numbers, located by their context, and the lines that end them.

use super::fault::{invalid, shown};
use super::file_patch::{Hunk, HunkLine};
use super::lines::Lines;
use crate::Refusal;

/// The last line of a patch that begins with `*** Begin Patch`.
pub(crate) const END: &[u8] = b"*** End Patch";
/// The lines of that format that are not lines of a hunk, as they begin.
const HEADERS: [&[u8]; 6] =
    [END, b"*** Begin Patch", b"*** Add File:", b"*** Delete File:", b"*** Update File:", END_OF_FILE];
const END_OF_FILE: &[u8] = b"*** End of File";

/// Which lines may end a hunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberlessHeaders {
    /// Those of the format `*** Begin Patch`.
    BeginPatch,
    /// Those of unified diffs as well.
    All,
}

/// Reads one line of a hunk.
pub(crate) fn parse_line(line: &[u8]) -> Option<HunkLine> {
    let ended = |rest: &[u8]| [rest, b"\n"].concat();
    match line {
        // An empty line is an empty context line that lost its space in transit, as in Git.
        [] => Some(HunkLine::Context(b"\n".to_vec())),
        [b' ', rest @ ..] => Some(HunkLine::Context(ended(rest))),
        [b'-', rest @ ..] => Some(HunkLine::Delete(ended(rest))),
        [b'+', rest @ ..] => Some(HunkLine::Insert(ended(rest))),
        _ => None,
    }
}

/// Whether the line that is `ahead` lines after the next one ends a hunk. A header with a space before it is a line of
/// context, except for the last line of the patch, which can be nothing else.
pub(crate) fn is_end_of_hunk(lines: &Lines<'_>, ahead: usize, headers: NumberlessHeaders) -> bool {
    let Some(line) = lines.peek_at(ahead) else { return false };
    let is_last = || lines.header(line) == END && lines.only_blank_from(ahead + 1);
    let is_unified = || line.starts_with(b"diff --git ") || lines.is_file_head_before_hunk(ahead);
    // Without a version after it, a signature may as well be the deleted line `-`; if it is none, the hunk does not match.
    let is_signature = || ahead == 0 && lines.is_signature() && lines.peek_at(1).is_some();
    line.starts_with(b"*** ")
        || (is_header(line) && (!line.starts_with(b" ") || is_last()))
        || (headers == NumberlessHeaders::All && (is_unified() || is_signature()))
}

fn is_header(line: &[u8]) -> bool {
    HEADERS.iter().any(|mark| line.trim_ascii().starts_with(mark))
}

/// The first line of context in `hunks` that looks like a header with a space before it: what precedes the header in the patch
/// is then a part of the line.
pub(crate) fn padded_header(hunks: &[Hunk]) -> Option<&[u8]> {
    hunks.iter().filter(|hunk| hunk.old_start.is_none()).flat_map(|hunk| &hunk.lines).find_map(|line| match line {
        HunkLine::Context(line) if is_header(line) => line.strip_suffix(b"\n"),
        HunkLine::Context(_) | HunkLine::Delete(_) | HunkLine::Insert(_) => None,
    })
}

/// Whether empty lines precede a line that ends a hunk. Those before `*** End of File` are context, because the file ends with
/// them.
pub(crate) fn is_blank_up_to_end(lines: &Lines<'_>, headers: NumberlessHeaders) -> bool {
    let blank = lines.count_empty();
    blank > 0
        && is_end_of_hunk(lines, blank, headers)
        && lines.peek_at(blank).is_none_or(|line| lines.header(line) != END_OF_FILE)
}

/// Reads a hunk up to a line that ends it.
pub(crate) fn parse_hunk(lines: &mut Lines<'_>, headers: NumberlessHeaders) -> Result<Hunk, Refusal> {
    let number = lines.number();
    let mut hunk = Hunk { old_start: None, new_start: None, lines: Vec::new(), anchors: Vec::new(), at_end: false };
    while let Some(head) = lines.next_after("@@") {
        hunk.anchors.extend(anchor(head));
    }
    while let Some(line) = lines.peek().filter(|line| !line.starts_with(b"@@")) {
        if is_end_of_hunk(lines, 0, headers) {
            break;
        }
        if is_blank_up_to_end(lines, headers) || lines.is_blank_up_to(|line| line.starts_with(b"@@")) {
            lines.skip_blank();
            break;
        }
        let Some(line) = parse_line(line) else {
            let hint = "Begin every line of a hunk with ` `, `-` or `+`.";
            return Err(invalid(lines.number(), format!("`{}` is not a line of a hunk", shown(line)), hint));
        };
        hunk.lines.push(line);
        lines.next();
    }
    if lines.peek().is_some_and(|line| !line.starts_with(b" ") && lines.header(line) == END_OF_FILE) {
        lines.next();
        hunk.at_end = true;
    }
    if hunk.lines.iter().all(|line| matches!(line, HunkLine::Context(_))) {
        return Err(invalid(number, "the hunk changes nothing", "Remove hunks without `-` and `+` lines."));
    }
    // Lines without context belong under the line that the header names, or else at the end of the file.
    hunk.at_end |= hunk.anchors.is_empty() && hunk.old_lines().next().is_none();
    Ok(hunk)
}

/// The line that a hunk's header names. Line numbers, as in a unified diff, and an ellipsis are ignored.
fn anchor(head: &[u8]) -> Option<Vec<u8>> {
    let text = head.trim_ascii();
    let text = text.strip_suffix(b"@@").unwrap_or(text).trim_ascii();
    let is_ellipsis = || matches!(text, b"..." | b"\xe2\x80\xa6");
    (!text.is_empty() && !has_numbers(text) && !is_ellipsis()).then(|| text.to_vec())
}

/// Whether the text of a hunk's header begins with a line number, as in a unified diff.
pub(crate) fn has_numbers(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start(), [b'-', digit, ..] if digit.is_ascii_digit())
}
