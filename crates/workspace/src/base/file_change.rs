//! The change of one file against the base.

use model::{Encoding, Sha256};
use serde::{Deserialize, Serialize};

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffFile {
    /// Its path.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub status: String,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether it is binary.
    pub binary: bool,
    /// The encoding from which the text was decoded, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// True if the encoding is guessed from the bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub encoding_guessed: bool,
    /// Hash in the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Hash now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
}

/// The change of one file against the base.
#[derive(Debug)]
pub(crate) struct FileChange {
    pub(crate) file: DiffFile,
    /// Sizes before and after.
    pub(crate) bytes: (u64, u64),
    /// The new mode as git has it; `None` for a deleted file.
    pub(crate) mode: Option<u32>,
    /// The text of its diff.
    pub(crate) text: Vec<u8>,
}
