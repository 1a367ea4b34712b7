//! Runs, their tokens and their approvals, in the shapes that callers see.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::named_enum::named_enum;
use crate::{ApprovalId, ApprovalWarning, Code, LogicalPath, OperatorName, Policy, RunId, Sha256, TokenId, ToolCallId};

named_enum! {
    /// The state of a run.
    pub enum RunState {
        /// The source is being imported, and tools are not available yet.
        Preparing = "preparing",
        /// Tools are available.
        Open = "open",
        /// At least one call waits for approval; reads are available.
        AwaitingApproval = "awaiting_approval",
        /// Mutations are refused; reads are available.
        Closed = "closed",
        /// The files are deleted. The audit remains; if the run has an `archiveUri`, it is in that archive.
        Deleted = "deleted",
    }
}

named_enum! {
    /// What a list of runs is ordered by.
    pub enum RunSort {
        /// When the run was created.
        Created = "created",
        /// When something was last recorded in the run.
        Activity = "activity",
        /// The lines that the run's agent has inserted and deleted.
        Changes = "changes",
        /// The calls that wait for approval.
        Waiting = "waiting",
        /// The run's `repository`.
        Repository = "repository",
        /// The run's `agent`.
        Agent = "agent",
    }
}

/// The source of a run's initial content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
pub enum Source {
    /// An empty tree.
    Empty {},
    /// The commit at `ref` of a repository.
    Git {
        /// An `https` URL, or a local path under an allowed import root.
        url: String,
        /// A branch, a tag or a commit. Default: the repository's HEAD.
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
        /// The name of a credential that the operator of the service has configured for the URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "forge")]
        credential: Option<String>,
    },
    /// A copy of a folder under an allowed import root.
    Directory {
        /// Its path on the server.
        path: String,
    },
    /// A tar, tar.gz or tar.zst archive, which the operator uploads next.
    Archive {},
    /// The files of another run at one of its records: a fork. Changes from outside and pending approvals are not taken over.
    Run {
        /// The run.
        #[serde(rename = "runId")]
        run_id: RunId,
        /// The record; 0 is the base, before any record. Default: the newest one.
        #[serde(default, rename = "atSeq", skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 0, example = 41)]
        at_seq: Option<u64>,
    },
}

impl Source {
    /// Returns the URL or the path of what the files come from.
    pub fn origin(&self) -> Option<&str> {
        match self {
            Self::Git { url, .. } => Some(url),
            Self::Directory { path } => Some(path),
            Self::Empty {} | Self::Archive {} | Self::Run { .. } => None,
        }
    }

    /// Returns the URL of a repository on another host.
    pub fn repository_url(&self) -> Option<&str> {
        self.origin().filter(|origin| origin.contains("://"))
    }
}

/// What a fork was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkedFrom {
    /// The run that was forked.
    pub run_id: RunId,
    /// The record whose state the fork starts with; 0 for the base of that run.
    pub seq: u64,
    /// The hash of that record; 64 zeros for the base.
    pub hash: Sha256,
    /// The source of the first run in this line of forks.
    pub source: Source,
    /// The record of the fork up to which its changes are merged into that run; missing if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_seq: Option<u64>,
}

/// A fork of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// The fork.
    pub run_id: RunId,
    /// The record of the run that it was forked at.
    pub at_seq: u64,
    /// The fork's state.
    pub state: RunState,
    /// The record of the fork up to which its changes are merged into the run; missing if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_seq: Option<u64>,
}

/// The progress of an import, and the entries that it skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportReport {
    /// Files imported so far.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
    /// Skipped entries and the reasons: at most 1,000 entries, and 64 KiB of paths and reasons.
    pub left_out: Vec<SkippedEntry>,
    /// The number of further skipped entries, which are not listed.
    #[serde(default)]
    pub left_out_more: u64,
    /// `waiting`, `fetching`, `writing`, `committing`, `done` or `failed`.
    pub progress: String,
    /// Whether the import, in progress or failed, began again because the service had stopped during it. This happens once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Why the import failed, if the run was created with `Prefer: respond-async`. The run is closed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ImportProblem>,
}

/// Why the import of a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportProblem {
    /// The code that a response would have.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// An entry of the source that the import skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedEntry {
    /// Its path in the source, escaped if it is not UTF-8.
    pub path: String,
    /// Why the import skipped it.
    pub reason: String,
}

/// A read-only tree that a run can read in addition to its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The name by which tools address it: lower-case letters, digits, `_` and `-`.
    pub name: String,
    /// A description of its content for the model.
    pub description: String,
    /// The names at its top level, at most 100.
    #[serde(default)]
    pub entries: Vec<String>,
}

