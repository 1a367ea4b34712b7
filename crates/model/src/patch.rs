//! Patches: parses a text into file patches, and applies a file patch to a file's bytes.
//!
//! The parser is strict: the whole text is a patch, or it is refused with the line that is wrong. It never skips what a
//! lenient parser would, such as a hunk after a blank line or a file in another format.

mod apply;
mod begin_patch_format;
mod check;
mod fault;
mod file_patch;
mod hunk;
mod lines;
mod locate;
pub(crate) mod name;
mod numberless;
mod sections;
mod unified;
mod written;

pub use apply::OUT_OF_ORDER;
pub use apply::PatchFault;
pub use begin_patch_format::FORMAT_HINT;
pub use fault::{FILE_HEAD_HINT, HUNK_FILE_HINT, WHOLE_PATCH_HINT};
pub use file_patch::{FilePatch, Hunk, HunkLine, HunkOffset, PatchOperation, PatchResult};
pub use locate::{PatchBudget, PatchLeniency};
pub use written::written_sections;

use crate::Refusal;
use fault::{invalid, shown};

/// A patch of many files, parsed and checked as far as possible without the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The files, in the order of the patch. No path is written twice. A path that is deleted or renamed is not used
    /// again, except by a new file that replaces a renamed one.
    pub files: Vec<FilePatch>,
    /// What was wrong with the text and could be corrected, for the caller.
    pub warnings: Vec<String>,
}

impl Patch {
    /// Parses `text`: Git diffs, plain unified diffs, or the format that begins with `*** Begin Patch`.
    ///
    /// The last line may lack its ending. The header of a mail before the first file and its signature after the last are
    /// ignored, as is a byte order mark; other text is refused. If every line ends in CRLF, the transport is assumed to have added
    /// the CR. Prefixes such as `a/` and `b/` are removed if both sides have them. Headers and hunks of one format may be in a
    /// patch of the other. A hunk whose header states wrong counts is counted again if it is certain where it ends.
    ///
    /// # Errors
    ///
    /// `PATCH_INVALID`, with the line of the patch, for text that is not a patch as a whole and for unsupported content
    /// (binary hunks, submodules, symbolic links, one path twice, overlapping or miscounted hunks); `PATH_REJECTED` for its
    /// paths.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Self::parse_bytes(text.as_bytes())
    }

    /// Parses a patch of files that may not be UTF-8, as [`parse`](Self::parse) does.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_bytes(text: &[u8]) -> Result<Self, Refusal> {
        let mut lines = lines::Lines::new(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
        let files = check::files(sections::parse(&mut lines)?)?;
        Ok(Self { files, warnings: lines.warnings })
    }

    /// The refusal of a hunk of `file` that does not match because it holds a header of the format `*** Begin Patch` with
    /// blanks before it, which makes it a line of the hunk. `text` is the text of the patch.
    pub fn padded_header(text: &str, file: &FilePatch) -> Option<Refusal> {
        let header = numberless::padded_header(&file.hunks)?;
        let is_header = |line: &str| line.trim_end_matches('\r').strip_prefix(' ').map(str::as_bytes) == Some(header);
        let number = text.lines().position(is_header)? + 1;
        let message = format!(
            "`{}` begins with a blank, so it is a line of the hunk above it, which does not match",
            shown(header)
        );
        Some(
            invalid(number, message, "Begin the header at the start of the line, without blanks before `***`.")
                .at(&file.path),
        )
    }

    /// The patch that reverses this one; `None` if a file patch cannot be [reversed](FilePatch::reversed).
    pub fn reversed(&self) -> Option<Self> {
        let files = self.files.iter().rev().map(FilePatch::reversed).collect::<Option<_>>()?;
        Some(Self { files, warnings: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
