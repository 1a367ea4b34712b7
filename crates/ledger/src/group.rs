//! A run's head while a group of entries is put behind it.

use std::collections::HashSet;

use model::{
    Disk, Draft, LogicalPath, Outcome, Record, RecordFile, RunState, Sha256, Step, StepBytes, StepContent, Usage,
    Verdict,
};

use crate::backend::Columns;
use crate::{Entry, FailedPrecondition, Result, rows};

/// Reads what [`RunHead::read`] takes; what follows names the run.
macro_rules! select_head {
    ($rest:literal) => {
        select_head!("", $rest)
    };
    // `$more` are further columns, each with a comma before it.
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT run_id, run.run_no, state, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files",
            $more,
            " FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $rest
        )
    };
}

pub(crate) use select_head;

/// Where a run's audit stands.
#[derive(Clone, Debug)]
pub(crate) struct RunHead {
    pub(crate) run_no: i64,
    pub(crate) state: RunState,
    pub(crate) seq: u64,
    pub(crate) hash: Sha256,
    pub(crate) mutations: u64,
    pub(crate) denied: u64,
    pub(crate) pending_approvals: u64,
    pub(crate) usage: Usage,
    /// What the tree holds, where that was counted.
    pub(crate) disk: Option<Disk>,
    /// Whether it is ahead of what is stored.
    pub(crate) changed: bool,
    /// Whether `state` is.
    pub(crate) state_changed: bool,
}

/// A record with what the ledger keeps of it.
pub(crate) struct Linked {
    pub(crate) record: Record,
    pub(crate) decision: &'static str,
    pub(crate) outcome: &'static str,
    /// Its JSON text, `hash` included.
    pub(crate) body: String,
}

impl RunHead {
    pub(crate) fn read(row: &dyn Columns) -> Result<Self> {
        let count = |column| row.int(column).map(crate::backend::to_count);
        Ok(Self {
            run_no: row.int(1)?,
            state: rows::run_state(&row.text(2)?)?,
            seq: count(3)?,
            hash: rows::sha256(&row.bytes(4)?)?,
            mutations: count(5)?,
            denied: count(6)?,
            pending_approvals: count(7)?,
            usage: rows::usage(row, 8)?,
            disk: rows::disk(row, 13)?,
            changed: false,
            state_changed: false,
        })
    }

    /// What `entry` needs and does not have, as the run is in this transaction, where its token `is_revoked` or not.
    pub(crate) fn unmet(&self, entry: &Entry, is_revoked: bool) -> Option<FailedPrecondition> {
        let expired = entry
            .preconditions
            .token
            .as_ref()
            .is_some_and(|token| token.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= (token.now)()));
        let takes_mutations = matches!(self.state, RunState::Open | RunState::AwaitingApproval);
        if is_revoked || expired {
            Some(FailedPrecondition::Token)
        } else {
            (entry.preconditions.open_run && !takes_mutations).then_some(FailedPrecondition::Run(self.state))
        }
    }

    /// Puts `entry` behind the head, which becomes its record's.
    pub(crate) fn link(&mut self, entry: &Entry) -> Linked {
        let draft = &entry.draft;
        let linked = Linked::new(draft.clone().link(self.seq, self.hash));
        self.seq = linked.record.seq;
        self.hash = linked.record.hash.unwrap_or(Sha256::ZERO);
        self.count(draft, entry);
        self.changed = true;
        linked
    }

    fn count(&mut self, draft: &Draft, entry: &Entry) {
        if draft.mutates && draft.outcome == Outcome::Ok && !entry.steps.is_empty() {
            self.mutations += 1;
        }
        if draft.decision == Verdict::Deny {
            self.denied += 1;
        }
        self.usage.add(&entry.usage);
        self.disk = self.disk.map(|disk| disk.after(entry.disk));
        if entry.approval.is_some() {
            self.pending_approvals += 1;
            self.move_state(RunState::Open, RunState::AwaitingApproval);
        }
        if entry.approval_decision.is_some() {
            self.pending_approvals = self.pending_approvals.saturating_sub(1);
            if self.pending_approvals == 0 {
                self.move_state(RunState::AwaitingApproval, RunState::Open);
            }
        }
    }

    fn move_state(&mut self, from: RunState, to: RunState) {
        if self.state == from {
            self.state = to;
            self.state_changed = true;
        }
    }
}

impl Linked {
    fn new((record, body): (Record, String)) -> Self {
        Self { decision: decision_word(record.decision), outcome: outcome_word(record.outcome), body, record }
    }

    /// Every path of the record once: what the `path` filter looks through.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let Record { paths_read, paths_written, files, .. } = &self.record;
        paths_of(paths_read, paths_written, files)
    }
}

/// Every path that was read, written or asked for in vain, once and in order.
pub(crate) fn paths_of<'a>(
    read: &'a [LogicalPath],
    written: &'a [LogicalPath],
    files: &'a [RecordFile],
) -> Vec<&'a str> {
    let asked = files.iter().map(|file| &file.path);
    let mut paths: Vec<_> = read.iter().chain(written).chain(asked).map(LogicalPath::as_str).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The last position that anything was put at. What hangs on a record that somebody cut off keeps its place.
pub(crate) const LAST_POSITION: &str = "SELECT coalesce(max(position), 0) FROM (\
    SELECT max(position) AS position FROM audit_record UNION ALL SELECT max(position) FROM record_path \
    UNION ALL SELECT max(position) FROM call_reply UNION ALL SELECT max(position) FROM artifact \
    UNION ALL SELECT max(content_no) >> 20 FROM content) AS known";

/// Which contents `c` a record left, by its position.
macro_rules! left_at {
    ($position:literal) => {
        concat!("c.content_no >= (", $position, " << 20) AND c.content_no < ((", $position, " + 1) << 20)")
    };
}

pub(crate) use left_at;

/// The numbers of what the record at `position` leaves, as [`left_at`] looks for them: no call has a million files.
pub(crate) fn content_numbers(position: i64) -> impl Iterator<Item = i64> {
    position << 20..(position + 1) << 20
}

/// What the steps leave in files, as far as it is handed to the ledger: each content once.
pub(crate) fn contents_of<'a>(steps: &'a [Step]) -> Vec<(&'a Sha256, &'a [u8])> {
    let mut known = HashSet::new();
    let inline = |after: &'a StepContent| match &after.bytes {
        StepBytes::Inline(bytes) => Some((&after.sha256, bytes.as_slice())),
        StepBytes::Staged(_) => None,
    };
    steps.iter().filter_map(|step| inline(step.after.as_ref()?)).filter(|(sha256, _)| known.insert(*sha256)).collect()
}

pub(crate) fn decision_word(decision: Verdict) -> &'static str {
    match decision {
        Verdict::Allow => "ALLOW",
        Verdict::RequireApproval => "REQUIRE_APPROVAL",
        Verdict::Deny => "DENY",
    }
}

pub(crate) fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Refused => "refused",
        Outcome::Pending => "pending",
        Outcome::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_record() {
        for verdict in [Verdict::Allow, Verdict::RequireApproval, Verdict::Deny] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), decision_word(verdict));
        }
        for outcome in [Outcome::Ok, Outcome::Refused, Outcome::Pending, Outcome::Failed] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome_word(outcome));
        }
    }
}
