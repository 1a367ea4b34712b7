//! Unified diffs of many files: Git's and plain ones.

mod git;

use super::begin_patch_format::FORMAT_HINT;
use super::check::RawFilePatch;
use super::fault::{FILE_HEAD_HINT, HUNK_FILE_HINT, WHOLE_PATCH_HINT, invalid, shown};
use super::file_patch::{Hunk, HunkLine, PatchOperation};
use super::lines::Lines;
use super::{hunk, name};
use crate::Refusal;

/// How the header of a mail, or of a commit as Git shows it, begins.
const MAIL_STARTS: [&str; 6] = ["From ", "From: ", "Subject: ", "Date: ", "commit ", "Author: "];

/// Reads the section of one file; `None` if none begins at the next line.
pub(crate) fn parse_section(lines: &mut Lines<'_>) -> Result<Option<RawFilePatch>, Refusal> {
    let number = lines.number();
    if let Some(names) = lines.next_after("diff --git ") {
        git::parse(lines, number, names).map(Some)
    } else if lines.is_file_head(0) {
        parse_plain(lines).map(Some)
    } else {
        Ok(None)
    }
}

/// Skips the header of a mail or commit before the first file.
pub(crate) fn skip_mail(lines: &mut Lines<'_>) -> Result<(), Refusal> {
    let is_mail = |line: &[u8]| MAIL_STARTS.iter().any(|start| line.starts_with(start.as_bytes()));
    if !lines.peek().is_some_and(is_mail) {
        return Ok(());
    }
    while let Some(line) = lines.peek() {
        if line.starts_with(b"diff --git ") || lines.is_file_head(0) || is_announcement(lines) {
            return Ok(());
        }
        if ["@@ -", "+++ ", "*** ", "GIT binary patch"].iter().any(|mark| line.starts_with(mark.as_bytes())) {
            let message = format!("`{}` is before the first file's header", shown(line));
            return Err(invalid(lines.number(), message, "Send the diff alone, without the mail or commit around it."));
        }
        lines.next();
    }
    Ok(())
}

/// Whether the next line is one that diff tools write before the header of a plain file.
pub(crate) fn is_announcement(lines: &Lines<'_>) -> bool {
    let Some(line) = lines.peek() else { return false };
    let begins = |mark: &str| line.starts_with(mark.as_bytes());
    let rule =
        |ahead| lines.peek_at(ahead).is_some_and(|line| line.len() >= 8 && line.iter().all(|byte| *byte == b'='));
    ((begins("diff -") && !begins("diff --")) && lines.is_file_head(1))
        || (begins("Index: ") && rule(1) && lines.is_file_head(2))
        || (rule(0) && lines.is_file_head(1))
}

pub(crate) fn not_understood(number: usize, line: &[u8], first: bool) -> Refusal {
    let begins = |mark: &str| line.starts_with(mark.as_bytes());
    let shown = shown(line);
    if begins("@@") && first {
        let message = format!("the hunk `{shown}` belongs to no file");
        return invalid(number, message, HUNK_FILE_HINT);
    }
    if begins("```") || begins("~~~") {
        return invalid(
            number,
            format!("`{shown}` is not part of a patch"),
            "Send the diff alone, without Markdown fences.",
        );
    }
    if begins("diff --cc ") || begins("diff --combined ") {
        return invalid(number, "combined diffs of merges are not supported", "Send a diff between two versions.");
    }
    if begins("Only in ") {
        let hint = "Create the diff with `diff -ruN`, which includes files of one side.";
        return invalid(number, format!("`{shown}` names a file that the patch does not contain"), hint);
    }
    if begins("GIT binary patch") || (begins("Binary files ") && line.ends_with(b" differ")) {
        return git::binary(number);
    }
    if begins("--- ") || begins("+++ ") {
        return invalid(number, format!("`{shown}` has no counterpart"), FILE_HEAD_HINT);
    }
    let hint = if begins("*** ") { FORMAT_HINT } else { WHOLE_PATCH_HINT };
    invalid(number, format!("`{shown}` is not part of a patch"), hint)
}

