//! The codes of refusals.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Every code that an answer can carry, in the order of refusal: where several apply, the first is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the contract's table of errors says what each means")]
pub enum Code {
    BodyTooLarge,
    Unauthenticated,
    Forbidden,
    RateLimited,
    RunNotFound,
    ToolNotFound,
    InvalidRequest,
    PatchInvalid,
    PreconditionRequired,
    ToolCallIdReused,
    PathRejected,
    RunClosed,
    RunNeedsRepair,
    BaseCommitMismatch,
    PolicyDeniedSecret,
    PolicyDenied,
    NotFound,
    AlreadyExists,
    NotADirectory,
    NotAFile,
    FileTooLarge,
    UnsupportedBinary,
    WriteConflict,
    PatchConflict,
    EditNotFound,
    EditNotUnique,
    RevertConflict,
    PatchBudgetExceeded,
    QuotaExceeded,
    ApprovalRequired,
    BatchNotDone,
    Unavailable,
    Internal,
}

impl Code {
    /// Whether the reason passes by itself or is mended by an operator: the same call may be tried again then.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::RunNeedsRepair)
    }

    /// The code as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::RateLimited => "RATE_LIMITED",
            Self::RunNotFound => "RUN_NOT_FOUND",
            Self::ToolNotFound => "TOOL_NOT_FOUND",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::PatchInvalid => "PATCH_INVALID",
            Self::PreconditionRequired => "PRECONDITION_REQUIRED",
            Self::ToolCallIdReused => "TOOL_CALL_ID_REUSED",
            Self::PathRejected => "PATH_REJECTED",
            Self::RunClosed => "RUN_CLOSED",
            Self::RunNeedsRepair => "RUN_NEEDS_REPAIR",
            Self::BaseCommitMismatch => "BASE_COMMIT_MISMATCH",
            Self::PolicyDeniedSecret => "POLICY_DENIED_SECRET",
            Self::PolicyDenied => "POLICY_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::NotAFile => "NOT_A_FILE",
            Self::FileTooLarge => "FILE_TOO_LARGE",
            Self::UnsupportedBinary => "UNSUPPORTED_BINARY",
            Self::WriteConflict => "WRITE_CONFLICT",
            Self::PatchConflict => "PATCH_CONFLICT",
            Self::EditNotFound => "EDIT_NOT_FOUND",
            Self::EditNotUnique => "EDIT_NOT_UNIQUE",
            Self::RevertConflict => "REVERT_CONFLICT",
            Self::PatchBudgetExceeded => "PATCH_BUDGET_EXCEEDED",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::ApprovalRequired => "APPROVAL_REQUIRED",
            Self::BatchNotDone => "BATCH_NOT_DONE",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
