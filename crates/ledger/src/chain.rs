//! The part of an append that is the same for both databases: checks entries, chains their records to the run's head, and creates
//! their rows. The backends read the state for the checks ([`AppendState`]) and write the rows.

use std::collections::HashSet;

use model::{
    ApprovalId, ApprovalState, By, MAX_RUN_EVENT_BYTES, MAX_RUN_EVENTS, OUTSIDE_CHANGE_TOOL, Outcome, Record, RunId,
    RunState, Sha256, TokenId,
};

use crate::entry_rows::{EntryRows, HeadChange, fan_out, messages};
use crate::packed::PreparedEntry;
use crate::run_head::RunHead;
use crate::statement::to_int;
use crate::{
    Appended, Entry, EventQuota, FailedPrecondition, HistoryUse, LedgerError, Node, Records, Result, RunTransition,
    TokenHolder,
};

/// Selects the last position in use, also by rows whose record was removed: a new record must not get such a position.
pub(crate) const LAST_POSITION: &str = "SELECT coalesce(max(position), 0) FROM (\
    SELECT max(position) AS position FROM audit_record UNION ALL SELECT max(position) FROM record_path \
    UNION ALL SELECT max(position) FROM call_reply UNION ALL SELECT max(position) FROM artifact \
    UNION ALL SELECT max(position) FROM upload \
    UNION ALL SELECT max(content_no) >> 20 FROM content) AS known";

/// An earlier call with the ID of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryRepetition {
    /// A call with another tool or input.
    Other,
    /// The same call, and whether it has a stored reply.
    Same { has_reply: bool },
}

/// The state of the database that an append depends on, read within its transaction.
pub(crate) trait AppendState {
    /// Returns the node that this process is, if it has joined as one.
    fn node(&self) -> Option<&Node>;
    /// Returns the head of the entry's run.
    fn head(&mut self, run: &RunId) -> Result<&mut RunHead>;
    /// Returns whether a token of the run, or of an operator, is revoked.
    fn is_revoked(&mut self, run: &RunId, token: &TokenHolder) -> Result<bool>;
    /// Returns the first call with the ID of the entry, which the client supplied.
    fn earlier_call(&mut self, entry: &Entry, run_no: i64) -> Result<Option<EntryRepetition>>;
    /// Returns whether the run's approval is pending.
    fn is_pending(&mut self, approval: &ApprovalId, run_no: i64) -> Result<bool>;
    /// Returns whether a token of the run is revoked; `None` if the run has no such token.
    fn find_token(&mut self, run: &RunId, token: &TokenId) -> Result<Option<bool>>;
    /// Forgets what is known of a token that the append revokes, or of all tokens of the run.
    fn revoke(&mut self, run: &RunId, token: Option<&TokenId>) -> Result<()>;
    /// Returns whether the run has an upload with this digest.
    fn has_upload(&mut self, run_no: i64, sha256: &Sha256) -> Result<bool>;
    /// Returns whether the run refers to the object.
    fn has_object(&mut self, run_no: i64, object: &str) -> Result<bool>;
    /// Takes the next position.
    fn next_position(&mut self) -> Result<i64>;
}

