//! What a policy decides about a kind of file.

use crate::named_enum::named_enum;
use crate::{FileKind, Verdict};

named_enum! {
    /// What a policy decides about the files of a kind.
    pub enum KindDecision {
        /// A mutation is allowed.
        Allow = "ALLOW",
        /// A mutation needs evidence of a successful check, or else approval. For `LOCKFILE` and `GENERATED` only.
        RequireEvidence = "REQUIRE_EVIDENCE",
        /// A mutation needs approval.
        RequireApproval = "REQUIRE_APPROVAL",
        /// A mutation is denied.
        Deny = "DENY",
        /// A mutation is denied, and a read shows the keys of a file of settings without their values. For `SECRET_LIKE` only.
        Redact = "REDACT",
    }
}

impl KindDecision {
    /// The verdict on a mutation without evidence.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Allow => Verdict::Allow,
            Self::RequireEvidence | Self::RequireApproval => Verdict::RequireApproval,
            Self::Deny | Self::Redact => Verdict::Deny,
        }
    }

    /// Whether a policy may decide this about `kind`.
    pub(super) fn is_possible_for(self, kind: FileKind) -> bool {
        match kind {
            FileKind::SecretLike => matches!(self, Self::Deny | Self::Redact),
            FileKind::GitInternal | FileKind::Submodule | FileKind::Directory => self == Self::Deny,
            FileKind::Lockfile | FileKind::Generated => self != Self::Redact,
            FileKind::TextSource
            | FileKind::TextConfig
            | FileKind::TextDoc
            | FileKind::Vendored
            | FileKind::Binary
            | FileKind::Unknown => matches!(self, Self::Allow | Self::RequireApproval | Self::Deny),
        }
    }
}
