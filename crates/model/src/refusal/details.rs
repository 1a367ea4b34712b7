//! What a refusal refers to.

use serde::{Deserialize, Serialize};

use crate::{ApprovalId, Sha256};

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

impl ProblemDetails {
    /// Every text in it.
    pub(super) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
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
    pub(super) fn withhold_content(&mut self) -> bool {
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
