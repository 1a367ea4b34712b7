//! The report of a run, for people who review it: what was read, written, refused and approved. The list of its records tells the order.
//!
//! A report is bounded in bytes for every run, and says how much it leaves out.

mod collect;
mod markdown;

use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ledger::{ApprovalFilter, RecordFilter, RecordReader};
use model::{Approval, ApprovalState, ChainReport, Code, FileKind, Run, RunId, RunState, Sha256, ToolCallId, Usage};
use serde::Serialize;
use serde_json::Value;
use workspace::DiffQuery;

use crate::audit::Audit;
use crate::call_error::refusals::{run_not_found, timed_out};
use crate::history::content_history;
use crate::run::lifecycle::shown_source;
use crate::tool::output::is_zero;
use crate::{CallError, reconcile};

use collect::{Collector, cut, fit};

/// The most approvals that are looked at.
const MAX_APPROVALS: u32 = 200;
/// The most paths and the most reasons of an approval.
const MAX_PATHS: usize = 10;
const MAX_REASONS: usize = 5;
/// The most bytes of JSON of the approvals.
const MAX_APPROVAL_BYTES: usize = 32 * 1024;

/// The most bytes of JSON of the files of the diff.
const MAX_DIFF_FILE_BYTES: usize = 64 * 1024;

/// The report of a run.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The run.
    pub run_id: RunId,
    /// Its state.
    pub state: RunState,
    /// What the agent was asked to do: the `summary` of the first `prompt` event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    /// What it started with. Of a local folder or repository it has the hash of the path.
    #[schema(value_type = Object, example = json!({"type": "git", "url": "https://example.org/repository.git"}))]
    pub source: Value,
    /// The commit that it started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The policy's profile.
    pub policy_profile: String,
    /// The orchestrator's labels.
    pub labels: BTreeMap<String, String>,
    /// The last record that the report covers.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// How far the run's chain was verified. Missing if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<ReportVerification>,
    /// Numbers of records.
    pub counts: ReportCounts,
    /// What mutations have used of the run's budget.
    pub budgets: Vec<ReportBudget>,
    /// The differences between the files and the run's start. Missing if the run has no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<ReportDiff>,
    /// Why `diff` is missing, if the files could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_problem: Option<Code>,
    /// The files that calls have named: those that changed first, then refused ones, then those that were only read.
    pub files: Vec<ReportFile>,
    /// Number of files that are left out of `files`.
    pub more_files: u64,
    /// The newest commands and tests that runners have recorded, in order.
    pub commands: Vec<ReportCommand>,
    /// Number of commands and tests that are left out.
    pub more_commands: u64,
    /// The approvals, in order.
    pub approvals: Vec<ReportApproval>,
    /// Number of approvals that are left out.
    pub more_approvals: u64,
    /// When the newest record was made, without those of people who only looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_at: Option<String>,
}

/// The result of verifying the run's chain.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportVerification {
    /// Whether the chain is valid.
    pub intact: bool,
    /// The last record that was verified.
    pub verified_seq: u64,
    /// The last record that a signed checkpoint covers, or 0.
    pub checkpointed_seq: u64,
    /// What is wrong with the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Numbers of records by what they record. What people only looked at is in `records` alone.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportCounts {
    /// All records.
    pub records: u64,
    /// Successful reads.
    pub reads: u64,
    /// Successful mutations.
    pub writes: u64,
    /// Dry runs.
    pub dry_runs: u64,
    /// Refused calls.
    pub refused: u64,
    /// Calls that policy or a person denied, and change sets of which policy denied an entry, which they left out.
    pub denied: u64,
    /// Calls that required an approval.
    pub approvals_requested: u64,
    /// Calls that failed by a fault of the service.
    pub failed: u64,
    /// Events and uploaded artifacts.
    pub events: u64,
    /// Commands that callers had run; missing if none.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub commands: u64,
}

/// One member of the run's budget.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportBudget {
    /// The name of the limit.
    #[schema(example = "maxFilesTouched")]
    pub name: &'static str,
    /// What was used.
    pub used: u64,
    /// The limit over the whole run. Missing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Counts of the final diff.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportDiff {
    /// Number of files that differ.
    pub files_changed: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Hash of the diff's text.
    pub diff_sha256: Sha256,
    /// The files that differ, by path.
    pub files: Vec<ReportDiffFile>,
    /// Number of files that are left out of `files`.
    pub more_files: u64,
}

