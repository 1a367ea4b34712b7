//! The details of a refusal.

use serde::{Deserialize, Serialize};

use crate::{ApprovalId, Sha256};

/// The details of a refusal. Which members are present depends on the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    /// The path concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The hash of the file's current content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_sha256: Option<Sha256>,
    /// The hash of the file's version that the run's records, or else its base, have. Missing if they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_sha256: Option<Sha256>,
    /// The rules that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The limit that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The value that exceeds the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<u64>,
    /// The number of the file's lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
    /// The first hunk that does not apply, counted from 1 within its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunk: Option<u32>,
    /// Every hunk that does not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// The lines at which a text that must be unique occurs, or the lines most similar to a text that does not occur. Missing
    /// for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<u64>,
    /// A short diff from the expected to the current content. Missing for a caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// The passages that are most similar to a text that was not found, best first, at most 3. Missing for a caller without
    /// `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<NearestText>,
    /// The first regions that a merge found changed in two ways, at most 10. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflict_regions: Vec<ConflictRegion>,
    /// The unified diff from the version that the caller expected to the current one, cut at the end of a line. Missing for a
    /// caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// True if content was removed from the refusal because the caller lacks `file:read`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_withheld: bool,
    /// The approval that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// What became of the approval, if the call is a repetition of one that waited: `approved (record N)`, `denied: NOTE`, `expired` or
    /// `failed: CODE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// What was decided about earlier calls of the token since its last answer, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The number of seconds after which the call may be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// `seq` of the call's record in the run's audit. Missing if the call is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The hash of that record, which was the head of the run's audit chain when it was written. A caller that stores it can
    /// detect later changes of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_hash: Option<Sha256>,
}

/// A passage that is similar to a text that was not found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NearestText {
    /// Its first line in the file, from 1.
    pub line: u64,
    /// The difference: lines with `-` were searched for, lines with `+` are in the file. At most 20 lines of the text.
    pub difference: String,
}

/// A region of a file that two versions changed in different ways. Each text has at most 12 lines, cut at 200 characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictRegion {
    /// Its first line in the present file, from 1.
    pub line: u64,
    /// Its lines in the version that the caller expected.
    pub base: String,
    /// Its lines in the present file.
    pub current: String,
    /// Its lines in the content that the caller sent.
    pub new: String,
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
    /// The first lines that the hunk expects there.
    pub expected: String,
    /// The first lines that the file has there. Empty for a caller without `file:read`.
    pub found: String,
    /// Lines at which the hunk would apply. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applies_at: Vec<u64>,
}

impl ProblemDetails {
    /// Returns every text, for redaction.
    pub(super) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        // Lists every member, so that the compiler reports a new one.
        let Self {
            path,
            current_sha256: _,
            known_sha256: _,
            reasons,
            limit: _,
            actual: _,
            total_lines: _,
            hunk: _,
            conflicts,
            lines: _,
            difference,
            nearest,
            conflict_regions,
            diff,
            content_withheld: _,
            approval_id: _,
            resolution,
            notices,
            retry_after_seconds: _,
            seq: _,
            head_hash: _,
        } = self;
        let conflicts = conflicts.iter_mut().flat_map(|conflict| {
            let Conflict { path, hunk: _, reason, line: _, expected, found, applies_at: _ } = conflict;
            [path, reason, expected, found]
        });
        let nearest = nearest.iter_mut().map(|NearestText { line: _, difference }| difference);
        let regions =
            conflict_regions.iter_mut().flat_map(|ConflictRegion { line: _, base, current, new }| [base, current, new]);
        reasons
            .iter_mut()
            .chain(notices)
            .chain(resolution)
            .chain(path)
            .chain(difference)
            .chain(nearest)
            .chain(regions)
            .chain(diff)
            .chain(conflicts)
    }

    /// Clears every member with file content. Returns whether content was removed.
    pub(super) fn withhold_content(&mut self) -> bool {
        // Lists every member, so that the compiler reports a new one.
        let Self {
            path: _,
            current_sha256: _,
            known_sha256: _,
            reasons: _,
            limit: _,
            actual: _,
            total_lines: _,
            hunk: _,
            conflicts,
            lines,
            difference,
            nearest,
            conflict_regions,
            diff,
            content_withheld,
            approval_id: _,
            resolution: _,
            notices: _,
            retry_after_seconds: _,
            seq: _,
            head_hash: _,
        } = self;
        for conflict in conflicts {
            let Conflict { path: _, hunk: _, reason, line, expected: _, found, applies_at } = conflict;
            // The position of lines, and whether they occur at all, reveals content too.
            (*reason, *line, *found, *applies_at) = (String::new(), 0, String::new(), Vec::new());
            *content_withheld = true;
        }
        *content_withheld |= !std::mem::take(lines).is_empty();
        *content_withheld |= difference.take().is_some();
        *content_withheld |= !std::mem::take(nearest).is_empty();
        *content_withheld |= !std::mem::take(conflict_regions).is_empty();
        *content_withheld |= diff.take().is_some();
        *content_withheld
    }
}
