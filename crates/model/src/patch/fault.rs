//! Refusals of invalid patches: the line, what is wrong with it, and how to correct it.

use crate::{Code, MessageParts, Refusal, excerpt};

/// The most characters of a line that a refusal shows.
const SHOWN_CHARS: usize = 80;

/// `PATCH_INVALID` for a line of the patch, counted from 1.
pub(crate) fn invalid(line: usize, message: impl AsRef<str>, hint: impl Into<String>) -> Refusal {
    let refusal = Refusal::new(Code::PatchInvalid, format!("line {line} of the patch: {}", message.as_ref()), hint);
    let parts = MessageParts { line: Some(line as u64), ..MessageParts::default() };
    Refusal { parts: Some(Box::new(parts)), ..refusal }
}

/// Text for a message: cut, without credentials and control characters.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = excerpt(&String::from_utf8_lossy(bytes), SHOWN_CHARS);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The hint for a text that is not a patch.
pub const WHOLE_PATCH_HINT: &str = "Send a unified diff as `git diff` writes it: for each file the lines `--- a/PATH` and `+++ b/PATH`, then its hunks.";
/// The hint for a hunk before which no file is named.
pub const HUNK_FILE_HINT: &str = "Put `--- a/PATH` and `+++ b/PATH` before the hunks of each file.";
/// The hint for one of the two lines that name a file, without the other.
pub const FILE_HEAD_HINT: &str = "Write `--- a/PATH` and, on the very next line, `+++ b/PATH`.";
pub(crate) const COUNTS_HINT: &str = "Count the hunk's lines again: the first count is of lines that begin with ` ` or `-`, \
     the second of lines that begin with ` ` or `+`; an empty context line is a line with one space.";
pub(crate) const NUMBERS_HINT: &str = "Write each hunk's header as `@@ -START,COUNT +START,COUNT @@`, or send the format that \
     needs no numbers: `*** Begin Patch`, `*** Update File: PATH`, hunks headed by `@@`, `*** End Patch`.";
