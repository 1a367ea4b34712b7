//! The format that begins with `*** Begin Patch`: hunks without line numbers, located by their context.

use super::check::RawFilePatch;
use super::fault::{invalid, shown};
use super::file_patch::{Hunk, HunkLine, PatchOperation};
use super::hunk::parse_line;
use super::lines::Lines;
use crate::Refusal;

pub(crate) const FORMAT_HINT: &str = "Write `*** Begin Patch`, for each file `*** Update File: PATH` with hunks headed by `@@`, \
     `*** Add File: PATH` with lines that begin with `+`, or `*** Delete File: PATH`, and at the end `*** End Patch`.";

/// The last line of a patch.
const END: &[u8] = b"*** End Patch";
/// The lines that are not lines of a hunk, as they begin.
const HEADERS: [&[u8]; 6] =
    [END, b"*** Begin Patch", b"*** Add File:", b"*** Delete File:", b"*** Update File:", b"*** End of File"];

/// Reads a whole patch.
pub(crate) fn parse(mut lines: Lines<'_>) -> Result<Vec<RawFilePatch>, Refusal> {
    let lines = &mut lines;
    lines.skip_blank();
    lines.next();
    let mut files = Vec::new();
    loop {
        lines.skip_blank();
        let (number, Some(line)) = (lines.number(), lines.peek()) else {
            return Err(invalid(lines.number(), "the patch ends without `*** End Patch`", FORMAT_HINT));
        };
        if line.trim_ascii() == END {
            lines.next();
            break;
        }
        let file = if let Some(path) = next_header(lines, "*** Add File:") {
            let hunks = parse_added(lines)?;
            RawFilePatch { hunks, ..file_patch(number, PatchOperation::Create, path) }
        } else if let Some(path) = next_header(lines, "*** Delete File:") {
            RawFilePatch { ignores_content: true, ..file_patch(number, PatchOperation::Delete, path) }
        } else if let Some(path) = next_header(lines, "*** Update File:") {
            parse_updated(lines, number, path)?
        } else {
            return Err(invalid(
                number,
                format!("`{}` is not valid in a patch of this format", shown(line)),
                FORMAT_HINT,
            ));
        };
        files.push(file);
    }
    if !lines.only_blank_from(0) {
        return Err(invalid(lines.number(), "text follows `*** End Patch`", "Send one patch alone."));
    }
    if files.is_empty() {
        return Err(invalid(1, "the patch changes no file", FORMAT_HINT));
    }
    Ok(files)
}

fn file_patch(number: usize, operation: PatchOperation, path: &[u8]) -> RawFilePatch {
    let path = path.trim_ascii().to_vec();
    RawFilePatch { number, operation, from: path.clone(), path, mode: None, hunks: Vec::new(), ignores_content: false }
}

/// Reads the next line if it is the header `mark`, with blanks around it or without, and returns its path.
fn next_header<'a>(lines: &mut Lines<'a>, mark: &str) -> Option<&'a [u8]> {
    let path = lines.peek()?.trim_ascii().strip_prefix(mark.as_bytes())?;
    lines.next();
    Some(path)
}

/// Whether a line outside of hunks, or among the lines of a new file, is a header.
fn is_marker(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"*** ")
}

/// Whether the line that is `ahead` lines after the next one ends a hunk. A header with a space before it is a line of
/// context, except for the last line of the patch, which can be nothing else.
fn is_marker_in_hunk(lines: &Lines<'_>, ahead: usize) -> bool {
    let Some(line) = lines.peek_at(ahead) else { return false };
    let is_last = || line.trim_ascii() == END && lines.only_blank_from(ahead + 1);
    line.starts_with(b"*** ") || (is_header(line) && (!line.starts_with(b" ") || is_last()))
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

/// Reads the lines of a new file: one hunk, or none for an empty one.
fn parse_added(lines: &mut Lines<'_>) -> Result<Vec<Hunk>, Refusal> {
    let mut added = Vec::new();
    while let Some(line) = lines.peek().filter(|line| !is_marker(line)) {
        let Some(rest) = line.strip_prefix(b"+") else {
            if lines.is_blank_up_to(is_marker) {
                lines.skip_blank();
                break;
            }
            let hint = "Begin every line of a new file with `+`, including empty ones.";
            return Err(invalid(lines.number(), format!("`{}` does not begin with `+`", shown(line)), hint));
        };
        added.push(HunkLine::Insert([rest, b"\n"].concat()));
        lines.next();
    }
    if added.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![Hunk { old_start: Some(0), new_start: Some(1), lines: added, anchors: Vec::new(), at_end: false }])
}

fn parse_updated(lines: &mut Lines<'_>, number: usize, path: &[u8]) -> Result<RawFilePatch, Refusal> {
    let mut updated = file_patch(number, PatchOperation::Modify, path);
    if let Some(to) = lines.next_after("*** Move to: ") {
        updated.operation = PatchOperation::Rename;
        updated.path = to.trim_ascii().to_vec();
    }
    while lines.peek().is_some() && !is_marker_in_hunk(lines, 0) && !is_blank_up_to_marker(lines) {
        let hunk = parse_hunk(lines).map_err(|refusal| {
            refusal.with_details(|details| details.hunk = u32::try_from(updated.hunks.len() + 1).ok())
        })?;
        updated.hunks.push(hunk);
    }
    if updated.hunks.is_empty() && updated.operation == PatchOperation::Modify {
        return Err(invalid(number, "the file's section changes nothing", "Add the file's hunks, or remove the file."));
    }
    Ok(updated)
}

/// Whether empty lines precede a line that ends a hunk.
fn is_blank_up_to_marker(lines: &Lines<'_>) -> bool {
    let blank = lines.count_empty();
    blank > 0 && is_marker_in_hunk(lines, blank)
}

fn parse_hunk(lines: &mut Lines<'_>) -> Result<Hunk, Refusal> {
    let number = lines.number();
    let mut hunk = Hunk { old_start: None, new_start: None, lines: Vec::new(), anchors: Vec::new(), at_end: false };
    while let Some(head) = lines.next_after("@@") {
        hunk.anchors.extend(anchor(head));
    }
    while let Some(line) = lines.peek().filter(|line| !line.starts_with(b"@@")) {
        if is_marker_in_hunk(lines, 0) {
            break;
        }
        if is_blank_up_to_marker(lines) || lines.is_blank_up_to(|line| line.starts_with(b"@@")) {
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
    if lines.peek().is_some_and(|line| !line.starts_with(b" ") && line.trim_ascii() == b"*** End of File") {
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

/// The line that a hunk's header names. Line numbers, as in a unified diff, are ignored.
fn anchor(head: &[u8]) -> Option<Vec<u8>> {
    let text = head.trim_ascii();
    let text = text.strip_suffix(b"@@").unwrap_or(text).trim_ascii();
    let numbers = matches!(text, [b'-', digit, ..] if digit.is_ascii_digit());
    (!text.is_empty() && !numbers).then(|| text.to_vec())
}
