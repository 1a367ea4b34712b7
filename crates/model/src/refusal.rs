//! What a caller is told when a call is refused: a code, a message, what to do next, and what it is about.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ApprovalId, LogicalPath, PathRejected, Sha256, excerpt, redact};

/// The answer of anything that may be refused.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

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

/// Why a call was refused: something that the caller can act on, never a fault of ours and never a file's content that
/// policy hides. What shows content is in members of [`ProblemDetails`], and goes by [`Refusal::without_content`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What a program switches on.
    pub code: Code,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do next.
    pub hint: String,
    /// The path, limit, conflict and the like that the refusal refers to; flattened into the response.
    // Stored replies have this member under its first name.
    #[serde(rename = "about")]
    pub details: Box<ProblemDetails>,
}

/// What a refusal is about; only what the code calls for is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    /// The path concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The hash of what is there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_sha256: Option<Sha256>,
    /// The rules that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The bound that was passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<u64>,
    /// The first hunk that does not apply, counted from 1 within its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunk: Option<u32>,
    /// Every hunk that does not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Lines at which a text that must be unique stands, or the nearest to one that does not stand at all. Missing for a
    /// caller without `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<u64>,
    /// A short diff between what was expected and what is there. Missing for a caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// What has changed since the version that the caller expected, as a unified diff; cut at a line's end. Missing for a
    /// caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// True where the refusal would show content of files, and the caller lacks `file:read`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_withheld: bool,
    /// The approval that the call now waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Seconds after which another try makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// The record of this call in its run's audit, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// That record's hash, the head of the run's chain when it was written: who keeps it is a witness of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_hash: Option<Sha256>,
}

/// The longest message and hint: two paths fit.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// A hunk that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// The file.
    pub path: String,
    /// The hunk, counted from 1 within its file.
    pub hunk: u32,
    /// Why it does not apply. Empty for a caller without `file:read`.
    pub reason: String,
    /// The line of the file at which `found` begins; 0 for a caller without `file:read`.
    pub line: u64,
    /// What the hunk says stands there, at most a few lines.
    pub expected: String,
    /// What stands there, at most a few lines. Empty for a caller without `file:read`.
    pub found: String,
    /// Lines at which the hunk would apply. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applies_at: Vec<u64>,
}

impl Refusal {
    /// A refusal with nothing else to say than its message and hint. Both are cut to 16 KiB: they may repeat an input.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: short(message.into()), hint: short(hint.into()), details: Box::default() }
    }

    /// Bad input that is no matter of paths, policy or patches.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message, hint)
    }

    /// A path that breaks `rule`; `raw` is what the caller wrote.
    pub fn path(raw: &str, rule: PathRejected) -> Self {
        let shown = excerpt(raw, 200);
        Self::new(
            Code::PathRejected,
            rule.to_string(),
            "Name a path inside the workspace, relative to its root and separated by `/`.",
        )
        .with_details(|details| details.path = Some(shown))
    }

    /// Nothing is at `path`.
    pub fn not_found(path: &LogicalPath) -> Self {
        Self::new(
            Code::NotFound,
            format!("`{path}` does not exist"),
            "Use list_dir on its folder to see what is there.",
        )
        .at(path)
    }

    /// The same refusal, about `path`.
    #[must_use]
    pub fn at(self, path: &LogicalPath) -> Self {
        self.with_details(|details| details.path = Some(path.to_string()))
    }

    /// The same refusal, with more told of what it is about.
    #[must_use]
    pub fn with_details(mut self, fill: impl FnOnce(&mut ProblemDetails)) -> Self {
        fill(&mut self.details);
        self
    }

    /// The same refusal, with the record that the call left.
    #[must_use]
    pub fn recorded(self, seq: u64, hash: Option<Sha256>) -> Self {
        self.with_details(|details| (details.seq, details.head_hash) = (Some(seq), hash))
    }

    /// The same refusal for a caller who may not read files: nothing that shows content is left. Message, hint and reasons
    /// never do, except for the hints that this method replaces.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        if self.details.withhold_content() {
            "The token lacks file:read, so nothing of the file is shown: ask for a token that may read it."
                .clone_into(&mut self.hint);
        }
        self
    }

    /// The same refusal without credentials: what it repeats of a caller's input is recorded and shown to others.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        let texts = [&mut self.message, &mut self.hint].into_iter().chain(self.details.texts());
        for text in texts {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
        self
    }

    /// The refusal that comes first in the order of refusal; of equals the earlier.
    #[must_use]
    pub fn first(self, other: Self) -> Self {
        if other.code < self.code { other } else { self }
    }
}

