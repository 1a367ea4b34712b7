//! The format that begins with `*** Begin Patch`: hunks without line numbers, located by their context.

use super::check::RawFilePatch;
use super::fault::{invalid, shown};
use super::file_patch::{Hunk, HunkLine, PatchOperation};
use super::hunk::parse_line;
use super::lines::Lines;
use crate::Refusal;

const FORMAT_HINT: &str = "Write `*** Begin Patch`, for each file `*** Update File: PATH` with hunks headed by `@@`, \
     `*** Add File: PATH` with lines that begin with `+`, or `*** Delete File: PATH`, and at the end `*** End Patch`.";

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
        if line.trim_ascii_end() == b"*** End Patch" {
            lines.next();
            break;
        }
        let file = if let Some(path) = lines.next_after("*** Add File: ") {
            let hunks = parse_added(lines)?;
            RawFilePatch { hunks, ..file_patch(number, PatchOperation::Create, path) }
        } else if let Some(path) = lines.next_after("*** Delete File: ") {
            RawFilePatch { ignores_content: true, ..file_patch(number, PatchOperation::Delete, path) }
        } else if let Some(path) = lines.next_after("*** Update File: ") {
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

fn is_marker(line: &[u8]) -> bool {
    line.starts_with(b"*** ")
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
    while lines.peek().is_some_and(|line| !is_marker(line)) && !lines.is_blank_up_to(is_marker) {
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

fn parse_hunk(lines: &mut Lines<'_>) -> Result<Hunk, Refusal> {
    let number = lines.number();
    let mut hunk = Hunk { old_start: None, new_start: None, lines: Vec::new(), anchors: Vec::new(), at_end: false };
    while let Some(head) = lines.next_after("@@") {
        hunk.anchors.extend(anchor(head));
    }
    while let Some(line) = lines.peek().filter(|line| !is_marker(line) && !line.starts_with(b"@@")) {
        if lines.is_blank_up_to(|line| is_marker(line) || line.starts_with(b"@@")) {
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
    if lines.peek().is_some_and(|line| line.trim_ascii_end() == b"*** End of File") {
        lines.next();
        hunk.at_end = true;
    }
    if hunk.lines.iter().all(|line| matches!(line, HunkLine::Context(_))) {
        return Err(invalid(number, "the hunk changes nothing", "Remove hunks without `-` and `+` lines."));
    }
    if hunk.old_lines().next().is_none() && !hunk.at_end {
        let message = "the hunk has no line of the old file, so the position of its lines is not certain";
        let hint =
            "Add lines of context around the insertion, or put `*** End of File` after lines that belong at the end.";
        return Err(invalid(number, message, hint));
    }
    Ok(hunk)
}

/// The line that a hunk's header names. Line numbers, as in a unified diff, are ignored.
fn anchor(head: &[u8]) -> Option<Vec<u8>> {
    let text = head.trim_ascii();
    let text = text.strip_suffix(b"@@").unwrap_or(text).trim_ascii();
    let numbers = matches!(text, [b'-', digit, ..] if digit.is_ascii_digit());
    (!text.is_empty() && !numbers).then(|| text.to_vec())
}
