//! The text of a file that hunks are compared with: without a byte order mark, in UTF-8, with an ending of its last line.

use std::borrow::Cow;

use super::super::file_patch::{FilePatch, HunkLine};
use super::super::locate::PatchLeniency;
use crate::{Decoded, Encoding, decode, encode};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A file's text, and what [`restore`](Self::restore) needs to return to the file's bytes.
pub(crate) struct NormalizedText<'a> {
    text: Cow<'a, [u8]>,
    /// The encoding to return to; `None` if the text is the file's own bytes.
    encoding: Option<Encoding>,
    /// Whether the file begins with a byte order mark that the patch does not have.
    has_bom: bool,
    /// The ending that was added to the last line.
    added_ending: &'static [u8],
}

impl<'a> NormalizedText<'a> {
    pub(crate) fn of(file: &FilePatch, before: &'a [u8], leniency: PatchLeniency) -> Self {
        let lines = || file.hunks.iter().flat_map(|hunk| &hunk.lines).map(HunkLine::bytes);
        let mut normalized = Self { text: Cow::Borrowed(before), encoding: None, has_bom: false, added_ending: b"" };
        if let Some(rest) = before.strip_prefix(BOM)
            && !lines().any(|line| line.starts_with(BOM))
        {
            normalized.text = Cow::Borrowed(rest);
            normalized.has_bom = true;
        } else if lines().all(|line| std::str::from_utf8(line).is_ok())
            && std::str::from_utf8(before).is_err()
            && let Some(Decoded { text, encoding }) = decode(before)
        {
            normalized.text = Cow::Owned(text.into_bytes());
            normalized.encoding = Some(encoding);
        }
        // A hunk without line numbers cannot express that the file's last line has no ending.
        let is_numberless = file.hunks.iter().any(|hunk| hunk.old_start.is_none());
        if is_numberless && !normalized.text.is_empty() && !normalized.text.ends_with(b"\n") {
            let has_crlf = memchr::memmem::find(&normalized.text, b"\r\n").is_some();
            let ending: &[u8] = if has_crlf { b"\r\n" } else { b"\n" };
            normalized.text.to_mut().extend_from_slice(ending);
            if leniency == PatchLeniency::Strict {
                normalized.added_ending = ending;
            }
        }
        normalized
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The file's bytes for the changed `text`; `None` if its encoding lacks some character.
    pub(crate) fn restore(&self, mut text: Vec<u8>) -> Option<Vec<u8>> {
        if text.ends_with(self.added_ending) {
            text.truncate(text.len() - self.added_ending.len());
        }
        match self.encoding {
            Some(encoding) => encode(&String::from_utf8(text).ok()?, encoding),
            None if self.has_bom => Some([BOM, &text].concat()),
            None => Some(text),
        }
    }
}
