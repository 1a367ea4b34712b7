//! The sections of the format that begins with `*** Begin Patch`.

use super::check::RawFilePatch;
use super::fault::{invalid, shown};
use super::file_patch::{Hunk, HunkLine, PatchOperation};
use super::lines::Lines;
use super::name;
use super::numberless::{NumberlessHeaders, is_blank_up_to_end, is_end_of_hunk, parse_hunk};
use crate::Refusal;

/// The hint for a text that is not in the format.
pub const FORMAT_HINT: &str = "Write `*** Begin Patch`, for each file `*** Update File: PATH` with hunks headed by `@@`, \
     `*** Add File: PATH` with lines that begin with `+`, or `*** Delete File: PATH`, and at the end `*** End Patch`.";

/// Reads the section of one file; `None` if none begins at the next line.
pub(crate) fn parse_section(lines: &mut Lines<'_>) -> Result<Option<RawFilePatch>, Refusal> {
    let number = lines.number();
    if let Some(path) = next_header(lines, "*** Add File:") {
        skip_unified_head(lines, path)?;
        lines.next_after("@@");
        let hunks = parse_added(lines)?;
        return Ok(Some(RawFilePatch { hunks, ..file_patch(number, PatchOperation::Create, path) }));
    }
    if let Some(path) = next_header(lines, "*** Delete File:") {
        return Ok(Some(RawFilePatch { ignores_content: true, ..file_patch(number, PatchOperation::Delete, path) }));
    }
    match next_header(lines, "*** Update File:") {
        Some(path) => parse_updated(lines, number, path).map(Some),
        None => Ok(None),
    }
}

fn file_patch(number: usize, operation: PatchOperation, path: &[u8]) -> RawFilePatch {
    let path = path.trim_ascii().to_vec();
    RawFilePatch { number, operation, from: path.clone(), path, mode: None, hunks: Vec::new(), ignores_content: false }
}

/// Reads the next line if it is the header `mark`, with blanks around it or without, and returns its path.
fn next_header<'a>(lines: &mut Lines<'a>, mark: &str) -> Option<&'a [u8]> {
    let path = lines.header(lines.peek()?).strip_prefix(mark.as_bytes())?;
    lines.next();
    Some(path)
}

/// Skips the lines `--- NAME` and `+++ NAME`, which must name the file of the section at `path`.
fn skip_unified_head(lines: &mut Lines<'_>, path: &[u8]) -> Result<(), Refusal> {
    if !lines.is_file_head(0) {
        return Ok(());
    }
    let number = lines.number();
    for mark in ["--- ", "+++ "] {
        let named = lines.next_after(mark).and_then(name::with_tail).map(|(name, _)| name).unwrap_or_default();
        if !name::is_same(&named, path.trim_ascii()) && named != b"/dev/null" {
            let message = format!("`{}` is in the section of `{}`", shown(&named), shown(path.trim_ascii()));
            return Err(invalid(number, message, "Name one file in each section."));
        }
    }
    Ok(())
}

/// Whether a line outside of hunks, or among the lines of a new file, is a header.
fn is_marker(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"*** ")
}

/// Reads the lines of a new file: one hunk, or none for an empty one.
fn parse_added(lines: &mut Lines<'_>) -> Result<Vec<Hunk>, Refusal> {
    let mut added = Vec::new();
    while let Some(line) = lines.peek().filter(|line| !is_marker(line)) {
        let Some(rest) = line.strip_prefix(b"+") else {
            let ends = |line: &[u8]| is_marker(line) || line.starts_with(b"diff --git ");
            if lines.only_blank_from(0) || lines.is_blank_up_to(ends) || lines.is_file_head(0) || ends(line) {
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
        updated.path = lines.header(to).to_vec();
    }
    // A section that has both forms of header is followed by either.
    let headers =
        if lines.is_file_head_before_hunk(0) { NumberlessHeaders::All } else { NumberlessHeaders::BeginPatch };
    if headers == NumberlessHeaders::All {
        skip_unified_head(lines, path)?;
    }
    while lines.peek().is_some() && !is_end_of_hunk(lines, 0, headers) && !is_blank_up_to_end(lines, headers) {
        let hunk = parse_hunk(lines, headers).map_err(|refusal| {
            refusal.with_details(|details| details.hunk = u32::try_from(updated.hunks.len() + 1).ok())
        })?;
        updated.hunks.push(hunk);
    }
    if updated.hunks.is_empty() && updated.operation == PatchOperation::Modify {
        return Err(invalid(number, "the file's section changes nothing", "Add the file's hunks, or remove the file."));
    }
    Ok(updated)
}