/// Counts of the calls of a run's agent. Those of people are apart: [`PeopleCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Records of the agent in the audit.
    pub calls: u64,
    /// Mutations of the agent that were applied, also after an approval.
    pub mutations: u64,
    /// Calls of the agent that policy or a person denied, and change sets that left out what policy denies.
    pub denied: u64,
    /// Calls that wait for approval.
    pub pending_approvals: u64,
    /// Lines that its mutations have added, as budgets count them.
    #[serde(default)]
    #[schema(required = true)]
    pub insertions: u64,
    /// Lines that its mutations have removed.
    #[serde(default)]
    #[schema(required = true)]
    pub deletions: u64,
}

/// Counts of what others than the agent did in a run: operators and the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeopleCounts {
    /// Their records in the audit, with those of the run's lifecycle and of decisions.
    pub calls: u64,
    /// Their own mutations that were applied.
    pub mutations: u64,
}

/// The part of its `runBudget` that a run has used: the sum of [`Usage::of`] over its mutations.
///
/// A move touches one file and deletes none. Lockfiles count only if they are deleted. Refused calls, dry runs and pending
/// calls use nothing. A call that is reverted later still counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Distinct files touched. A file that an earlier call of the run touched does not count again.
    pub files_touched: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Files deleted.
    pub files_deleted: u64,
    /// Bytes of new files and, for replaced texts, of the lines that are new.
    pub bytes: u64,
}

impl Usage {
    /// Adds the usage of another call.
    pub fn add(&mut self, more: &Self) {
        self.files_touched += more.files_touched;
        self.insertions += more.insertions;
        self.deletions += more.deletions;
        self.files_deleted += more.files_deleted;
        self.bytes += more.bytes;
    }

    /// Subtracts what a failed call had reserved.
    pub fn subtract(&mut self, less: &Self) {
        self.files_touched = self.files_touched.saturating_sub(less.files_touched);
        self.insertions = self.insertions.saturating_sub(less.insertions);
        self.deletions = self.deletions.saturating_sub(less.deletions);
        self.files_deleted = self.files_deleted.saturating_sub(less.files_deleted);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// What the actor of a call by a run token begins with; the ID of the token follows.
pub const RUN_TOKEN_ACTOR: &str = "run-token:";

/// A token of a run, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunToken {
    /// The ID of the token.
    pub token_id: TokenId,
    /// What its holder may do in the run.
    pub permissions: Vec<Permission>,
    /// Who has issued it.
    pub issued_by: String,
    /// When it was issued, RFC 3339 UTC.
    pub created_at: String,
    /// When it expires; missing if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked; missing if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// The time of its last recorded call; missing if it has none among the newest records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// The size of a run's tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Bytes of all its files.
    pub bytes: u64,
    /// All its files and symbolic links.
    pub files: u64,
}

/// The disk space that a run takes: its tree, and its history in the database and in the object store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Disk)]
pub struct DiskUse {
    /// Bytes of all its files.
    pub bytes: u64,
    /// All its files and symbolic links.
    pub files: u64,
    /// Bytes of the files that the run has written. What it started from is shared with other runs.
    #[serde(default)]
    pub own_bytes: u64,
    /// The files and symbolic links that the run has written.
    #[serde(default)]
    pub own_files: u64,
    /// Bytes that its calls, reads included, have added to the database, as they are stored there, and those of its large contents in
    /// the object store. Calls before this was counted are missing.
    #[serde(default)]
    pub history_bytes: u64,
}

impl DiskUse {
    /// Returns the use of a run with this tree, of which the run has written `own`, and this history.
    pub fn new(tree: Disk, own: Disk, history_bytes: u64) -> Self {
        Self { bytes: tree.bytes, files: tree.files, own_bytes: own.bytes, own_files: own.files, history_bytes }
    }

    /// Returns the size of the tree.
    pub fn tree(self) -> Disk {
        Disk { bytes: self.bytes, files: self.files }
    }
}

/// The change of a [`Disk`] by a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskChange {
    /// Bytes added, or removed if negative.
    pub bytes: i64,
    /// Files added, or removed if negative.
    pub files: i64,
}

impl Disk {
    /// Returns the size after `change`.
    #[must_use]
    pub fn after(self, change: DiskChange) -> Self {
        Self {
            bytes: self.bytes.saturating_add_signed(change.bytes),
            files: self.files.saturating_add_signed(change.files),
        }
    }
}

impl DiskChange {
    /// The change from an empty tree to `disk`.
    pub fn to(disk: Disk) -> Self {
        Self {
            bytes: i64::try_from(disk.bytes).unwrap_or(i64::MAX),
            files: i64::try_from(disk.files).unwrap_or(i64::MAX),
        }
    }