/// Appends `entries` to `state` and adds their rows to `rows`, all or none.
pub(crate) fn append<'a>(
    state: &mut impl AppendState,
    entries: &'a [PreparedEntry],
    rows: &mut EntryRows<'a>,
) -> Result<Appended> {
    // Every check comes before the first change.
    check_owner(state, entries)?;
    for (index, entry) in entries.iter().enumerate() {
        if let Some(rejected) = check(state, entry, index)? {
            return Ok(rejected);
        }
    }
    if let Some(exceeded) = check_events(state, entries)? {
        return Ok(exceeded);
    }
    let object_bytes = entries.iter().map(|entry| new_object_bytes(state, entry)).collect::<Result<Vec<_>>>()?;
    if let Some(exceeded) = check_history(state, entries, object_bytes.iter().sum())? {
        return Ok(exceeded);
    }
    let mut records = Vec::with_capacity(entries.len());
    let mut history = HistoryUse::default();
    for (entry, object_bytes) in entries.iter().zip(object_bytes) {
        let position = state.next_position()?;
        match &entry.run_change {
            Some(RunTransition::RevokeToken(token)) => state.revoke(&entry.draft.run_id, Some(token))?,
            Some(RunTransition::RevokeAllTokens) => state.revoke(&entry.draft.run_id, None)?,
            _ => {}
        }
        let head = state.head(&entry.draft.run_id)?;
        let before = (head.state, head.usage.clone());
        let (record, body) = head.chain(entry);
        let row_bytes = rows.push(entry, body, [position, head.run_no, to_int(record.seq)])?;
        head.history_bytes += row_bytes + object_bytes;
        history = HistoryUse { added_bytes: history.added_bytes + row_bytes + object_bytes, bytes: head.history_bytes };
        let change = HeadChange { before, after: (head.state, &head.usage) };
        rows.changes.extend(messages(entry, &record, &change).iter().map(fan_out));
        records.push(record);
    }
    Ok(Appended::Recorded(Records { records, history }))
}

/// Fails if this process is a node that does not own the run of `entries` under the epoch that each names. The service's own chain
/// belongs to all nodes.
fn check_owner(state: &mut impl AppendState, entries: &[PreparedEntry]) -> Result<()> {
    let Some(node) = state.node().cloned() else { return Ok(()) };
    for entry in entries.iter().filter(|entry| !entry.draft.run_id.is_service() && !entry.is_of_any_owner) {
        let run = &entry.draft.run_id;
        let head = state.head(run)?;
        if head.owner.as_ref() != Some(&node) || entry.epoch != Some(head.epoch) {
            return Err(LedgerError::RunMoved(run.clone()));
        }
    }
    Ok(())
}

/// Returns the reason why `entry`, which is at `index`, cannot be appended.
fn check(state: &mut impl AppendState, entry: &Entry, index: usize) -> Result<Option<Appended>> {
    let run = &entry.draft.run_id;
    let is_revoked = match &entry.preconditions.token {
        Some(token) => state.is_revoked(run, &token.holder)?,
        None => false,
    };
    let head = state.head(run)?;
    if let Some(failed) = head.failed_precondition(entry, is_revoked) {
        return Ok(Some(Appended::PreconditionFailed(failed)));
    }
    let run_no = head.run_no;
    if let Some(rejected) = entry.run_change.as_ref().and_then(|change| change.rejection(head)) {
        return Ok(Some(rejected));
    }
    if let Some(RunTransition::RevokeToken(token)) = &entry.run_change {
        match state.find_token(run, token)? {
            Some(false) => {}
            Some(true) => return Ok(Some(Appended::Unchanged)),
            None => return Ok(Some(Appended::NoSuchToken)),
        }
    }
    if let Some(upload) = &entry.upload
        && state.has_upload(run_no, &upload.sha256)?
    {
        return Ok(Some(Appended::Unchanged));
    }
    match if entry.client_supplied_id { state.earlier_call(entry, run_no)? } else { None } {
        Some(EntryRepetition::Other) => return Ok(Some(Appended::Reused(index))),
        Some(EntryRepetition::Same { has_reply: true }) if entry.is_deduplicated() => {
            return Ok(Some(Appended::Repeated(index)));
        }
        Some(EntryRepetition::Same { .. }) if entry.event_bytes.is_some() => {
            return Ok(Some(Appended::Repeated(index)));
        }
        Some(EntryRepetition::Same { .. }) | None => {}
    }
    match &entry.approval_decision {
        Some(decision) if !state.is_pending(&decision.approval_id, run_no)? => Ok(Some(Appended::NotPending)),
        _ => Ok(None),
    }
}

