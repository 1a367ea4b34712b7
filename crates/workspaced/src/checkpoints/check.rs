//! What the leaves of the tree say of one run's chain.

use ledger::{Ledger, StoredLeaf};
use model::{ChainBreak, ChainReport, RunId};
use serde::Serialize;

use crate::CallError;
use crate::checkpoints::{Published, Signed};
use crate::service::Service;

/// Leaves that are asked for at a time.
pub(crate) const PAGE: u32 = 500;

/// A run's leaves compared with its records, one by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafCheck {
    /// The last record that a leaf confirms.
    confirmed: u64,
    /// The record that the leaf before holds.
    before: u64,
    /// What is wrong with the first leaf that does not hold.
    broken: Option<Broken>,
}

/// Why a leaf does not hold.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// The run's chain has another record in its place, or none.
    Other { leaf: u64, seq: u64 },
    /// It holds a record before that of the leaf before: what was signed had been cut off.
    Back { leaf: u64, seq: u64 },
    /// What was signed is over other leaves.
    Unsigned { leaf: u64 },
}

impl LeafCheck {
    /// Takes the run's next leaf.
    pub(crate) fn push(&mut self, leaf: &StoredLeaf) {
        let (index, seq) = (leaf.index, leaf.head_seq);
        if seq <= self.before && !matches!(self.broken, Some(Broken::Unsigned { .. })) {
            self.broken = Some(Broken::Back { leaf: index, seq });
        } else if leaf.recorded != Some(leaf.head_hash) {
            self.broken.get_or_insert(Broken::Other { leaf: index, seq });
        } else if self.broken.is_none() {
            self.confirmed = seq;
        }
        self.before = self.before.max(seq);
    }

    /// Takes the run's next leaf, which no signature confirms.
    pub(crate) fn doubt(&mut self, leaf: &StoredLeaf) {
        self.broken.get_or_insert(Broken::Unsigned { leaf: leaf.index });
    }

    /// The last record that a leaf confirms; 0 where there is none.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Adds to the report of the run's chain what its leaves tell.
    pub(crate) fn add_to(&self, report: &mut ChainReport) {
        let confirmed = self.confirmed;
        let found = match self.broken {
            None => return,
            Some(Broken::Other { leaf, seq }) if report.head_seq < seq && report.first_break.is_none() => {
                let problem = format!("leaf {leaf} of the checkpoints holds record {seq}: records were cut off");
                ChainBreak { seq: report.head_seq + 1, problem }
            }
            Some(Broken::Other { leaf, seq }) => {
                let problem = format!(
                    "record {seq} is not the one that leaf {leaf} of the checkpoints holds: \
                    the history behind {confirmed} was rewritten"
                );
                ChainBreak { seq: confirmed + 1, problem }
            }
            Some(Broken::Back { leaf, seq }) => {
                let problem = format!(
                    "leaf {leaf} of the checkpoints holds record {seq}, and one before it a later record: \
                    the history behind {confirmed} was cut off, and others grew in its place"
                );
                ChainBreak { seq: confirmed + 1, problem }
            }
            Some(Broken::Unsigned { leaf }) => {
                let problem = format!(
                    "leaf {leaf} of the checkpoints is not what was signed: \
                    no checkpoint confirms the history behind {confirmed}"
                );
                ChainBreak { seq: confirmed + 1, problem }
            }
        };
        // A broken link tells more than a leaf does.
        report.first_break.get_or_insert(found);
        report.intact = false;
    }
}

/// The leaves of a run among the first `size` of the tree, in order.
///
/// # Errors
///
/// Where the ledger fails.
pub(crate) async fn leaves_of(ledger: &dyn Ledger, run: &RunId, size: u64) -> ledger::Result<Vec<StoredLeaf>> {
    let mut leaves: Vec<StoredLeaf> = Vec::new();
    loop {
        let from = leaves.last().map_or(0, |leaf| leaf.index + 1);
        let page = ledger.leaves(Some(run), from, PAGE).await?;
        let known = page.iter().filter(|leaf| leaf.index < size).count();
        leaves.extend(page.into_iter().take(known));
        if known < PAGE as usize {
            return Ok(leaves);
        }
    }
}

/// What a check of a run's chain found.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditVerification {
    #[serde(flatten)]
    report: ChainReport,
    /// The last record that a signed checkpoint covers; 0 where there is none yet.
    checkpointed_seq: u64,
}

impl Service {
    /// Checks a run's chain from its first record to its last, and against the checkpoints.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    pub(crate) async fn verify_run(&self, run: &RunId) -> Result<AuditVerification, CallError> {
        let mut report = self.ledger.verify(run).await?;
        let checkpointed_seq = self.check_leaves(&mut report).await?;
        Ok(AuditVerification { report, checkpointed_seq })
    }

    /// Compares the chain of a checked run with the leaves that are signed: how far they cover it.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub(crate) async fn check_leaves(&self, report: &mut ChainReport) -> Result<u64, CallError> {
        let published = self.state.checkpoints.published.borrow().clone();
        let size = match &published {
            Published::Nothing => return Ok(0),
            Published::Signed(signed) => signed.size,
            // What is wrong there may be this run.
            Published::Halted => u64::MAX,
        };
        let leaves = leaves_of(self.ledger.as_ref(), &report.run_id, size).await?;
        let mut check = LeafCheck::default();
        let signed = match &published {
            Published::Signed(signed) => self.count_signed(&leaves, signed).await?,
            Published::Nothing | Published::Halted => leaves.len(),
        };
        leaves.iter().take(signed).for_each(|leaf| check.push(leaf));
        leaves.iter().skip(signed).for_each(|leaf| check.doubt(leaf));
        check.add_to(report);
        Ok(if matches!(published, Published::Halted) { 0 } else { check.confirmed() })
    }

    /// How many of a run's leaves are in the tree that was signed. The newest one tells of all before it, since each fixes
    /// the run's whole history up to its record; where it is not there, they are asked one by one.
    async fn count_signed(&self, leaves: &[StoredLeaf], signed: &Signed) -> Result<usize, CallError> {
        let mut count = leaves.len();
        while let Some(last) = leaves[..count].last() {
            if self.is_signed(last, signed).await? {
                break;
            }
            count -= 1;
        }
        Ok(count)
    }
}
