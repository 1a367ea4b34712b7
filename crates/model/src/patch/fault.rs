//! What is told of a patch that is none: the line, what is wrong there, how to make it right.

use crate::{Code, Refusal, excerpt};

/// Characters of a patch's line that a refusal shows.
const SHOWN_CHARS: usize = 80;

/// `PATCH_INVALID` about a line of the patch, counted from 1.
pub(super) fn invalid(line: usize, message: impl AsRef<str>, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::PatchInvalid, format!("line {line} of the patch: {}", message.as_ref()), hint)
}

/// Text in a message: without credentials, cut, and without what is not text.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = excerpt(&String::from_utf8_lossy(bytes), SHOWN_CHARS);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

pub(super) const WHOLE_PATCH_HINT: &str = "Send a unified diff as `git diff` writes it: for each file the lines `--- a/PATH` and `+++ b/PATH`, then its hunks.";
pub(super) const COUNTS_HINT: &str = "Count the hunk's lines again: the first count is of lines that begin with ` ` or `-`, \
     the second of lines that begin with ` ` or `+`; an empty context line is a line with one blank.";
pub(super) const NUMBERS_HINT: &str = "Write each hunk's head as `@@ -START,COUNT +START,COUNT @@`, or send the form that \
     needs no numbers: `*** Begin Patch`, `*** Update File: PATH`, hunks headed by `@@`, `*** End Patch`.";
