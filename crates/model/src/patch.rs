//! Patches: text → sections, and a section applied to a file's bytes.
//!
//! The parser takes nothing silently: a text is a patch as a whole or not at all, and whatever a library might skip (a
//! hunk behind a blank line, a section of another form, counts that do not fit) is either understood or refused with the
//! line at which it stands.

mod apply;
mod begin_patch_format;
mod check;
mod fault;
mod file_patch;
mod hunk;
mod lines;
mod locate;
mod modes;
mod name;
mod unified;

pub use apply::PatchFault;
pub use file_patch::{FilePatch, Hunk, HunkLine, HunkOffset, PatchOperation, PatchResult};
pub use modes::{FileModes, diff_modes};

use crate::Refusal;

/// A patch of many files, parsed and checked as far as that goes without the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// One entry a file, in the order of the patch; no path is written by two sections, and none that one section takes
    /// away is touched by another, but for a file made anew in its place.
    pub files: Vec<FilePatch>,
}

impl Patch {
    /// Parses `text`: git diffs, plain unified diffs, or the form that begins with `*** Begin Patch`.
    ///
    /// A patch whose last line has no end is completed. A mail's head before the first section and its signature behind
    /// the last are left out; other text is refused. Where every line ends in CRLF, that is taken for the transport's
    /// doing. Prefixes such as `a/` and `b/` are stripped where both sides have them.
    ///
    /// # Errors
    ///
    /// `PATCH_INVALID` for text that is not wholly a patch, and for what no patch may hold (binary hunks, submodules,
    /// symbolic links, one path twice, overlapping or miscounted hunks), with the line of the patch; `PATH_REJECTED` for
    /// its paths.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Self::parse_bytes(text.as_bytes())
    }

    /// The same for a patch of files that are not UTF-8.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_bytes(text: &[u8]) -> Result<Self, Refusal> {
        let lines = lines::Lines::new(text);
        let sections = if lines.is_begin_form() { begin_patch_format::parse(lines)? } else { unified::parse(lines)? };
        Ok(Self { files: check::sections(sections)? })
    }

    /// The patch that undoes this one; `None` where a section does not tell what it takes away.
    pub fn reversed(&self) -> Option<Self> {
        let files = self.files.iter().rev().map(FilePatch::reversed).collect::<Option<_>>()?;
        Some(Self { files })
    }
}

#[cfg(test)]
mod tests;