    /// The additional space that the change needs; 0 where it removes.
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

/// A run: one execution of an agent, with its own file tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The run's ID.
    pub run_id: RunId,
    /// The run's state.
    pub state: RunState,
    /// When the run was created, RFC 3339 UTC.
    pub created_at: String,
    /// The operator who created the run; missing for a run of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<OperatorName>,
    /// When the run was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    /// When the run closes automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When the run was archived. Its state is `deleted` then, and its audit is in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<String>,
    /// The archive. `workspaced archive` verifies and reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "s3://archives/workspaced/issue-4711.9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.tar"
    )]
    pub archive_uri: Option<String>,
    /// The commit that the run started from. Absent while the run is `preparing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The source of its initial content.
    pub source: Source,
    /// What it was forked from, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ForkedFrom>,
    /// Its newest forks, at most 1,000, the newest first. Lists of runs and the answers to changes of a run lack them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<Vec<Fork>>,
    /// True if it has more forks than `forks` lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub more_forks: bool,
    /// The policy in force.
    pub policy: Policy,
    /// Its read-only mounts.
    pub mounts: Vec<Mount>,
    /// Labels that the orchestrator set.
    pub labels: BTreeMap<String, String>,
    /// The report of its import.
    pub import: ImportReport,
    /// The size of its tree, computed from the import and the changes by calls, and of its history.
    pub disk: DiskUse,
    /// Counts of the agent's calls.
    pub counts: RunCounts,
    /// Counts of what people and the service did.
    #[serde(default)]
    #[schema(required = true)]
    pub people: PeopleCounts,
    /// The last record's `seq`; 0 before the first.
    pub head_seq: u64,
    /// The last record's hash; 64 zeros before the first.
    pub head_hash: Sha256,
    /// When the last record was made; missing before the first, and if the run is archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activity_at: Option<String>,
    /// The repository: the label `repository` or `repo`, else the URL of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "acme/storefront")]
    pub repository: Option<String>,
    /// The agent that works in the run: the label `model` or `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "coder-large-4")]
    pub agent: Option<String>,
    /// The `summary` of the first `prompt` event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Customers are signed out after a redirect. Find out why and fix it.")]
    pub prompt: Option<String>,
}

impl Run {
    /// Returns where its files come from: for a fork, those of the first run of its line.
    pub fn first_source(&self) -> &Source {
        self.parent.as_ref().map_or(&self.source, |parent| &parent.source)
    }

    /// Sets `repository` and `agent` by the labels and the source.
    pub fn name_by_labels(&mut self) {
        self.repository =
            repository_of(&self.labels).or_else(|| self.first_source().repository_url()).map(str::to_owned);
        self.agent = agent_of(&self.labels).map(str::to_owned);
    }
}

/// Returns the repository that labels name.
pub fn repository_of(labels: &BTreeMap<String, String>) -> Option<&str> {
    first_label(labels, ["repository", "repo"])
}

/// Returns the agent that labels name.
pub fn agent_of(labels: &BTreeMap<String, String>) -> Option<&str> {
    first_label(labels, ["model", "agent"])
}

fn first_label<'l>(labels: &'l BTreeMap<String, String>, names: [&str; 2]) -> Option<&'l str> {
    names.into_iter().filter_map(|name| labels.get(name)).map(String::as_str).find(|value| !value.is_empty())
}

named_enum! {
    /// A permission of a token in its run.
    ///
    /// Only `file:read` permits answers with file content. Without it, `file:search` accepts literal text only and returns
    /// which files contain it, `file:diff` returns which files differ and their line counts, and a conflict has neither the
    /// current content nor its position; such an answer has `contentWithheld: true`. An artifact and the
    /// data of an event require `file:read` in addition to `audit:read`, and the run's patch requires `file:read` in addition to `file:diff`. A caller that may edit
    /// or search can still confirm a guess about a file's content, because the edit applies or the text is found. Each such
    /// guess is a recorded call. A folder is moved or deleted only with `file:list` in addition, because answers name its files.
    #[expect(missing_docs, reason = "the contract describes each permission")]
    pub enum Permission {
        FileList = "file:list",
        FileRead = "file:read",
        FileSearch = "file:search",
        FileDiff = "file:diff",
        FileWriteCreate = "file:write:create",
        FileWriteReplace = "file:write:replace",
        FilePatchApply = "file:patch:apply",
        FileDelete = "file:delete",
        FileMove = "file:move",
        AuditRead = "audit:read",
        EventAppend = "event:append",
        EvidenceAttest = "evidence:attest",
        ChangesetApply = "changeset:apply",
        CommandServe = "command:serve",
    }
}

