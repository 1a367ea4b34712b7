//! The kinds of files, and how strictly policy restricts each.

use super::binary::is_binary;
use crate::credential::is_key_file;
use crate::named_enum::named_enum;

named_enum! {
    /// The kind of a file, which determines the policy for it.
    #[expect(missing_docs, reason = "the contract's table of kinds describes each kind")]
    pub enum FileKind {
        TextSource = "TEXT_SOURCE",
        TextConfig = "TEXT_CONFIG",
        TextDoc = "TEXT_DOC",
        Lockfile = "LOCKFILE",
        Generated = "GENERATED",
        Vendored = "VENDORED",
        SecretLike = "SECRET_LIKE",
        Binary = "BINARY",
        Directory = "DIRECTORY",
        GitInternal = "GIT_INTERNAL",
        Submodule = "SUBMODULE",
        Unknown = "UNKNOWN",
    }
}

impl FileKind {
    /// Returns the kind of a file, given this kind of its name and its first bytes `head`. A private key is a secret under any
    /// name.
    pub(crate) fn with_head(self, head: &[u8]) -> Self {
        match self {
            Self::SecretLike | Self::GitInternal | Self::Submodule => self,
            _ if is_key_file(head) => Self::SecretLike,
            by_name => by_name.with_text_head(head),
        }
    }

    /// As [`with_head`](Self::with_head), for a file that is not a private key.
    pub(crate) fn with_text_head(self, head: &[u8]) -> Self {
        match self {
            strict @ (Self::SecretLike
            | Self::GitInternal
            | Self::Submodule
            | Self::Generated
            | Self::Vendored
            | Self::Lockfile) => strict,
            _ if is_binary(head) => Self::Binary,
            // The name indicates a binary file and the bytes do not: an empty file, or a pointer to a large file.
            Self::Binary | Self::Directory | Self::Unknown => Self::Unknown,
            text @ (Self::TextSource | Self::TextConfig | Self::TextDoc) => text,
        }
    }

    /// How strictly policy restricts the kind. Used to compare two kinds of one file.
    fn strictness(self) -> u8 {
        match self {
            Self::Submodule => 10,
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

    /// Returns the kind that policy restricts more strictly; `self` if both are equally strict.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
    }
}
