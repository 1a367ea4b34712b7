//! The codes of refusals.

use std::fmt;

use crate::named_enum::named_enum;

named_enum! {
    /// The code of a refusal. The order is the order of precedence: if several apply, the answer has the first.
    #[expect(missing_docs, reason = "the contract's table of errors describes each code")]
    pub enum Code {
        BodyTooLarge = "BODY_TOO_LARGE",
        Unauthenticated = "UNAUTHENTICATED",
        Forbidden = "FORBIDDEN",
        RateLimited = "RATE_LIMITED",
        RunNotFound = "RUN_NOT_FOUND",
        ToolNotFound = "TOOL_NOT_FOUND",
        InvalidRequest = "INVALID_REQUEST",
        PatchInvalid = "PATCH_INVALID",
        PreconditionRequired = "PRECONDITION_REQUIRED",
        ToolCallIdReused = "TOOL_CALL_ID_REUSED",
        IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED",
        PathRejected = "PATH_REJECTED",
        RunClosed = "RUN_CLOSED",
        RunNeedsRepair = "RUN_NEEDS_REPAIR",
        BaseCommitMismatch = "BASE_COMMIT_MISMATCH",
        PolicyDeniedSecret = "POLICY_DENIED_SECRET",
        PolicyDenied = "POLICY_DENIED",
        NotFound = "NOT_FOUND",
        AlreadyExists = "ALREADY_EXISTS",
        NotADirectory = "NOT_A_DIRECTORY",
        NotAFile = "NOT_A_FILE",
        FileTooLarge = "FILE_TOO_LARGE",
        UnsupportedBinary = "UNSUPPORTED_BINARY",
        WriteConflict = "WRITE_CONFLICT",
        PatchConflict = "PATCH_CONFLICT",
        EditNotFound = "EDIT_NOT_FOUND",
        EditNotUnique = "EDIT_NOT_UNIQUE",
        RevertConflict = "REVERT_CONFLICT",
        ChangedOutside = "CHANGED_OUTSIDE",
        PatchBudgetExceeded = "PATCH_BUDGET_EXCEEDED",
        QuotaExceeded = "QUOTA_EXCEEDED",
        ApprovalRequired = "APPROVAL_REQUIRED",
        BatchNotDone = "BATCH_NOT_DONE",
        Unavailable = "UNAVAILABLE",
        Internal = "INTERNAL",
    }
}

impl Code {
    /// Whether the cause is temporary or an operator can remove it, so that the same call may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::RunNeedsRepair)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