/// A file of the final diff.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportDiffFile {
    /// The path, cut to 300 characters.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub status: String,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

/// What calls did with one file.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportFile {
    /// The path, cut to 300 characters.
    pub path: String,
    /// Its kind, as of the last record with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Number of reads.
    pub reads: u64,
    /// Number of mutations.
    pub writes: u64,
    /// Number of refused calls that named it.
    pub refused: u64,
    /// The last record with it.
    pub last_seq: u64,
    /// Hash before the first mutation. Missing if the file did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Hash after the last mutation. Missing if the file is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
}

/// A command or a test that a runner has recorded.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportCommand {
    #[serde(skip)]
    id: ToolCallId,
    /// The number of its record.
    pub seq: u64,
    /// `event.command` or `event.test`.
    pub tool: String,
    /// The command and how it ended, cut to 300 characters.
    pub summary: String,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Whether the files are still those that it has left: nothing has changed since, what it changed itself is in the run, and it found no
    /// other files than those of the run.
    pub is_current: bool,
    /// How many files it found that were not the run's, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs_count: Option<u64>,
    /// The record of what it changed itself, if that is not in the run: it waits for a person, or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_applied_seq: Option<u64>,
    /// Whether the token that recorded it may attest evidence.
    pub is_attested: bool,
    /// SHA-256 of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<Sha256>,
    /// The hash of the tree that it has seen, if it ran in a new folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_sha256: Option<Sha256>,
}

