//! Audit records and their hash chain.

mod chain;
mod checkpoint;
mod continuity;
mod draft;
mod event;
mod notification;
mod stats;

use serde::{Deserialize, Serialize};

use crate::named_enum::named_enum;
use crate::{Code, FileKind, GitMode, LogicalPath, RUN_TOKEN_ACTOR, RunId, Sha256, ToolCallId};
pub use chain::{ChainBreak, ChainCheck, ChainReport, verify_chain};
pub use checkpoint::CheckpointLeaf;
pub use continuity::{FirstVersions, Versions};
pub use draft::{Draft, MAX_LEFT};
pub use event::{
    EventKind, MAX_EVENT_DATA_BYTES, MAX_READ_INPUT_BYTES, MAX_RUN_EVENT_BYTES, MAX_RUN_EVENTS, MAX_SUMMARY_CHARS,
    MAX_UPLOAD_BYTES, recorded_input, redact_members,
};
pub use notification::{DeliveryState, WebhookDelivery, WebhookEvent, WebhookMessage};
pub use stats::{HourStats, ReasonStats, RecordStats, RunStats, StatsCounts};

/// The tool in the record of a run's archive, the first one after the archived records.
pub const ARCHIVE_TOOL: &str = "run.archive";

/// The tool of a record that earlier versions wrote when they moved a run to an object store. It names what the run started from, with the
/// files that git ignores.
pub const MIGRATE_TOOL: &str = "run.migrate";

/// The tool of the record of a change from outside, which precedes that of the call that found it.
pub const OUTSIDE_CHANGE_TOOL: &str = "workspace.outside_change";

/// The actor of a change from outside.
pub const NOBODY: &str = "nobody";

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call succeeded.
    Ok,
    /// The call was refused and changed nothing.
    Refused,
    /// The call waits for approval and has changed nothing yet.
    Pending,
    /// The call failed because of an internal error and changed nothing.
    Failed,
}

named_enum! {
    /// Whose call a record is.
    pub enum By {
        /// The agent of the run: a caller with a run token.
        Agent = "agent",
        /// A person, or a program that has an operator's token.
        Operator = "operator",
        /// The service itself.
        Service = "service",
    }
}

impl By {
    /// Returns whose calls an `actor` makes.
    pub fn of_actor(actor: &str) -> Self {
        if actor.starts_with(RUN_TOKEN_ACTOR) {
            Self::Agent
        } else if actor.starts_with("operator:") {
            Self::Operator
        } else {
            Self::Service
        }
    }
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// The call is allowed.
    Allow,
    /// The call needs approval.
    RequireApproval,
    /// The call is denied.
    Deny,
}

/// A file of a record. Members are sorted by name, so that the JSON is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordFile {
    /// The file's kind.
    pub kind: FileKind,
    /// Mode after the call; absent if the call did not write the file, or deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<GitMode>,
    /// Hash after the call; absent if the file was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
    /// Mode before the call, if that was another one or the call deleted the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_mode: Option<GitMode>,
    /// Hash before the call; absent if the file did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// The path.
    pub path: LogicalPath,
}

impl RecordFile {
    /// Returns a file that a call did not write.
    pub fn unwritten(path: LogicalPath, kind: FileKind) -> Self {
        Self { kind, mode: None, new_sha256: None, old_mode: None, old_sha256: None, path }
    }

    /// Returns a file that a call wrote, by its versions before and after: the hash and the permission bits, or [`LINK_MODE`](crate::LINK_MODE).
    pub fn written(
        path: LogicalPath,
        kind: FileKind,
        before: Option<(Sha256, u32)>,
        after: Option<(Sha256, u32)>,
    ) -> Self {
        let [old, mode] = [before, after].map(|version| version.map(|(_, mode)| GitMode::of(mode)));
        let [old_sha256, new_sha256] = [before, after].map(|version| version.map(|(sha256, _)| sha256));
        Self { kind, mode, new_sha256, old_mode: old.filter(|old| mode != Some(*old)), old_sha256, path }
    }

    /// Returns the mode after the call of a file that it wrote and left.
    pub fn mode_after(&self) -> GitMode {
        self.mode.unwrap_or_default()
    }

    /// Returns the mode before the call of a file that it wrote and that existed.
    pub fn mode_before(&self) -> GitMode {
        self.old_mode.or(self.mode).unwrap_or_default()
    }
}

/// An entry of a change set that is denied and was left out. Members are sorted by name, so that the JSON is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeftEntry)]
pub struct DeniedEntry {
    /// The path, escaped and cut to 200 characters if it is no valid path of a workspace.
    #[schema(example = ".env")]
    pub path: String,
    /// The rule that denied it, or the code of the refusal.
    #[schema(example = "kind:SECRET_LIKE")]
    pub rule: String,
}