/// Returns the bound that the run's events would exceed.
fn check_events(state: &mut impl AppendState, entries: &[PreparedEntry]) -> Result<Option<Appended>> {
    let more: Vec<u64> = entries.iter().filter_map(|entry| entry.event_bytes).collect();
    let Some(first) = entries.first().filter(|_| !more.is_empty()) else { return Ok(None) };
    let head = state.head(&first.draft.run_id)?;
    let (events, bytes) = (head.events + more.len() as u64, head.event_bytes + more.iter().sum::<u64>());
    let exceeded = |is_bytes, limit, actual| {
        (actual > limit).then_some(Appended::EventQuotaExceeded(EventQuota { is_bytes, limit, actual }))
    };
    Ok(exceeded(false, MAX_RUN_EVENTS, events).or_else(|| exceeded(true, MAX_RUN_EVENT_BYTES, bytes)))
}

/// Returns the bytes of the objects of `entry` to which its run does not refer yet.
fn new_object_bytes(state: &mut impl AppendState, entry: &Entry) -> Result<u64> {
    if entry.objects.is_empty() {
        return Ok(0);
    }
    let run_no = state.head(&entry.draft.run_id)?.run_no;
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    for object in &entry.objects {
        if seen.insert(&object.name) && !state.has_object(run_no, &object.name)? {
            bytes += object.size_bytes;
        }
    }
    Ok(bytes)
}

/// Returns the quota that the run's history would exceed. The calls of run tokens are bounded, those of people and of the service are
/// not, and neither is what ends a run or an approval: nobody is locked out. A refusal may use the reserve.
fn check_history(
    state: &mut impl AppendState,
    entries: &[PreparedEntry],
    object_bytes: u64,
) -> Result<Option<Appended>> {
    let Some(first) = entries.first().filter(|_| entries.iter().any(PreparedEntry::has_history_quota)) else {
        return Ok(None);
    };
    let head = state.head(&first.draft.run_id)?;
    let row_bytes: u64 = entries.iter().map(PreparedEntry::least_bytes).sum();
    let bytes = head.history_bytes.saturating_add(row_bytes).saturating_add(object_bytes);
    let records = head.seq + entries.len() as u64;
    let is_refused = |entry: &PreparedEntry| matches!(entry.draft.outcome, Outcome::Refused | Outcome::Failed);
    let reserve = entries.iter().all(is_refused);
    Ok(head.history_quota.exceeded(bytes, records, reserve).map(Appended::HistoryQuotaExceeded))
}

impl RunHead {
    /// Returns the precondition of `entry` that does not hold. `is_revoked` is whether the token that it requires is revoked.
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

    /// Chains the entry's record to the head and makes it the new head. Returns the record, and its JSON text with its hash.
    fn chain(&mut self, entry: &Entry) -> (Record, String) {
        let (record, body) = entry.draft.clone().link(self.seq, self.hash);
        self.seq = record.seq;
        self.hash = record.hash.unwrap_or(Sha256::ZERO);
        self.update_counters(entry);
        self.changed = true;
        (record, body)
    }

    fn update_counters(&mut self, entry: &Entry) {
        let draft = &entry.draft;
        let is_agents = entry.by == By::Agent;
        let is_call = draft.tool != OUTSIDE_CHANGE_TOOL;
        if is_call && draft.mutates && draft.outcome == Outcome::Ok && !entry.steps.is_empty() {
            *(if is_agents { &mut self.mutations } else { &mut self.people.mutations }) += 1;
        }
        if draft.made_by() != By::Agent {
            self.people.calls += 1;
        }
        if draft.is_denied() && is_agents {
            self.denied += 1;
        }
        self.usage.add(&entry.usage);
        self.disk = self.disk.map(|disk| disk.after(entry.disk));
        self.own = self.own.after(entry.own_disk);
        if let Some(bytes) = entry.event_bytes {
            self.events += 1;
            self.event_bytes += bytes;
        }
        if let Some(change) = &entry.run_change {
            change.apply(self);
        }
        if entry.approval.is_some() {
            self.pending_approvals += 1;
            self.replace_state(RunState::Open, RunState::AwaitingApproval);
        }
        if entry.approval_decision.as_ref().is_some_and(|decision| decision.state != ApprovalState::Pending) {
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
