//! Runs, their tokens and their approvals, in the shapes that callers see.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ApprovalId, LogicalPath, Policy, RunId, Sha256, TokenId, ToolCallId};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its source is still coming in; no tool works yet.
    Preparing,
    /// Tools work.
    Open,
    /// A call waits for a person; reads go on.
    AwaitingApproval,
    /// No more mutations; reads go on.
    Closed,
    /// The files are gone; the audit stays.
    Deleted,
}

impl RunState {
    /// The state as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Open => "open",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Closed => "closed",
            Self::Deleted => "deleted",
        }
    }
}

/// What a run starts with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
pub enum Source {
    /// An empty tree.
    Empty {},
    /// The commit at `ref` of a repository.
    Git {
        /// An `https` address, or a local path under an allowed import root.
        url: String,
        /// A branch, a tag or a commit; the repository's HEAD where it is missing.
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    /// A copy of a folder under an allowed import root.
    Directory {
        /// Where it is on the server.
        path: String,
    },
    /// A tar or tar.gz that the operator sends next.
    Archive {},
}

/// How far an import is, and what it left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportReport {
    /// Files brought in so far.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was left out and why; at most 1,000 entries, and 64 KiB of paths and reasons.
    pub left_out: Vec<SkippedEntry>,
    /// How many more entries were left out and are not listed.
    #[serde(default)]
    pub left_out_more: u64,
    /// `waiting`, `fetching`, `writing`, `committing` or `done`.
    pub progress: String,
}

/// Something that an import left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedEntry {
    /// Its path in the source, escaped where it is not UTF-8.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A read-only tree that a run may browse beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// What tools call it by: lower-case letters, digits, `_` and `-`.
    pub name: String,
    /// What is in it, for the model to read.
    pub description: String,
    /// Its top level, at most 100 names.
    #[serde(default)]
    pub entries: Vec<String>,
}

/// What a run has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Records in its audit.
    pub calls: u64,
    /// Mutations that took place.
    pub mutations: u64,
    /// Calls that policy denied.
    pub denied: u64,
    /// Calls that wait for a person.
    pub pending_approvals: u64,
}

/// What a run's mutations have used up, for its `runBudget`: the sum of [`Usage::of`] each of them.
///
/// A move touches two files and deletes none. Lockfiles count for nothing but the files deleted. A refused call, a dry run
/// and one that waits for a person use up nothing; one that is undone later has used up what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Different files touched: a file that the run has touched before counts no more.
    pub files_touched: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Files deleted.
    pub files_deleted: u64,
    /// Bytes of new files and, where a text was replaced, of the lines that were new in it.
    pub bytes: u64,
}

impl Usage {
    /// Adds what another call uses.
    pub fn add(&mut self, more: &Self) {
        self.files_touched += more.files_touched;
        self.insertions += more.insertions;
        self.deletions += more.deletions;
        self.files_deleted += more.files_deleted;
        self.bytes += more.bytes;
    }

    /// Takes back what a failed call had reserved.
    pub fn subtract(&mut self, less: &Self) {
        self.files_touched = self.files_touched.saturating_sub(less.files_touched);
        self.insertions = self.insertions.saturating_sub(less.insertions);
        self.deletions = self.deletions.saturating_sub(less.deletions);
        self.files_deleted = self.files_deleted.saturating_sub(less.files_deleted);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// What a run's tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its files and symbolic links.
    pub files: u64,
}

/// By how much a call changes a [`Disk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskChange {
    /// Bytes more, or fewer.
    pub bytes: i64,
    /// Files more, or fewer.
    pub files: i64,
}

impl Disk {
    /// What is held after `change`.
    #[must_use]
    pub fn after(self, change: DiskChange) -> Self {
        Self {
            bytes: self.bytes.saturating_add_signed(change.bytes),
            files: self.files.saturating_add_signed(change.files),
        }
    }
}

impl DiskChange {
    /// From nothing to `disk`.
    pub fn to(disk: Disk) -> Self {
        Self {
            bytes: i64::try_from(disk.bytes).unwrap_or(i64::MAX),
            files: i64::try_from(disk.files).unwrap_or(i64::MAX),
        }
    }

    /// What it needs more than there was.
    pub fn growth(self) -> Disk {
        Disk { bytes: u64::try_from(self.bytes).unwrap_or(0), files: u64::try_from(self.files).unwrap_or(0) }
    }
}

