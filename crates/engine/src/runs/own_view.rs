//! A run as the holder of its token sees it: what it may still do, and what lies at the top of its tree.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{BudgetOverrides, LogicalPath, Mount, Permission, Policy, Run, RunId, RunState, Token, TokenId, Usage};
use serde::Serialize;
use workspace::{CancelOnDrop, FolderEntry, ListQuery, Listing, NotShown};

use crate::call_error::refusals::{run_not_found, timed_out};
use crate::run::open_run::OpenRun;
use crate::runs::Runs;
use crate::{CallError, reconcile};

/// Maximum number of entries of the listing.
const MAX_ENTRIES: usize = 300;

/// A run as the holder of its token sees it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnRun {
    /// The ID of the run.
    run_id: RunId,
    /// The state of the run.
    state: RunState,
    /// When it was created, RFC 3339 UTC.
    created_at: String,
    /// When it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<String>,
    /// When it closes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// The commit that it started from; missing while it is `preparing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_commit: Option<String>,
    /// The token of the request.
    token: OwnToken,
    /// The policy in force.
    policy: Policy,
    /// What the run has used of its budgets.
    usage: RunAmounts,
    /// What the run may still use. Amounts without a limit are missing.
    remaining: RunAmounts,
    /// The read-only trees.
    mounts: Vec<Mount>,
    /// The top level of the tree, as `list_dir` lists it, at most 300 entries; missing if the run has no files, or they cannot
    /// be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<FolderEntry>>,
    /// Whether entries are omitted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    truncated: bool,
    /// The entries that the listing leaves out.
    #[serde(skip_serializing_if = "NotShown::is_empty")]
    #[schema(required = false)]
    not_shown: NotShown,
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnToken {
    /// The ID of the token.
    token_id: TokenId,
    /// What its holder may do in the run.
    permissions: Vec<Permission>,
    /// When it expires, RFC 3339 UTC; missing if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// What a run has used, and what remains.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RunUsage {
    /// What the run has used of its budgets.
    usage: RunAmounts,
    /// What the run may still use. Amounts without a limit are missing.
    remaining: RunAmounts,
}

impl RunUsage {
    fn of(run: &Run, usage: &Usage) -> Self {
        Self {
            usage: RunAmounts { run_budget: BudgetAmounts::used(usage), quota: QuotaAmounts::used(run) },
            remaining: RunAmounts {
                run_budget: BudgetAmounts::remaining(run.policy.run_budget.as_ref(), usage),
                quota: QuotaAmounts::remaining(run),
            },
        }
    }
}

/// Amounts of a run's budgets.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunAmounts {
    /// Of the policy's `runBudget`.
    run_budget: BudgetAmounts,
    /// Of the policy's `quota`.
    quota: QuotaAmounts,
}

/// Amounts of a `runBudget`.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetAmounts {
    /// Different files.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_touched: Option<u64>,
    /// Added lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    insertions: Option<u64>,
    /// Removed lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletions: Option<u64>,
    /// Deleted files.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_deleted: Option<u64>,
    /// Bytes of new files and new lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Amounts of a `quota`.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QuotaAmounts {
    /// Bytes of all files of the tree.
    tree_bytes: u64,
    /// Files of the tree.
    files: u64,
    /// Calls that wait for approval.
    pending_approvals: u64,
    /// Bytes that its calls, reads included, have added to the database and to the object store.
    history_bytes: u64,
    /// Records of its calls.
    records: u64,
}

impl Runs {
    /// Returns a run as the holder of `token`, which is one of its tokens, sees it. Not recorded.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_NEEDS_REPAIR` where the database's row of the run is damaged; `UNAVAILABLE`.
    #[boxed]
    pub async fn own_run(&self, token: &Token) -> Result<OwnRun, CallError> {
        let run = self.engine.run(&token.run_id).await?;
        let RunUsage { usage, remaining } = self.run_usage(&token.run_id).await?;
        let limit = self.engine.limits.request_timeout;
        let listing = tokio::time::timeout(limit, self.top_level(&run)).await;
        let listing = listing.unwrap_or_else(|_| Err(timed_out(limit).into()))?;
        let truncated = listing.as_ref().is_some_and(|listing| listing.truncated);
        let not_shown = listing.as_ref().map(|listing| listing.not_shown).unwrap_or_default();
        Ok(OwnRun {
            token: OwnToken {
                token_id: token.token_id.clone(),
                permissions: token.permissions.clone(),
                expires_at: token.expires_at.clone(),
            },
            usage,
            remaining,
            run_id: run.run_id,
            state: run.state,
            created_at: run.created_at,
            closed_at: run.closed_at,
            expires_at: run.expires_at,
            base_commit: run.base_commit,
            policy: run.policy,
            mounts: run.mounts,
            entries: listing.map(|listing| listing.entries),
            truncated,
            not_shown,
        })
    }

