//! Appending in memory, the same for both databases: checks an entry and chains its record to the run's head. The databases
//! differ in how they look up what the checks need, and in how they write the rows.

use model::{ApprovalId, Disk, Draft, Outcome, Record, RunId, RunState, Sha256, TokenId, Usage, Verdict};

use crate::backend::{RowReader, to_count, to_int};
use crate::entry_rows::EntryRows;
use crate::{Appended, Entry, FailedPrecondition, Result, rows};

/// Selects what [`RunHead::read`] reads.
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

/// The last position in use, also by rows whose record was removed from the database: a new record must not get them.
pub(crate) const LAST_POSITION: &str = "SELECT coalesce(max(position), 0) FROM (\
    SELECT max(position) AS position FROM audit_record UNION ALL SELECT max(position) FROM record_path \
    UNION ALL SELECT max(position) FROM call_reply UNION ALL SELECT max(position) FROM artifact \
    UNION ALL SELECT max(content_no) >> 20 FROM content) AS known";
/// The head of a run's chain, with the counters that each record updates.
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
    /// The size of the tree, if it is known.
    pub(crate) disk: Option<Disk>,
    /// Whether the head differs from the stored one.
    pub(crate) changed: bool,
    /// Whether `state` differs from the stored one.
    pub(crate) state_changed: bool,
}

/// An earlier call with the ID of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EarlierCall {
    /// It has another tool or input.
    Other,
    /// It is the same call.
    Same { is_answered: bool },
}

/// What an append reads within its transaction.
pub(crate) trait AppendState {
    /// Returns the head of the entry's run.
    fn head(&mut self, run: &RunId) -> Result<&mut RunHead>;
    /// Returns whether the run's token is revoked.
    fn is_revoked(&mut self, run: &RunId, token: &TokenId) -> Result<bool>;
    /// Returns the first call with the ID of the entry, which the client supplied.
    fn earlier_call(&mut self, entry: &Entry, run_no: i64) -> Result<Option<EarlierCall>>;
    /// Returns whether the run's approval is pending.
    fn is_pending(&mut self, approval: &ApprovalId, run_no: i64) -> Result<bool>;
    /// Takes the next position.
    fn next_position(&mut self) -> i64;
}

/// Appends `entries` to `state` and their rows to `rows`, all or none.
pub(crate) fn append<'a>(
    state: &mut impl AppendState,
    entries: &'a [Entry],
    rows: &mut EntryRows<'a>,
) -> Result<Appended> {
    // Every check comes before the first change.
    for (index, entry) in entries.iter().enumerate() {
        if let Some(rejected) = check(state, entry, index)? {
            return Ok(rejected);
        }
    }
    let mut records = Vec::with_capacity(entries.len());
    for entry in entries {
        let position = state.next_position();
        let head = state.head(&entry.draft.run_id)?;
        let (record, body) = head.chain(entry);
        rows.push(entry, body, [position, head.run_no, to_int(record.seq)])?;
        records.push(record);
    }
    Ok(Appended::Recorded(records))
}

/// Returns why `entry`, which is at `index`, cannot be appended.
fn check(state: &mut impl AppendState, entry: &Entry, index: usize) -> Result<Option<Appended>> {
    let run = &entry.draft.run_id;
    let is_revoked = match &entry.preconditions.token {
        Some(token) => state.is_revoked(run, &token.token_id)?,
        None => false,
    };
    let head = state.head(run)?;
    if let Some(failed) = head.failed_precondition(entry, is_revoked) {
        return Ok(Some(Appended::PreconditionFailed(failed)));
    }
    let run_no = head.run_no;
    match if entry.client_supplied_id { state.earlier_call(entry, run_no)? } else { None } {
        Some(EarlierCall::Other) => return Ok(Some(Appended::Reused(index))),
        Some(EarlierCall::Same { is_answered: true }) if entry.is_answered_once() => {
            return Ok(Some(Appended::Repeated(index)));
        }
        Some(EarlierCall::Same { .. }) | None => {}
    }
    match &entry.approval_decision {
        Some(decision) if !state.is_pending(&decision.approval_id, run_no)? => Ok(Some(Appended::NotPending)),
        _ => Ok(None),
    }
}

impl RunHead {
    /// Reads a row of [`select_head`].
    pub(crate) fn read(row: &dyn RowReader) -> Result<Self> {
        let count = |column| row.int(column).map(to_count);
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

    /// Returns the precondition of `entry` that does not hold. `is_revoked` is about the token that it requires.
    fn failed_precondition(&self, entry: &Entry, is_revoked: bool) -> Option<FailedPrecondition> {
        let expired = entry
            .preconditions
            .token
            .as_ref()
            .is_some_and(|token| token.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= (token.now)()));
        let accepts_mutations = matches!(self.state, RunState::Open | RunState::AwaitingApproval);
        if is_revoked || expired {
            Some(FailedPrecondition::Token)
        } else {
            (entry.preconditions.open_run && !accepts_mutations).then_some(FailedPrecondition::Run(self.state))
        }
    }

    /// Chains the entry's record to the head, which becomes that record. Returns it, and its JSON text with its hash.
    fn chain(&mut self, entry: &Entry) -> (Record, String) {
        let draft = &entry.draft;
        let (record, body) = draft.clone().link(self.seq, self.hash);
        self.seq = record.seq;
        self.hash = record.hash.unwrap_or(Sha256::ZERO);
        self.count(draft, entry);
        self.changed = true;
        (record, body)
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
            self.replace_state(RunState::Open, RunState::AwaitingApproval);
        }
        if entry.approval_decision.is_some() {
            self.pending_approvals = self.pending_approvals.saturating_sub(1);
            if self.pending_approvals == 0 {
                self.replace_state(RunState::AwaitingApproval, RunState::Open);
            }
        }
    }

    fn replace_state(&mut self, from: RunState, to: RunState) {
        if self.state == from {
            self.state = to;
            self.state_changed = true;
        }
    }
}