/// Reads a file without Git's headers.
fn parse_plain(lines: &mut Lines<'_>) -> Result<RawFilePatch, Refusal> {
    let number = lines.number();
    let old = FileHead::parse(lines, "--- ")?;
    let new = FileHead::parse(lines, "+++ ")?;
    let hunks = hunk::parse_all(lines)?;
    if hunks.is_empty() {
        return Err(no_hunks(lines, number));
    }
    let hunks = if old.is_null() { as_new_file(hunks) } else { hunks };
    let creates = old.is_null() || (old.epoch && hunks[0].old_start == Some(0));
    let deletes = new.is_null() || (new.epoch && hunks[0].new_start == Some(0));
    let (operation, (from, path)) = match (creates, deletes) {
        (true, true) => return Err(invalid(number, "both sides are missing", "Name the file on at least one side.")),
        (true, false) if old.is_null() => (PatchOperation::Create, same(name::strip_one(&new.name, "b/"))),
        (false, true) if new.is_null() => (PatchOperation::Delete, same(name::strip_one(&old.name, "a/"))),
        (true, false) => (PatchOperation::Create, name::strip_pair(&old.name, &new.name)),
        (false, true) => (PatchOperation::Delete, name::strip_pair(&old.name, &new.name)),
        (false, false) => (PatchOperation::Modify, name::strip_pair(&old.name, &new.name)),
    };
    if from != path {
        return Err(names_disagree(number, &from, &path));
    }
    check_hunks(number, operation, &hunks)?;
    Ok(RawFilePatch { number, operation, from, path, mode: None, hunks, ignores_content: false })
}

/// Hunks of a file that is new: they are all of it, also where they have no line numbers.
pub(crate) fn as_new_file(mut hunks: Vec<Hunk>) -> Vec<Hunk> {
    for hunk in hunks.iter_mut().filter(|hunk| hunk.old_start.is_none()) {
        (hunk.old_start, hunk.new_start, hunk.at_end) = (Some(0), Some(1), false);
    }
    hunks
}

fn same(name: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    (name.clone(), name)
}

/// A line `--- NAME` or `+++ NAME`.
struct FileHead {
    name: Vec<u8>,
    /// Whether the time is that of a file which does not exist.
    epoch: bool,
    /// Whether anything follows the name.
    tail: bool,
}

impl FileHead {
    fn parse(lines: &mut Lines<'_>, mark: &str) -> Result<Self, Refusal> {
        let number = lines.number();
        let text = lines.next_after(mark).unwrap_or_default();
        let Some((name, tail)) = name::with_tail(text).filter(|(name, _)| !name.is_empty()) else {
            return Err(bad_name(number, text));
        };
        if name.contains(&b'\r') && !text.starts_with(b"\"") {
            let hint = "End all lines of the patch's headers in LF; only the lines of files keep their CR.";
            return Err(invalid(number, "the header ends in CR LF, but not every line of the patch does", hint));
        }
        let epoch = tail.starts_with(b"1970-01-01 ") || tail.starts_with(b"1969-12-31 ");
        Ok(Self { name, epoch, tail: !tail.is_empty() })
    }

    fn is_null(&self) -> bool {
        self.name == b"/dev/null"
    }
}

fn bad_name(number: usize, text: &[u8]) -> Refusal {
    let hint = "Write the name as it is, or in double quotes with Git's escapes.";
    invalid(number, format!("`{}` is not a file name", shown(text)), hint)
}

fn names_disagree(number: usize, old: &[u8], new: &[u8]) -> Refusal {
    let message = format!("the header's names disagree: `{}` and `{}`", shown(old), shown(new));
    let hint = "Name the same file on both sides, as `a/PATH` and `b/PATH`; a rename needs `diff --git`, `rename from` and \
                `rename to`.";
    invalid(number, message, hint)
}

fn no_hunks(lines: &Lines<'_>, number: usize) -> Refusal {
    match lines.peek() {
        Some(line) if !lines.is_file_head(0) && !line.starts_with(b"diff ") => {
            not_understood(lines.number(), line, false)
        }
        _ => invalid(number, "the file has no hunks", "Add the file's hunks, or remove the file."),
    }
}

/// Checks that a created file has no old lines and a deleted one no new lines.
fn check_hunks(number: usize, operation: PatchOperation, hunks: &[Hunk]) -> Result<(), Refusal> {
    let all = |wanted: fn(&HunkLine) -> bool| hunks.iter().flat_map(|hunk| &hunk.lines).all(wanted);
    match operation {
        PatchOperation::Create if hunks.len() > 1 || !all(|line| matches!(line, HunkLine::Insert(_))) => {
            let hint = "Begin every line of a new file with `+`, in one hunk with the header `@@ -0,0 +1,COUNT @@`; to \
                        change an existing file, name it on both sides.";
            Err(invalid(number, "the patch creates a file but contains old lines of it", hint))
        }
        PatchOperation::Delete if hunks.len() > 1 || !all(|line| matches!(line, HunkLine::Delete(_))) => {
            let hint =
                "Begin every line of a deleted file with `-`, in one hunk with the header `@@ -1,COUNT +0,0 @@`.";
            Err(invalid(number, "the patch deletes a file but keeps lines of it", hint))
        }
        PatchOperation::Create
        | PatchOperation::Delete
        | PatchOperation::Modify
        | PatchOperation::Rename
        | PatchOperation::Copy => Ok(()),
    }
}
