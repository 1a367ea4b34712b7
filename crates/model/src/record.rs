//! Audit records and the chain that they form.

mod chain;
mod draft;

use serde::{Deserialize, Serialize};

use crate::{Code, FileKind, LogicalPath, RunId, Sha256, ToolCallId};
pub use chain::{ChainBreak, ChainCheck, ChainReport, verify_chain};
pub use draft::Draft;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked.
    Ok,
    /// It was refused; nothing changed.
    Refused,
    /// It waits for a person; nothing changed yet.
    Pending,
    /// It failed by a fault of ours; nothing changed.
    Failed,
}

/// What policy said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Go on.
    Allow,
    /// A person has to agree first.
    RequireApproval,
    /// No.
    Deny,
}

/// One file of a record. Members stand in the order of their names, so that serialising is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordFile {
    /// Its kind.
    pub kind: FileKind,
    /// Hash after the call; absent where the file is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
    /// Hash before the call; absent where there was no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// The path.
    pub path: LogicalPath,
}

/// One link of a run's audit chain. Members stand in the order of their names, so that serialising is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who called: `run-token:{tokenId}` or `operator:{name}`.
    pub actor: String,
    /// Diffs of what it changed, as `artifact://{run}/{artifactId}`.
    pub artifact_uris: Vec<String>,
    /// The answer's code, where it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// What policy said.
    pub decision: Verdict,
    /// SHA-256 of the diff that `artifactUris` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_sha256: Option<Sha256>,
    /// How long the call took until it was handed to the ledger, in microseconds.
    pub duration_micros: u64,
    /// Files with their hashes. All of them where the call changed any; else 64 KiB of them.
    pub files: Vec<RecordFile>,
    /// SHA-256 over the canonical JSON of the record without this member. `None` only while it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Sha256)]
    pub hash: Option<Sha256>,
    /// Whether the tool may change files.
    pub mutates: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Paths whose content or listing was told: 64 KiB of them.
    pub paths_read: Vec<LogicalPath>,
    /// Paths that changed, all of them; for a refused or pending call, that it asked to change: 64 KiB of them.
    pub paths_written: Vec<LogicalPath>,
    /// Hash of the record before it; 64 zeros for the first.
    pub prev_hash: Sha256,
    /// Why the caller did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rules that decided; where a path was rejected, also `path: …` with what was tried, escaped and cut to 200
    /// characters. The last ones are `and N more in LIST` where a list of the record has less than the call was about; each
    /// is cut to 1,000 characters, and all together to 16 KiB.
    pub reasons: Vec<String>,
    /// The run.
    pub run_id: RunId,
    /// Its place in the run's audit: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// The caller's step, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// When, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// The tool.
    pub tool: String,
    /// The call.
    pub tool_call_id: ToolCallId,
}

impl Record {
    /// The text that is hashed: this record without `hash`, keys sorted, no white space.
    pub fn to_canonical(&self) -> String {
        let unhashed = Self { hash: None, ..self.clone() };
        // A record holds strings, numbers and lists only, which always serialise; an empty text would fail verification.
        serde_json::to_string(&unhashed).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
