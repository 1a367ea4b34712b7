//! The kinds of files, and which of them policy restricts most.

use serde::{Deserialize, Serialize};

use super::binary::is_binary;

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

impl FileKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::TextSource,
        Self::TextConfig,
        Self::TextDoc,
        Self::Lockfile,
        Self::Generated,
        Self::Vendored,
        Self::SecretLike,
        Self::Binary,
        Self::Directory,
        Self::GitInternal,
        Self::Unknown,
    ];

    /// The kind as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TextSource => "TEXT_SOURCE",
            Self::TextConfig => "TEXT_CONFIG",
            Self::TextDoc => "TEXT_DOC",
            Self::Lockfile => "LOCKFILE",
            Self::Generated => "GENERATED",
            Self::Vendored => "VENDORED",
            Self::SecretLike => "SECRET_LIKE",
            Self::Binary => "BINARY",
            Self::Directory => "DIRECTORY",
            Self::GitInternal => "GIT_INTERNAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The kind of a file whose name has this kind and whose first bytes are `head`.
    pub(crate) fn with_head(self, head: &[u8]) -> Self {
        match self {
            strict @ (Self::SecretLike | Self::GitInternal | Self::Generated | Self::Vendored | Self::Lockfile) => {
                strict
            }
            _ if is_binary(head) => Self::Binary,
            // The name says binary and the bytes do not: an empty file, a pointer to a large one.
            Self::Binary | Self::Directory | Self::Unknown => Self::Unknown,
            text @ (Self::TextSource | Self::TextConfig | Self::TextDoc) => text,
        }
    }

    /// How strict policy is with the kind, for comparing two kinds of one file.
    fn strictness(self) -> u8 {
        match self {
            Self::SecretLike => 9,
            Self::GitInternal => 8,
            Self::Generated | Self::Vendored => 7,
            Self::Lockfile => 6,
            Self::Binary => 5,
            Self::Directory => 4,
            Self::Unknown => 3,
            Self::TextConfig => 2,
            Self::TextSource => 1,
            Self::TextDoc => 0,
        }
    }

    /// The kind that policy is stricter with; of equals the first.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
    }
}
