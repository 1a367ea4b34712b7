//! What is told of a patch that is none: the line, what is wrong there, how to make it right.

use crate::{Code, Refusal};

/// Characters of a patch's line that a refusal shows.
const SHOWN_CHARS: usize = 80;

/// `PATCH_INVALID` about a line of the patch, counted from 1.
pub(super) fn invalid(line: usize, message: impl AsRef<str>, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::PatchInvalid, format!("line {line} of the patch: {}", message.as_ref()), hint)
}

/// Text in a message: cut, and without what is not text.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN_CHARS)]);
    let mut shown: String =
        text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if shown.len() < bytes.len() && text.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    shown
}

pub(super) const WHOLE_PATCH_HINT: &str = "Send a unified diff as `git diff` writes it: for each file the lines `--- a/PATH` and `+++ b/PATH`, then its hunks.";
pub(super) const COUNTS_HINT: &str = "Count the hunk's lines again: the first count is of lines that begin with ` ` or `-`, \
     the second of lines that begin with ` ` or `+`; an empty context line is a line with one blank.";
pub(super) const NUMBERS_HINT: &str = "Write each hunk's head as `@@ -START,COUNT +START,COUNT @@`, or send the form that \
     needs no numbers: `*** Begin Patch`, `*** Update File: PATH`, hunks headed by `@@`, `*** End Patch`.";