impl ProblemDetails {
    /// Every text in it.
    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        // Every member is named, so that a new text is not forgotten here.
        let Self {
            path,
            current_sha256: _,
            reasons,
            limit: _,
            actual: _,
            hunk: _,
            conflicts,
            lines: _,
            difference,
            diff,
            content_withheld: _,
            approval_id: _,
            retry_after_seconds: _,
            seq: _,
            head_hash: _,
        } = self;
        let conflicts = conflicts.iter_mut().flat_map(|conflict| {
            let Conflict { path, hunk: _, reason, line: _, expected, found, applies_at: _ } = conflict;
            [path, reason, expected, found]
        });
        reasons.iter_mut().chain(path).chain(difference).chain(diff).chain(conflicts)
    }

    /// Empties every member that shows content of files. Returns whether there was any.
    fn withhold_content(&mut self) -> bool {
        // Every member is named, so that whether a new one shows content is decided here.
        let Self {
            path: _,
            current_sha256: _,
            reasons: _,
            limit: _,
            actual: _,
            hunk: _,
            conflicts,
            lines,
            difference,
            diff,
            content_withheld,
            approval_id: _,
            retry_after_seconds: _,
            seq: _,
            head_hash: _,
        } = self;
        for conflict in conflicts {
            let Conflict { path: _, hunk: _, reason, line, expected: _, found, applies_at } = conflict;
            // Where the lines stand, or that they stand nowhere, is content too.
            (*reason, *line, *found, *applies_at) = (String::new(), 0, String::new(), Vec::new());
            *content_withheld = true;
        }
        *content_withheld |= !std::mem::take(lines).is_empty();
        *content_withheld |= difference.take().is_some();
        *content_withheld |= diff.take().is_some();
        *content_withheld
    }
}

/// A text of at most [`MAX_TEXT_BYTES`], and a mark where it was longer.
fn short(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        // A credential at the cut would be none any more.
        text = redact(&text).into_owned();
    }
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        // What was cut off shall not be kept in memory either.
        text.shrink_to_fit();
        text.push('…');
    }
    text
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_gone_from_every_text() {
        let secret = format!("ghp_{}", "a1".repeat(18));
        let text = || Some(format!("x {secret} y"));
        let conflict = Conflict {
            path: secret.clone(),
            hunk: 1,
            reason: secret.clone(),
            line: 1,
            expected: secret.clone(),
            found: secret.clone(),
            applies_at: Vec::new(),
        };
        let refusal = Refusal::invalid(&secret, &secret).with_details(|details| {
            (details.path, details.difference, details.diff) = (text(), text(), text());
            (details.reasons, details.conflicts) = (vec![secret.clone()], vec![conflict]);
        });
        let told = serde_json::to_string(&refusal.redacted()).unwrap();
        assert!(!told.contains(&secret) && told.matches("[redacted: GitHub token]").count() == 10, "{told}");
    }

    #[test]
    fn what_is_cut_leaves_no_part_of_a_credential() {
        let secret = format!("ghp_{}", "a1".repeat(18));
        for before in 150..200 {
            let path = format!("../{}/{secret}", "a".repeat(before));
            let refusal = Refusal::path(&path, PathRejected::ParentDir);
            assert!(!refusal.details.path.unwrap().contains("ghp_"), "{before}");
        }
        for before in MAX_TEXT_BYTES - 40..MAX_TEXT_BYTES {
            assert!(!Refusal::invalid(format!("{} {secret}", "a".repeat(before)), "").message.contains("ghp_"));
        }
    }
}
