//! What the leaves of the tree say of one run's chain.

use ledger::StoredLeaf;
use model::{ChainBreak, ChainReport};

use crate::CallError;
use crate::checkpoints::Published;
use crate::service::Service;

/// Leaves that are asked for at a time.
pub(crate) const PAGE: u32 = 500;

/// A run's leaves compared with its records, one by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafCheck {
    /// The last record that a leaf confirms.
    confirmed: u64,
    /// The first leaf that does not hold.
    broken: Option<(u64, u64)>,
}

impl LeafCheck {
    /// Takes the run's next leaf.
    pub(crate) fn push(&mut self, leaf: &StoredLeaf) {
        if leaf.recorded != Some(leaf.head_hash) {
            self.broken.get_or_insert((leaf.index, leaf.head_seq));
        } else if self.broken.is_none() {
            self.confirmed = self.confirmed.max(leaf.head_seq);
        }
    }

    /// The last record that a leaf confirms; 0 where there is none.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Adds to the report of the run's chain what its leaves tell.
    pub(crate) fn add_to(&self, report: &mut ChainReport) {
        let Some((leaf, seq)) = self.broken else { return };
        let found = if report.head_seq < seq && report.first_break.is_none() {
            let problem = format!("leaf {leaf} of the checkpoints holds record {seq}: records were cut off");
            ChainBreak { seq: report.head_seq + 1, problem }
        } else {
            let problem = format!(
                "record {seq} is not the one that leaf {leaf} of the checkpoints holds: the history behind {} was rewritten",
                self.confirmed
            );
            ChainBreak { seq: self.confirmed + 1, problem }
        };
        // A broken link tells more than a leaf does.
        report.first_break.get_or_insert(found);
        report.intact = false;
    }
}

impl Service {
    /// Compares the chain of a checked run with the leaves that are signed: how far they cover it.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub(crate) async fn check_leaves(&self, report: &mut ChainReport) -> Result<u64, CallError> {
        let signed = match &*self.0.checkpoints.published.borrow() {
            Published::Signed(signed) => signed.size,
            Published::Nothing | Published::Halted => return Ok(0),
        };
        let (mut check, mut from) = (LeafCheck::default(), 0);
        while from < signed {
            let page = self.0.ledger.leaves(Some(&report.run_id), from, PAGE).await?;
            let Some(last) = page.last() else { break };
            from = last.index + 1;
            page.iter().filter(|leaf| leaf.index < signed).for_each(|leaf| check.push(leaf));
        }
        check.add_to(report);
        Ok(check.confirmed())
    }
}