/// An approval.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportApproval {
    /// The approval.
    pub approval_id: model::ApprovalId,
    /// The tool.
    pub tool: String,
    /// The state.
    pub state: ApprovalState,
    /// The caller's reason, cut to 300 characters.
    pub reason: String,
    /// The rules that required it.
    pub reasons: Vec<String>,
    /// The first 10 files, each cut to 300 characters.
    pub paths: Vec<String>,
    /// The operator who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The person for whom the operator decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The record of what they changed in the result, if they approved with changes of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_seq: Option<u64>,
    /// Their note, cut to 300 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Audit {
    /// Returns the report of a run up to its newest record, and the verification of its chain if `verifies`, which is left to the
    /// caller to add. Both are made of one pass over the records.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is archived; `UNAVAILABLE` if the files cannot be compared within the time limit.
    #[boxed]
    pub async fn report(&self, id: &RunId, verifies: bool) -> Result<(RunReport, Option<ChainReport>), CallError> {
        // Also closes a run whose time is over.
        self.engine.run(id).await?;
        self.engine.known_run(id).await?;
        let stored = self.engine.ledger.run(id).await?.ok_or_else(run_not_found)?;
        let (run, usage) = (stored.run, stored.usage);
        let (mut collected, chain) = self.collect(&run, verifies).await?;
        let (files, more_files) = collected.take_files();
        let (diff, diff_problem) = match self.diff_counts(id, run.state).await {
            Ok(diff) => (diff, None),
            Err(CallError::Refused(refusal)) => (None, Some(refusal.code)),
            Err(error) => return Err(error),
        };
        let of_run = ApprovalFilter { run: Some(id.clone()), ..ApprovalFilter::default() };
        let approvals = self.engine.ledger.approvals(&of_run, None, MAX_APPROVALS.into()).await?;
        let all = u64::from(approvals.more) + approvals.len() as u64;
        let approvals =
            fit(approvals.into_iter().map(|(_, approval)| ReportApproval::of(approval)), MAX_APPROVAL_BYTES);
        let report = RunReport {
            budgets: budgets(&run, &usage),
            run_id: run.run_id,
            state: run.state,
            prompt: run.prompt,
            created_at: run.created_at,
            closed_at: run.closed_at,
            source: shown_source(&run.source),
            base_commit: run.base_commit,
            policy_profile: run.policy.profile,
            labels: run.labels,
            head_seq: run.head_seq,
            head_hash: run.head_hash,
            verification: None,
            counts: collected.counts,
            diff,
            diff_problem,
            files,
            more_files,
            commands: collected.commands.into(),
            more_commands: collected.more_commands,
            more_approvals: all - approvals.len() as u64,
            approvals,
            last_at: collected.last_at,
        };
        Ok((report, chain))
    }

    /// Reads the records of a run up to its head, and verifies them on the way if `verifies`.
    pub(super) async fn collect(
        &self,
        run: &Run,
        verifies: bool,
    ) -> Result<(Collector, Option<ChainReport>), CallError> {
        let mut collector = Collector::new(run.head_seq);
        let chain = if verifies {
            Some(self.verify_story(&run.run_id, &mut |record| collector.push(record)).await?)
        } else {
            None
        };
        if !collector.is_complete() {
            // Without verification, or also the records after the first invalid one.
            collector = Collector::new(run.head_seq);
        }
        let filter = RecordFilter { run: Some(run.run_id.clone()), ..RecordFilter::default() };
        let mut records = RecordReader::new(self.engine.ledger.as_ref(), filter);
        while !collector.is_complete() {
            let Some(stored) = records.next().await? else { break };
            collector.push(&content_history::parse(&stored.text)?);
        }
        Ok((collector, chain))
    }

    /// Compares the files with the run's start. `None` if the run has no files.
    async fn diff_counts(&self, id: &RunId, state: RunState) -> Result<Option<ReportDiff>, CallError> {
        if matches!(state, RunState::Preparing | RunState::Deleted) {
            return Ok(None);
        }
        let run = match self.engine.open(id).await {
            Err(error) if error.is(Code::RunClosed) => return Ok(None),
            opened => opened?,
        };
        reconcile::ensure_consistent(&self.engine, &run).await?;
        let _permit = self.engine.read_permit(true).await;
        let open_run = Arc::clone(&run);
        let compare = self.engine.read_one_state(&open_run, move || {
            let query = DiffQuery { path: None, stat_only: true, max_bytes: 0 };
            let diff = run.workspace.diff(&run.rules, &query, &AtomicBool::new(false))?;
            let files = diff.files.into_iter().map(|file| ReportDiffFile {
                path: cut(&file.path),
                status: file.status,
                insertions: file.insertions,
                deletions: file.deletions,
            });
            let files = fit(files, MAX_DIFF_FILE_BYTES);
            Ok(ReportDiff {
                more_files: (diff.files_changed - files.len()) as u64,
                files,
                files_changed: diff.files_changed as u64,
                insertions: diff.insertions,
                deletions: diff.deletions,
                diff_sha256: diff.diff_sha256,
            })
        });
        let limit = self.engine.limits.request_timeout;
        tokio::time::timeout(limit, compare).await.unwrap_or_else(|_| Err(timed_out(limit).into())).map(Some)
    }
}

impl ReportApproval {
    fn of(approval: Approval) -> Self {
        Self {
            approval_id: approval.approval_id,
            tool: approval.tool,
            state: approval.state,
            reason: cut(&approval.reason),
            reasons: approval.reasons.iter().take(MAX_REASONS).map(|reason| cut(reason)).collect(),
            paths: approval.files.iter().take(MAX_PATHS).map(|file| cut(file.path.as_str())).collect(),
            decided_by: approval.decided_by,
            on_behalf_of: approval.on_behalf_of.as_deref().map(cut),
            edited_seq: approval.edited_seq,
            note: approval.note.as_deref().map(cut),
        }
    }
}

pub(super) fn budgets(run: &Run, usage: &Usage) -> Vec<ReportBudget> {
    let limits = run.policy.run_budget.as_ref();
    let budget = |name, used, limit: Option<u64>| ReportBudget { name, used, limit };
    vec![
        budget("maxFilesTouched", usage.files_touched, limits.and_then(|limits| limits.max_files_touched)),
        budget("maxInsertions", usage.insertions, limits.and_then(|limits| limits.max_insertions)),
        budget("maxDeletions", usage.deletions, limits.and_then(|limits| limits.max_deletions)),
        budget("maxFilesDeleted", usage.files_deleted, limits.and_then(|limits| limits.max_files_deleted)),
        budget("maxBytes", usage.bytes, limits.and_then(|limits| limits.max_bytes)),
    ]
}