/// A record of a run's audit chain: a call, a lifecycle operation or an event. Members are sorted by name, so that the JSON is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
// Languages have a type `Record` of their own, which that of a generated client would hide.
#[schema(as = AuditRecord)]
pub struct Record {
    /// Who called: `run-token:{tokenId}`, `operator:{name}` or `service`; `nobody` for a change from outside.
    pub actor: String,
    /// The stored diffs of the change, as `artifact://{run}/{artifactId}`.
    pub artifact_uris: Vec<String>,
    /// Whose call it is, by its `actor`. Records of earlier versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// The code of the refusal or error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The decision of the policy.
    pub decision: Verdict,
    /// SHA-256 of the diff that `artifactUris` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_sha256: Option<Sha256>,
    /// The duration of the call until its record was submitted to the ledger, in microseconds.
    pub duration_micros: u64,
    /// The check that the caller attested, for a change of a file that policy allows only with evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Files with their hashes: all files if the call changed any, otherwise at most 64 KiB of JSON.
    pub files: Vec<RecordFile>,
    /// The format in which a model made the call, if not in that of the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// SHA-256 of the canonical JSON of the record without this member. `None` only while it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Sha256)]
    pub hash: Option<Sha256>,
    /// The input of a read (search query, lines, globs, depth; at most 2 KiB, else cut, with `truncated: true`) or of a lifecycle
    /// operation, or the content of an event, without credentials. Missing for changes of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Map<String, serde_json::Value>>,
    /// What a change set left out because it is denied: the first 100 entries. Missing if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub left: Vec<DeniedEntry>,
    /// How many entries a change set left out because they are denied, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_count: Option<u64>,
    /// Whether the tool may change files. Of a record that is no tool call: whether it changes files, as `run.create` does if a fork takes
    /// over changed files of its parent.
    pub mutates: bool,
    /// The call's outcome.
    pub outcome: Outcome,
    /// Paths whose content or listing was returned, at most 64 KiB of JSON.
    pub paths_read: Vec<LogicalPath>,
    /// All paths that changed. For a refused or pending call, the paths that it would change, at most 64 KiB of JSON.
    pub paths_written: Vec<LogicalPath>,
    /// Hash of the previous record; 64 zeros for the first.
    pub prev_hash: Sha256,
    /// The caller's reason for the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rules that decided. For a rejected path, also `path: …` with the input, escaped and cut to 200 characters. If a list
    /// of the record is incomplete, the last reasons are `and N more in LIST`. Each reason is cut to 1,000 characters, and the
    /// list to 16 KiB.
    pub reasons: Vec<String>,
    /// The ID of the HTTP request: the caller's, or one that the service generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The run, or `_service` for the service's own chain.
    #[serde(deserialize_with = "RunId::deserialize_recorded")]
    #[schema(value_type = String, pattern = "^([A-Za-z0-9][A-Za-z0-9_-]{0,63}|_service)$")]
    pub run_id: RunId,
    /// The position in the run's audit chain: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// The step ID that the caller sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// When the call was recorded, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// The tool.
    pub tool: String,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The ID of the trace that the caller's `traceparent` names: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// A check outside of the service, which an event of the run describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// The event.
    pub event_id: ToolCallId,
}

impl Record {
    /// Returns whose call it is, also for a record of an earlier version.
    pub fn made_by(&self) -> By {
        self.by.unwrap_or_else(|| By::of_actor(&self.actor))
    }

    /// Whether policy or a person denied the call, or policy an entry of its change set.
    pub fn is_denied(&self) -> bool {
        self.decision == Verdict::Deny || !self.left.is_empty()
    }

    /// Why the call was not simply done, in a form that repeats: the first rule that denied it or made it wait, or the code of its refusal;
    /// for a change set that was applied, the first rule that denied an entry of it.
    pub fn main_reason(&self) -> Option<String> {
        // A reason that is no rule is a message, which may name a path.
        let is_rule = |reason: &&String| !reason.split(':').next().is_some_and(|family| family.contains(' '));
        let first = || self.reasons.first().filter(is_rule).map(|reason| without_approval_id(reason));
        let reason = match (self.outcome, self.decision) {
            (Outcome::Ok, _) => self.left.first().map(|left| left.rule.clone()),
            (_, Verdict::Deny | Verdict::RequireApproval) => first().or_else(|| self.code.map(|code| code.to_string())),
            (_, Verdict::Allow) => self.code.map(|code| code.to_string()),
        };
        reason.map(|reason| reason.chars().take(MAX_MAIN_REASON_CHARS).collect())
    }

    /// Returns the text that is hashed: the canonical JSON of this record without `hash`.
    pub fn to_canonical(&self) -> String {
        let unhashed = Self { hash: None, ..self.clone() };
        // The members always serialise. An empty text would fail verification.
        serde_json::to_string(&unhashed).unwrap_or_default()
    }
}

/// The longest [`Record::main_reason`], in characters.
const MAX_MAIN_REASON_CHARS: usize = 200;

/// Returns `approval:RESULT` for `approval:ID:RESULT`: the decisions of people are one reason, regardless of what they are about.
fn without_approval_id(reason: &str) -> String {
    let result = reason.strip_prefix("approval:").and_then(|rest| rest.split_once(':')).map(|(_, result)| result);
    result.map_or_else(|| reason.to_owned(), |result| format!("approval:{result}"))
}

#[cfg(test)]
mod tests;