impl std::ops::AddAssign for DiskChange {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.files = self.files.saturating_add(more.files);
    }
}

/// One execution of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its ID.
    pub run_id: RunId,
    /// Where it stands.
    pub state: RunState,
    /// When it was created, RFC 3339 UTC.
    pub created_at: String,
    /// When it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    /// When it closes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The commit that it started from; absent while it prepares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// What it was made from.
    pub source: Source,
    /// The policy in force.
    pub policy: Policy,
    /// Its read-only trees.
    pub mounts: Vec<Mount>,
    /// The orchestrator's own notes.
    pub labels: BTreeMap<String, String>,
    /// How its import went.
    pub import: ImportReport,
    /// What its tree holds, as far as calls have changed it.
    pub disk: Disk,
    /// What it has been through.
    pub counts: RunCounts,
    /// The last record's `seq`; 0 before the first.
    pub head_seq: u64,
    /// The last record's hash; 64 zeros before the first.
    pub head_hash: Sha256,
}

/// What a token's holder may do in its run.
///
/// Content of files is shown with `file:read` only. Without it `file:search` takes a literal text only and tells which files
/// hold it, `file:diff` tells which files differ and by how much and not the text, a conflict tells that it is one and not
/// what is there, or where; such an answer says `contentWithheld: true`. An artifact needs `file:read` beside `audit:read`, the
/// run's patch `file:read` beside `file:diff`. Whoever may edit or search can still confirm a guess at what a file holds: by
/// whether the edit fits, or the text is found. Each such guess is a call, and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[expect(missing_docs, reason = "the names say it, and the contract lists them")]
pub enum Permission {
    #[serde(rename = "file:list")]
    FileList,
    #[serde(rename = "file:read")]
    FileRead,
    #[serde(rename = "file:search")]
    FileSearch,
    #[serde(rename = "file:diff")]
    FileDiff,
    #[serde(rename = "file:write:create")]
    FileWriteCreate,
    #[serde(rename = "file:write:replace")]
    FileWriteReplace,
    #[serde(rename = "file:patch:apply")]
    FilePatchApply,
    #[serde(rename = "file:delete")]
    FileDelete,
    #[serde(rename = "file:move")]
    FileMove,
    #[serde(rename = "audit:read")]
    AuditRead,
}

impl Permission {
    /// All of them: what a token has unless it was made with fewer.
    pub const ALL: [Self; 10] = [
        Self::FileList,
        Self::FileRead,
        Self::FileSearch,
        Self::FileDiff,
        Self::FileWriteCreate,
        Self::FileWriteReplace,
        Self::FilePatchApply,
        Self::FileDelete,
        Self::FileMove,
        Self::AuditRead,
    ];

    /// The permission as callers write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FileList => "file:list",
            Self::FileRead => "file:read",
            Self::FileSearch => "file:search",
            Self::FileDiff => "file:diff",
            Self::FileWriteCreate => "file:write:create",
            Self::FileWriteReplace => "file:write:replace",
            Self::FilePatchApply => "file:patch:apply",
            Self::FileDelete => "file:delete",
            Self::FileMove => "file:move",
            Self::AuditRead => "audit:read",
        }
    }
}

/// A run token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its name.
    pub token_id: TokenId,
    /// The run it is for.
    pub run_id: RunId,
    /// SHA-256 of its secret.
    pub secret_sha256: Sha256,
    /// What it may do.
    pub permissions: Vec<Permission>,
    /// When it ends, RFC 3339 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether it was revoked.
    pub revoked: bool,
}

/// Where an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Expired,
    Failed,
}

impl ApprovalState {
    /// The state as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }
}

/// A call that waits, or waited, for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its ID.
    pub approval_id: ApprovalId,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool: String,
    /// Why the caller wants it.
    pub reason: String,
    /// Who asked.
    pub actor: String,
    /// Where it stands.
    pub state: ApprovalState,
    /// The rules that ask for a person.
    pub reasons: Vec<String>,
    /// The files that would change, with the hashes before and after.
    pub files: Vec<ApprovalFile>,
    /// What would change.
    pub diff: String,
    /// When it was asked for, RFC 3339 UTC.
    pub created_at: String,
    /// When it lapses.
    pub expires_at: String,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// What they noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A file of an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalFile {
    /// The path.
    pub path: LogicalPath,
    /// `create`, `replace`, `delete` or `move`.
    pub operation: String,
    /// Hash before; absent where there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Hash after; absent where there will be no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
}