impl Permission {
    /// The permissions of a token that is issued without a list of them. `event:append`,
    /// `evidence:attest`, `changeset:apply` and `command:serve` are given by name only, since they state what happened outside of the
    /// service: a model must not write the account that it is judged by.
    pub const DEFAULT: [Self; 10] = [
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
}

/// A run token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The token's ID.
    pub token_id: TokenId,
    /// The run that it permits access to.
    pub run_id: RunId,
    /// SHA-256 of its secret.
    pub secret_sha256: Sha256,
    /// What it permits.
    pub permissions: Vec<Permission>,
    /// When it expires, RFC 3339 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether it was revoked.
    pub revoked: bool,
}

named_enum! {
    /// The state of an approval.
    pub enum ApprovalState {
        /// Nobody has decided yet.
        Pending = "pending",
        /// The call was approved and executed.
        Approved = "approved",
        /// The call was denied.
        Denied = "denied",
        /// Nobody decided in time.
        Expired = "expired",
        /// The call was approved, but its execution failed.
        Failed = "failed",
    }
}

/// A call that waits or waited for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The approval's ID.
    pub approval_id: ApprovalId,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool: String,
    /// The caller's reason for the call.
    pub reason: String,
    /// The caller, as in the call's record.
    pub actor: String,
    /// The approval's state.
    pub state: ApprovalState,
    /// The rules that require approval.
    pub reasons: Vec<String>,
    /// The files that would change, with the hashes before and after.
    pub files: Vec<ApprovalFile>,
    /// What speaks against the change, the most severe first.
    #[serde(default)]
    #[schema(required = true)]
    pub warnings: Vec<ApprovalWarning>,
    /// The diff of the change. Lists have no diffs: get the single approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// When the approval was requested, RFC 3339 UTC.
    pub created_at: String,
    /// When the approval expires, RFC 3339 UTC.
    pub expires_at: String,
    /// How many operators must approve.
    #[serde(default = "one_approver")]
    #[schema(required = true, minimum = 1)]
    pub approvers: u64,
    /// Whether the operator who created the run, and the operator who made the call, may not approve.
    #[serde(default)]
    #[schema(required = true)]
    pub not_creator: bool,
    /// The operators who have approved, in order.
    #[serde(default)]
    #[schema(required = true)]
    pub approved_by: Vec<OperatorName>,
    /// The operator who decided; of several, the last one. An earlier version stored the `decidedBy` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The person for whom that operator decided, as the request named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// A note on the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The votes that count: while the approval is pending those of operators that are not revoked, afterwards those that decided.
    #[serde(default)]
    #[schema(required = true)]
    pub votes: Vec<ApprovalVote>,
    /// The number of the decision's record; missing for a decision of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_seq: Option<u64>,
    /// The number of the first record of the changes that the person who approved has made to the result; missing if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_seq: Option<u64>,
    /// What became of the call: `approved (record N)`, `approved (record N), with changes (record M)`, `denied: NOTE`, `expired` or
    /// `failed: CODE`. Missing while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "approved (record 7)")]
    pub resolution: Option<String>,
}

impl Approval {
    /// Sets `resolution` by the state. `code` is that of a call that could not be executed.
    pub fn resolve(&mut self, code: Option<Code>) {
        let with = |state: &str, more: Option<String>| match more {
            Some(more) => format!("{state}{more}"),
            None => state.to_owned(),
        };
        self.resolution = match self.state {
            ApprovalState::Pending => None,
            ApprovalState::Approved => {
                let approved = with("approved", self.decided_seq.map(|seq| format!(" (record {seq})")));
                Some(with(&approved, self.edited_seq.map(|seq| format!(", with changes (record {seq})"))))
            }
            ApprovalState::Denied => Some(with("denied", self.note.as_ref().map(|note| format!(": {note}")))),
            ApprovalState::Expired => Some("expired".to_owned()),
            ApprovalState::Failed => Some(with("failed", code.map(|code| format!(": {code}")))),
        };
    }
}

/// An operator's approval of a call that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalVote {
    /// The operator.
    pub operator: OperatorName,
    /// The person for whom the operator has approved, if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
}

/// The number of approvers of an approval that an earlier version stored.
const fn one_approver() -> u64 {
    1
}

/// A file of an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalFile {
    /// The path.
    pub path: LogicalPath,
    /// `create`, `replace`, `delete` or `move`.
    pub operation: String,
    /// Hash before the change; absent if the file does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Hash after the change; absent if the file is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
    /// Lines that the change adds.
    #[serde(default)]
    #[schema(required = true)]
    pub insertions: u64,
    /// Lines that the change removes.
    #[serde(default)]
    #[schema(required = true)]
    pub deletions: u64,
}
