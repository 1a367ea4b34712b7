//! What kind of file a path names, from its name and its first bytes.

use serde::{Deserialize, Serialize};

use crate::LogicalPath;

/// What a file is to policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the contract's table of kinds says what each means")]
pub enum FileKind {
    TextSource,
    TextConfig,
    TextDoc,
    Lockfile,
    Generated,
    Vendored,
    SecretLike,
    Binary,
    Directory,
    GitInternal,
    Unknown,
}

/// Folds a name to what look-alikes share: compatibility form, lower case, without invisible characters.
pub(crate) fn fold_name(name: &str) -> String {
    name.to_lowercase()
}

impl FileKind {
    /// The kind that the path alone tells; `Unknown` where only the bytes can tell.
    pub fn of_path(_path: &LogicalPath) -> Self {
        unimplemented!()
    }

    /// The kind of a file with `head` as its first bytes (8 KiB are enough).
    pub fn of_file(_path: &LogicalPath, _head: &[u8]) -> Self {
        unimplemented!()
    }
}

/// The well-known credential that `text` holds, if any: what it is, never the value.
pub fn credential_in(_text: &[u8]) -> Option<&'static str> {
    unimplemented!()
}
