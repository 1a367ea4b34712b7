//! The bytes of a file that hunks are compared with, and the way back.

use std::borrow::Cow;

use super::super::file_patch::{FilePatch, HunkLine};
use crate::{Decoded, Encoding, decode, encode};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// How a file's bytes are taken.
pub(super) struct Form<'a> {
    text: Cow<'a, [u8]>,
    /// The encoding to go back to; `None` where the text is bytes of the file itself.
    encoding: Option<Encoding>,
    /// Whether the file begins with a mark that the patch does not know of.
    marked: bool,
    /// The end that the last line was given though it has none.
    completed: &'static [u8],
}

impl<'a> Form<'a> {
    pub(super) fn of(section: &FilePatch, before: &'a [u8]) -> Self {
        let lines = || section.hunks.iter().flat_map(|hunk| &hunk.lines).map(HunkLine::bytes);
        let mut form = Self { text: Cow::Borrowed(before), encoding: None, marked: false, completed: b"" };
        if let Some(rest) = before.strip_prefix(BOM)
            && !lines().any(|line| line.starts_with(BOM))
        {
            form.text = Cow::Borrowed(rest);
            form.marked = true;
        } else if lines().all(|line| std::str::from_utf8(line).is_ok())
            && let Some(Decoded { text, encoding }) = older(before)
        {
            form.text = Cow::Owned(text.into_bytes());
            form.encoding = Some(encoding);
        }
        // A form without numbers has no way to say that a file's last line has no end.
        let numberless = section.hunks.iter().any(|hunk| hunk.old_start.is_none());
        if numberless && !form.text.is_empty() && !form.text.ends_with(b"\n") {
            let crlf = memchr::memmem::find(&form.text, b"\r\n").is_some();
            form.completed = if crlf { b"\r\n" } else { b"\n" };
            form.text.to_mut().extend_from_slice(form.completed);
        }
        form
    }

    pub(super) fn lines_of(&self) -> &[u8] {
        &self.text
    }

    /// The file's bytes again, now that `text` is its text; `None` where its encoding has no such characters.
    pub(super) fn restore(&self, mut text: Vec<u8>) -> Option<Vec<u8>> {
        if text.ends_with(self.completed) {
            text.truncate(text.len() - self.completed.len());
        }
        match self.encoding {
            Some(encoding) => encode(&String::from_utf8(text).ok()?, encoding),
            None if self.marked => Some([BOM, &text].concat()),
            None => Some(text),
        }
    }
}

/// The text of a file that is neither UTF-8 nor binary.
fn older(bytes: &[u8]) -> Option<Decoded> {
    if std::str::from_utf8(bytes).is_ok() {
        return None;
    }
    decode(bytes)
}