    /// Returns what a run has used, and what remains, as its tokens see it.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    #[boxed]
    pub async fn run_usage(&self, run: &RunId) -> Result<RunUsage, CallError> {
        let found = self.engine.run(run).await?;
        let usage = self.engine.ledger.run(run).await?.ok_or_else(run_not_found)?.usage;
        Ok(RunUsage::of(&found, &usage))
    }

    /// Lists the top level of a run's tree; `None` if the run has no files, or they cannot be read.
    async fn top_level(&self, run: &Run) -> Result<Option<Listing>, CallError> {
        if matches!(run.state, RunState::Preparing | RunState::Deleted) || run.base_commit.is_none() {
            return Ok(None);
        }
        let opened = match self.engine.open(&run.run_id).await {
            Ok(open_run) => reconcile::ensure_consistent(&self.engine, &open_run).await.map(|()| open_run),
            Err(error) => Err(error),
        };
        let open_run = match opened {
            Ok(open_run) => open_run,
            Err(CallError::Refused(refusal)) if !refusal.code.is_retryable() || is_broken(&refusal) => return Ok(None),
            Err(error) => return Err(error),
        };
        let _permit = self.engine.read_permit(false).await;
        // Dropped with this future when the caller goes away. The thread sees the flag and stops.
        let cancel_on_drop = CancelOnDrop::default();
        let cancel = cancel_on_drop.flag();
        let listed = Arc::clone(&open_run);
        self.engine.read_one_state(&open_run, move || list(&listed, &cancel)).await.map(Some)
    }
}

fn list(open_run: &OpenRun, cancel: &AtomicBool) -> Result<Listing, CallError> {
    let query = ListQuery {
        path: LogicalPath::root(),
        max_depth: 1,
        include_hidden: false,
        include_ignored: false,
        max_entries: MAX_ENTRIES,
        after: None,
        counts_all: false,
    };
    Ok(open_run.workspace.tree().list(&open_run.rules, &query, cancel)?)
}

/// Whether the run needs repair, which its holder learns from its calls.
fn is_broken(refusal: &model::Refusal) -> bool {
    refusal.code == model::Code::RunNeedsRepair
}

impl BudgetAmounts {
    fn used(usage: &Usage) -> Self {
        Self {
            files_touched: Some(usage.files_touched),
            insertions: Some(usage.insertions),
            deletions: Some(usage.deletions),
            files_deleted: Some(usage.files_deleted),
            bytes: Some(usage.bytes),
        }
    }

    fn remaining(budget: Option<&BudgetOverrides>, usage: &Usage) -> Self {
        let budget = budget.cloned().unwrap_or_default();
        let rest = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        Self {
            files_touched: rest(budget.max_files_touched, usage.files_touched),
            insertions: rest(budget.max_insertions, usage.insertions),
            deletions: rest(budget.max_deletions, usage.deletions),
            files_deleted: rest(budget.max_files_deleted, usage.files_deleted),
            bytes: rest(budget.max_bytes, usage.bytes),
        }
    }
}

impl QuotaAmounts {
    fn used(run: &Run) -> Self {
        Self {
            tree_bytes: run.disk.bytes,
            files: run.disk.files,
            pending_approvals: run.counts.pending_approvals,
            history_bytes: run.disk.history_bytes,
            records: run.head_seq,
        }
    }

    fn remaining(run: &Run) -> Self {
        let (quota, used) = (&run.policy.quota, Self::used(run));
        Self {
            tree_bytes: quota.max_tree_bytes.saturating_sub(used.tree_bytes),
            files: quota.max_files.saturating_sub(used.files),
            pending_approvals: quota.pending_approvals.saturating_sub(used.pending_approvals),
            history_bytes: quota.max_history_bytes.saturating_sub(used.history_bytes),
            records: quota.max_records.saturating_sub(used.records),
        }
    }
}
