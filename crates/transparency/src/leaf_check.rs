//! The check of a run's chain against the leaves of the checkpoint tree.

use model::{ChainBreak, ChainReport};

/// Compares the leaves of one run with its records, in the order of the tree.
#[derive(Clone, Debug, Default)]
pub struct LeafCheck {
    /// The last record that a leaf confirms.
    confirmed_seq: u64,
    /// The largest `seq` of a leaf so far.
    last_seq: u64,
    /// The first problem, except that a leaf that goes back replaces a mismatch.
    problem: Option<LeafProblem>,
}

/// Why a leaf does not confirm the chain.
#[derive(Clone, Copy, Debug)]
enum LeafProblem {
    /// The run has another record with this `seq`, or none.
    Mismatch { leaf: u64, seq: u64 },
    /// An earlier leaf has a larger `seq`: signed history was cut off.
    Backwards { leaf: u64, seq: u64 },
    /// The leaf is not in a signed tree.
    Unsigned { leaf: u64 },
}

impl LeafCheck {
    /// Adds the run's next leaf, which is number `index` and has the record `seq` as its head. `matches` says whether the
    /// run has a record with this `seq` and the leaf's hash.
    pub fn push(&mut self, index: u64, seq: u64, matches: bool) {
        if seq <= self.last_seq && !matches!(self.problem, Some(LeafProblem::Unsigned { .. })) {
            self.problem = Some(LeafProblem::Backwards { leaf: index, seq });
        } else if !matches {
            self.problem.get_or_insert(LeafProblem::Mismatch { leaf: index, seq });
        } else if self.problem.is_none() {
            self.confirmed_seq = seq;
        }
        self.last_seq = self.last_seq.max(seq);
    }

    /// Adds the run's next leaf, which no signature confirms.
    pub fn push_unsigned(&mut self, index: u64) {
        self.problem.get_or_insert(LeafProblem::Unsigned { leaf: index });
    }

    /// Returns the last record that a leaf confirms, or 0.
    pub fn confirmed_seq(&self) -> u64 {
        self.confirmed_seq
    }

    /// Adds the problem that was found to the report of the run's chain.
    pub fn add_to(&self, report: &mut ChainReport) {
        let Some(problem) = self.problem else { return };
        let confirmed = self.confirmed_seq;
        let (seq, problem) = match problem {
            LeafProblem::Mismatch { leaf, seq } if report.head_seq < seq && report.is_chain_valid() => {
                let problem = format!("checkpoint leaf {leaf} has record {seq}: records were cut off");
                (report.head_seq + 1, problem)
            }
            LeafProblem::Mismatch { leaf, seq } => {
                let problem = format!(
                    "record {seq} is not the one of checkpoint leaf {leaf}: the history after record {confirmed} was \
                    rewritten"
                );
                (confirmed + 1, problem)
            }
            LeafProblem::Backwards { leaf, seq } => {
                let problem = format!(
                    "checkpoint leaf {leaf} has record {seq}, but an earlier leaf has a later record: the history after \
                    record {confirmed} was cut off and replaced"
                );
                (confirmed + 1, problem)
            }
            LeafProblem::Unsigned { leaf } => {
                let problem = format!(
                    "checkpoint leaf {leaf} was changed after it was signed: no checkpoint confirms the history after \
                    record {confirmed}"
                );
                (confirmed + 1, problem)
            }
        };
        // A break in the chain itself names the bad record, a leaf only a range.
        if report.is_chain_valid() {
            report.first_break = Some(ChainBreak { seq, problem });
        }
        report.intact = false;
    }
}
