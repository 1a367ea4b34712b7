//! How far the checkpoints cover a run's chain.

use async_recursion::async_recursion as boxed;
use engine::audit::ReportVerification;
use ledger::{Ledger, StoredLeaf};
use model::{ChainReport, RunId};
use serde::Serialize;
use transparency::LeafCheck;

use crate::checkpoints::{CheckpointState, Checkpoints, PAGE, SignedCheckpoint};
use engine::CallError;

/// Adds a stored leaf to the check of its run.
pub fn push_leaf(check: &mut LeafCheck, leaf: &StoredLeaf) {
    check.push(leaf.index, leaf.head_seq, leaf.recorded == Some(leaf.head_hash));
}

/// Returns the leaves of a run among the first `size` of the tree, in order.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn leaves_of(ledger: &dyn Ledger, run: &RunId, size: u64) -> ledger::Result<Vec<StoredLeaf>> {
    let mut leaves: Vec<StoredLeaf> = Vec::new();
    loop {
        let from = leaves.last().map_or(0, |leaf| leaf.index + 1);
        let page = ledger.leaves(Some(run), from, PAGE).await?;
        let within = page.iter().filter(|leaf| leaf.index < size).count();
        leaves.extend(page.into_iter().take(within));
        if within < PAGE as usize {
            return Ok(leaves);
        }
    }
}

/// The result of verifying a run's audit chain.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditVerification {
    #[serde(flatten)]
    report: ChainReport,
    /// The last record that a signed checkpoint covers, or 0.
    checkpointed_seq: u64,
}

impl AuditVerification {
    /// Whether the chain is valid, ends at record `seq`, and is covered by a checkpoint up to there. A change from outside that is
    /// not recorded stays visible in the archived records.
    pub fn is_confirmed(&self, seq: u64) -> bool {
        self.report.is_chain_valid() && self.report.head_seq == seq && self.checkpointed_seq == seq
    }

    /// Returns the first problem of the chain.
    pub fn problem(&self) -> Option<String> {
        self.report.first_break.as_ref().map(|found| format!("record {}: {}", found.seq, found.problem))
    }

    /// Returns the result as a report has it.
    pub fn summary(self) -> ReportVerification {
        let Self { report, checkpointed_seq } = self;
        ReportVerification {
            intact: report.intact,
            verified_seq: report.head_seq,
            checkpointed_seq,
            problem: report.first_break.map(|found| found.problem),
        }
    }
}

impl Checkpoints {
    /// Verifies a run's chain from its first record to its last, and against the checkpoints.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    #[boxed]
    pub async fn verify_run(&self, run: &RunId) -> Result<AuditVerification, CallError> {
        self.verify_leaves(self.ledger.verify(run).await?).await
    }

    /// Completes the report of a run's chain with what contradicts the checkpoints.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn verify_leaves(&self, mut report: ChainReport) -> Result<AuditVerification, CallError> {
        let checkpointed_seq = self.check_leaves(&mut report).await?;
        Ok(AuditVerification { report, checkpointed_seq })
    }

    /// Adds to the report of a run's chain what contradicts the signed leaves. Returns the last record that they cover.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    async fn check_leaves(&self, report: &mut ChainReport) -> Result<u64, CallError> {
        let state = self.state.borrow().clone();
        let size = match &state {
            CheckpointState::Empty => return Ok(0),
            CheckpointState::Signed(signed) => signed.size,
            // The contradiction may be in this run.
            CheckpointState::Halted => u64::MAX,
        };
        let leaves = leaves_of(self.ledger.as_ref(), &report.run_id, size).await?;
        let mut check = LeafCheck::default();
        let signed_leaves = match &state {
            CheckpointState::Signed(signed) => self.count_signed(&leaves, signed).await?,
            CheckpointState::Empty | CheckpointState::Halted => leaves.len(),
        };
        let (signed, unsigned) = leaves.split_at(signed_leaves);
        for leaf in signed {
            push_leaf(&mut check, leaf);
        }
        for leaf in unsigned {
            check.push_unsigned(leaf.index);
        }
        check.add_to(report);
        Ok(if matches!(state, CheckpointState::Halted) { 0 } else { check.confirmed_seq() })
    }

    /// Returns how many of a run's leaves are in the signed tree.
    ///
    /// The newest leaf is enough if the tree has it, since each one fixes the run's history up to its record. Otherwise the
    /// leaves are checked one by one from the newest.
    async fn count_signed(&self, leaves: &[StoredLeaf], signed: &SignedCheckpoint) -> Result<usize, CallError> {
        let mut count = leaves.len();
        while let Some(last) = leaves[..count].last() {
            if self.prove_leaf(last, signed).await?.is_some() {
                break;
            }
            count -= 1;
        }
        Ok(count)
    }
}
