//! What speaks against a change that waits for a person.

use serde::{Deserialize, Serialize};

use crate::named_enum::named_enum;
use crate::{ApprovalId, LogicalPath};

named_enum! {
    /// How much a warning matters.
    pub enum Severity {
        /// Good to know.
        Info = "info",
        /// To be checked before the change is approved.
        Doubt = "doubt",
        /// A reason to deny, unless the reviewer knows better.
        Danger = "danger",
    }
}

named_enum! {
    /// What a warning is about.
    pub enum WarningCode {
        /// The change leaves fewer tests or assertions, or skips more, as the trigger `weakensTest` defines it.
        WeakensTest = "WEAKENS_TEST",
        /// The change deletes or empties a test file, as the trigger `deletesTest` defines it.
        DeletesTest = "DELETES_TEST",
        /// An added line looks like it contains a credential.
        CredentialLike = "CREDENTIAL_LIKE",
        /// An added line names a host that neither the old version of the file nor another line of the change names.
        NewHost = "NEW_HOST",
        /// A person has denied the same change, or one that contains it, in this run.
        DeniedBefore = "DENIED_BEFORE",
        /// A path is outside of the policy's `write`.
        OutsideWrite = "OUTSIDE_WRITE",
        /// A file has changed since the approval was requested.
        Stale = "STALE",
        /// The last test that ran with this change failed.
        TestsFailed = "TESTS_FAILED",
        /// The run has tests, and none of them ran with this change.
        TestsNotOnThisTree = "TESTS_NOT_ON_THIS_TREE",
    }
}

impl WarningCode {
    /// The severity of every warning with this code.
    pub fn severity(self) -> Severity {
        match self {
            Self::WeakensTest | Self::DeletesTest | Self::CredentialLike | Self::DeniedBefore | Self::TestsFailed => {
                Severity::Danger
            }
            Self::NewHost | Self::OutsideWrite | Self::Stale => Severity::Doubt,
            Self::TestsNotOnThisTree => Severity::Info,
        }
    }
}

/// What speaks against a change that waits for a person. It never repeats a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalWarning {
    /// What it is about.
    pub code: WarningCode,
    /// How much it matters.
    pub severity: Severity,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<LogicalPath>,
    /// The line of the new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The earlier approval, of `DENIED_BEFORE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The note of the person who denied that, of `DENIED_BEFORE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The warning in one sentence.
    #[schema(example = "An added line names the host collect.example.net, which the file did not name before.")]
    pub text: String,
}

impl ApprovalWarning {
    /// Creates a warning about the whole change.
    pub fn new(code: WarningCode, text: impl Into<String>) -> Self {
        let (path, line, approval_id, note) = (None, None, None, None);
        Self { code, severity: code.severity(), path, line, approval_id, note, text: text.into() }
    }

    /// Adds the file.
    #[must_use]
    pub fn at(self, path: &LogicalPath) -> Self {
        Self { path: Some(path.clone()), ..self }
    }
}
