//! What an edit of one text file says, and what it gives.

use model::{Encoding, FileState, LogicalPath, Refusal, Sha256};
use serde::Serialize;

use crate::tool::WriteMode;
use crate::tool::earlier_calls::StoredContent;
use crate::tool::expected_version::ExpectedVersion;
use crate::tools::write_file::NewLineEnding;
use crate::tools::write_file::merge::OnConflict;

/// The output of a tool that edits one text file.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextEditOutput {
    /// The normalised path.
    pub(crate) path: LogicalPath,
    /// Whether the call created the file.
    pub(crate) created: bool,
    /// Hash before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old_sha256: Option<Sha256>,
    /// Hash after the change.
    pub(crate) new_sha256: Sha256,
    /// The new length in bytes.
    pub(crate) bytes_written: u64,
    /// Lines added.
    pub(crate) insertions: u64,
    /// Lines removed.
    pub(crate) deletions: u64,
    /// True if `write_file` merged the change into a file that had changed since `expectedSha256`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) merged: bool,
    /// If `merged`: the hash of the version that the change was merged into, and that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) merged_from: Option<Sha256>,
    /// Of `edit_file`, the number of replaced occurrences, without overlaps; 1 for `replace_range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replacements: Option<u64>,
}

/// The edit of one text file.
pub(crate) struct TextEdit {
    /// The file.
    pub(crate) path: LogicalPath,
    /// The version that it must have.
    pub(crate) expected: Option<ExpectedVersion>,
    /// Its encoding, if the call names it.
    pub(crate) encoding: Option<Encoding>,
    /// What changes.
    pub(crate) edit: Edit,
}

/// What changes in a text file.
pub(crate) enum Edit {
    /// The whole content.
    Whole(WholeText),
    /// A text in it.
    Replace(ReplacedText),
    /// Whole lines.
    Range(ReplacedLines),
}

/// The present file: its state and its bytes.
pub(crate) type Present = (FileState, Vec<u8>);

/// An edited file.
#[derive(Default)]
pub(crate) struct Edited {
    /// The new bytes.
    pub(crate) bytes: Vec<u8>,
    /// What the caller has to know.
    pub(crate) warnings: Vec<String>,
    /// What was done, for the summary.
    pub(crate) done: String,
    /// The version that the change was merged into.
    pub(crate) merged_from: Option<Sha256>,
    /// How many occurrences were replaced.
    pub(crate) replacements: Option<u64>,
    /// Why the call is refused nevertheless, unless the new content is refused.
    pub(crate) conflict: Option<Refusal>,
}

/// A text of which a part was replaced, the number of replaced occurrences, and what was done, for the summary.
pub(crate) type EditedText = (String, u64, String);

/// The whole content of a file.
pub(crate) struct WholeText {
    /// The content.
    pub(crate) content: String,
    /// Whether the file may or must exist.
    pub(crate) mode: WriteMode,
    /// What to do if the file has changed.
    pub(crate) on_conflict: OnConflict,
    pub(crate) line_ending: Option<NewLineEnding>,
    /// The content of the expected version, for a merge.
    pub(crate) base: Option<StoredContent>,
}

/// A text that replaces another one.
pub(crate) struct ReplacedText {
    pub(crate) old: String,
    /// The new text.
    pub(crate) new: String,
    pub(crate) replace_all: bool,
    pub(crate) replacements: Option<u64>,
}

/// Lines that replace others.
pub(crate) struct ReplacedLines {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The new lines.
    pub(crate) content: String,
}
