//! The rows of appended entries, the same for both databases, and the messages to webhooks that entries cause.
//!
//! Messages are stored in the transaction of their records. Refused calls have none here: their deliveries are made from the audit, so
//! that they cost the call nothing.

use std::borrow::Cow;
use std::collections::hash_map::{self, HashMap};
use std::ops::RangeInclusive;

use model::{
    ApprovalState, DeniedEntry, EventKind, LogicalPath, Outcome, Record, RecordFile, RunState, Sha256, Step, StepBytes,
    Usage, Verdict, WebhookMessage,
};

use crate::filter::ZONE_POSITIONS;
use crate::insert::insert_keyed_answer;
use crate::newest_versions::has_written;
use crate::packed::{Packed, PreparedEntry, bytes_params, content_params, inline_contents, text_params};
use crate::run_head::RunHead;
use crate::statement::{Check, Param, Rows, Statement, tables};
use crate::{Artifact, Entry, EntryObject, ObjectHolder, Result, UploadedContent, rows};

const SET_PROMPT: &str = "UPDATE run SET prompt = $2 WHERE run_id = $1 AND prompt IS NULL";
/// Adds the zone `$1`, the positions `$2` to `$3`, to the zone map.
const SEAL_ZONE: &str = "INSERT INTO audit_zone (zone, min_timestamp, max_timestamp) \
    SELECT $1, min(timestamp), max(timestamp) FROM audit_record WHERE position >= $2 AND position <= $3 \
    HAVING count(*) > 0 ON CONFLICT (zone) DO NOTHING";

/// Makes a run refer to an object. A reference that lasts as long as the run stays one.
const REFER_TO_OBJECT: &str = "INSERT INTO object_reference (run_no, object, size_bytes, is_while_present) \
    SELECT run_no, $2, $3, $4 FROM run WHERE run_id = $1 ON CONFLICT (object, run_no) DO UPDATE \
    SET is_while_present = object_reference.is_while_present AND excluded.is_while_present";
/// Locks the row of the object `$1` until the commit, so that no claim passes a reference.
const USE_OBJECT: &str = "UPDATE stored_object SET reservation = reservation \
    WHERE object = $1 AND reservation = $2 AND claim IS NULL";
const ADD_OBJECT_PATH: &str = "INSERT INTO object_path (run_no, path_sha256, object) \
    SELECT run_no, $2, $3 FROM run WHERE run_id = $1 ON CONFLICT (run_no, path_sha256) DO UPDATE SET object = excluded.object";
const LEAVE_OBJECT_PATH: &str = "DELETE FROM object_path \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND path_sha256 = $2";

tables! {
    RECORD: Insert audit_record (
        position Int, run_no Int, seq Int, tool_call_id Text, tool Text, timestamp Text, decision Text, outcome Text,
        mutates Bool, made_by Text, denied Bool, reason Text, input_sha256 Bytes, body Text, body_bytes Int, packed Bytes
    );
    PATH: Insert record_path (position Int, path Text, run_no Int);
    REPLY: Insert call_reply (position Int, status Int, body Text, body_bytes Int, packed Bytes);
    ARTIFACT: Insert artifact (position Int, artifact_id Text, run_no Int, diff Bytes, diff_bytes Int);
    CONTENT: Insert content (
        content_no Int, run_no Int, sha256 Bytes, bytes Bytes, raw_bytes Int, needs_diff Bool
    );
    NEWEST: Replace newest_version (
        run_no Int, path_sha256 Bytes, path Text, seq Int, kind Text, sha256 Bytes, mode Int
    );
    UPLOAD: Insert upload (position Int, run_no Int, sha256 Bytes, bytes Bytes, raw_bytes Int);
    STEP: Insert step (
        run_no Int, seq Int, place Int, path Text, before_sha256 Bytes, after_sha256 Bytes, mode Int, staged Text,
        position Int
    );
    APPROVAL: Insert approval (approval_id Text, run_no Int, state Text, expires_at Text, body Text, input Text);
    DECISION: Update approval (approval_id Text, state Text, decision Text);
    VOTE: Insert approval_vote (approval_id Text, voter Text, on_behalf_of Text, voted_at Text);
    HEAD: Update run_head (
        run_no Int, head_seq Int, head_hash Bytes, mutations Int, denied Int, pending_approvals Int,
        files_touched Int, insertions Int, deletions Int, files_deleted Int, bytes Int, disk_bytes Int, disk_files Int,
        events Int, event_bytes Int, history_bytes Int, people_records Int, people_mutations Int,
        own_bytes Int, own_files Int
    );
    STATE: Update run (run_no Int, state Text);
}

/// Rows of appended entries, by table.
pub(crate) struct EntryRows<'a> {
    pub(crate) records: Rows<'a>,
    pub(crate) paths: Rows<'a>,
    pub(crate) replies: Rows<'a>,
    pub(crate) artifacts: Rows<'a>,
    pub(crate) contents: Rows<'a>,
    pub(crate) newest: Rows<'a>,
    /// The numbers of the rows of `newest` by their keys: a statement may not write one row twice.
    newest_index: HashMap<(i64, &'a LogicalPath), usize>,
    pub(crate) steps: Rows<'a>,
    pub(crate) approvals: Rows<'a>,
    pub(crate) decisions: Rows<'a>,
    pub(crate) votes: Rows<'a>,
    pub(crate) uploads: Rows<'a>,
    /// The statements of the changes of runs and of keyed answers, to be executed after the heads are written.
    pub(crate) changes: Vec<Statement>,
    /// The positions of the records; `None` if there are none.
    positions: Option<RangeInclusive<i64>>,
}

/// Returns the rows of the heads and of the run states that changed.
pub(crate) fn head_rows<'a>(heads: impl Iterator<Item = &'a RunHead>) -> [Rows<'a>; 2] {
    let (mut head_rows, mut states) = (Rows::new(&HEAD), Rows::new(&STATE));
    for head in heads.filter(|head| head.changed) {
        let usage = &head.usage;
        head_rows.push([
            head.run_no.into(),
            head.seq.into(),
            Param::bytes(head.hash.as_bytes()),
            head.mutations.into(),
            head.denied.into(),
            head.pending_approvals.into(),
            usage.files_touched.into(),
            usage.insertions.into(),
            usage.deletions.into(),
            usage.files_deleted.into(),
            usage.bytes.into(),
            head.disk.map(|disk| disk.bytes).into(),
            head.disk.map(|disk| disk.files).into(),
            head.events.into(),
            head.event_bytes.into(),
            head.history_bytes.into(),
            head.people.calls.into(),
            head.people.mutations.into(),
            head.own.bytes.into(),
            head.own.files.into(),
        ]);
        if head.state_changed {
            states.push([head.run_no.into(), Param::text(head.state.as_str())]);
        }
    }
    [head_rows, states]
}

impl<'a> EntryRows<'a> {
    pub(crate) fn new() -> Self {
        Self {
            records: Rows::new(&RECORD),
            paths: Rows::new(&PATH),
            replies: Rows::new(&REPLY),
            artifacts: Rows::new(&ARTIFACT),
            contents: Rows::new(&CONTENT),
            newest: Rows::new(&NEWEST),
            newest_index: HashMap::new(),
            steps: Rows::new(&STEP),
            approvals: Rows::new(&APPROVAL),
            decisions: Rows::new(&DECISION),
            votes: Rows::new(&VOTE),
            uploads: Rows::new(&UPLOAD),
            changes: Vec::new(),
            positions: None,
        }
    }

    /// Returns the rows of all tables, in an order that satisfies their constraints.
    pub(crate) fn tables(&self) -> [&Rows<'a>; 11] {
        let Self { records, paths, replies, artifacts, contents, newest, .. } = self;
        let Self { steps, approvals, decisions, votes, uploads, .. } = self;
        [records, paths, replies, artifacts, contents, newest, steps, approvals, decisions, votes, uploads]
    }

    /// Adds the rows of `entry`, and returns the bytes of those that stay. `body` is its record's JSON text.
    pub(crate) fn push(
        &mut self,
        entry: &'a PreparedEntry,
        body: String,
        [position, run_no, seq]: [i64; 3],
    ) -> Result<u64> {
        let before = self.lasting_bytes();
        let draft = &entry.draft;
        let first = self.positions.as_ref().map_or(position, |positions| *positions.start());
        self.positions = Some(first..=position);
        let packed = Packed::record(&body).map(Cow::Owned);
        let [body, body_bytes, packed] = text_params(body.into(), packed);
        self.records.push([
            position.into(),
            run_no.into(),
            seq.into(),
            Param::text(draft.tool_call_id.as_str()),
            Param::text(&draft.tool),
            Param::text(&draft.timestamp),
            Param::text(decision_text(draft.decision)),
            Param::text(outcome_text(draft.outcome)),
            draft.mutates.into(),
            Param::text(draft.made_by().as_str()),
            draft.is_denied().into(),
            indexed_reason(draft).into(),
            Param::bytes(rows::input_bytes(&entry.input_sha256)),
            body,
            body_bytes,
            packed,
        ]);
        for path in indexed_paths(&draft.paths_read, &draft.paths_written, &draft.files, &draft.left) {
            self.paths.push([position.into(), Param::text(path), run_no.into()]);
        }
        if let Some(reply) = &entry.reply {
            let packed = entry.packed_reply.as_ref().map(Cow::Borrowed);
            let [body, body_bytes, packed] = text_params(Param::text(&reply.body), packed);
            self.replies.push([position.into(), i64::from(reply.status).into(), body, body_bytes, packed]);
        }
        if let Some(Artifact { artifact_id, diff }) = &entry.artifact {
            let id = Param::text(artifact_id.as_str());
            let [diff, diff_bytes] = bytes_params(diff, entry.packed_diff.as_ref());
            self.artifacts.push([position.into(), id, run_no.into(), diff, diff_bytes]);
        }
        let contents = inline_contents(&entry.steps).into_iter().zip(&entry.packed_contents);
        for (content_no, ((sha256, bytes), packed)) in content_numbers(position).zip(contents) {
            let sha256 = Param::bytes(sha256.as_bytes());
            let [bytes, raw_bytes, needs_diff] = content_params(bytes, packed.as_ref());
            self.contents.push([content_no.into(), run_no.into(), sha256, bytes, raw_bytes, needs_diff]);
        }
        if has_written(draft) {
            draft.files.iter().for_each(|file| self.push_newest(file, run_no, seq));
        }
        for (number, step) in (0_i64..).zip(&entry.steps) {
            self.push_step(step, [run_no, seq, number, position]);
        }
        if let Some(UploadedContent { sha256, bytes }) = &entry.upload {
            let sha256 = Param::bytes(sha256.as_bytes());
            let [bytes, raw_bytes] = bytes_params(bytes, entry.packed_upload.as_ref());
            self.uploads.push([position.into(), run_no.into(), sha256, bytes, raw_bytes]);
        }
        self.push_changes(entry)?;
        self.push_approval(entry, [run_no, seq])?;
        Ok(self.lasting_bytes() - before)
    }

    /// Adds what an entry changes beside its own rows.
    fn push_changes(&mut self, entry: &'a PreparedEntry) -> Result<()> {
        if let Some(change) = &entry.run_change {
            self.changes.extend(change.statements(&entry.draft.run_id)?);
        }
        if let Some(change) = &entry.operator_change {
            self.changes.extend(change.statements()?);
        }
        self.push_objects(entry);
        self.changes.extend(first_prompt(entry)?);
        if let Some((answer, now)) = &entry.keyed_answer {
            self.changes.extend(insert_keyed_answer(answer, now));
        }
        Ok(())
    }

    /// Returns the bytes of all rows except those of the journal, which are pruned.
    fn lasting_bytes(&self) -> u64 {
        let Self { records, paths, replies, artifacts, contents, approvals, decisions, votes, uploads, .. } = self;
        let tables = [records, paths, replies, artifacts, contents, approvals, decisions, votes, uploads];
        tables.into_iter().map(Rows::bytes).sum()
    }

    fn push_objects(&mut self, entry: &Entry) {
        let run = || Param::from(entry.draft.run_id.as_str());
        let leave = |holder: ObjectHolder| {
            let name = holder.stored_name()?;
            Some(Statement::new(LEAVE_OBJECT_PATH, [run(), Param::from(&name)]))
        };
        self.changes.extend(entry.left_paths.iter().cloned().map(ObjectHolder::Path).filter_map(leave));
        for EntryObject { name, reservation, size_bytes, holder } in &entry.objects {
            let object = || Param::from(name.as_str());
            // First, so that no claim can be made between the check and the reference.
            let check = Some(Check::IsReserved(name.clone()));
            let is_reserved = Statement::new(USE_OBJECT, [object(), (*reservation).into()]);
            let held = holder.stored_name();
            let is_while_held = held.is_some().into();
            let refer = Statement::new(REFER_TO_OBJECT, [run(), object(), (*size_bytes).into(), is_while_held]);
            self.changes.extend([Statement { check, ..is_reserved }, refer]);
            let hold = held.map(|held| Statement::new(ADD_OBJECT_PATH, [run(), Param::from(&held), object()]));
            self.changes.extend(hold);
        }
    }

    fn push_newest(&mut self, file: &'a RecordFile, run_no: i64, seq: i64) {
        let row = [
            run_no.into(),
            Param::from(&Sha256::of(file.path.as_str().as_bytes())),
            Param::text(file.path.as_str()),
            seq.into(),
            Param::text(file.kind.as_str()),
            file.new_sha256.as_ref().map(|hash| Param::bytes(hash.as_bytes())).into(),
            file.new_sha256.map(|_| i64::from(file.mode_after().bits())).into(),
        ];
        match self.newest_index.entry((run_no, &file.path)) {
            hash_map::Entry::Occupied(index) => self.newest.set(*index.get(), row),
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(self.newest.len());
                self.newest.push(row);
            }
        }
    }

    fn push_step(&mut self, step: &'a Step, [run_no, seq, number, position]: [i64; 4]) {
        let after = step.after.as_ref();
        let staged = after.and_then(|content| match &content.bytes {
            StepBytes::Inline(_) => None,
            StepBytes::Staged(name) => Some(Param::text(name)),
        });
        let hash = |hash: &'a Sha256| Param::bytes(hash.as_bytes());
        self.steps.push([
            run_no.into(),
            seq.into(),
            number.into(),
            Param::text(step.path.as_str()),
            step.before.as_ref().map(hash).into(),
            after.map(|content| hash(&content.sha256)).into(),
            after.map(|content| i64::from(content.mode)).into(),
            staged.into(),
            position.into(),
        ]);
    }

    fn push_approval(&mut self, entry: &'a Entry, [run_no, seq]: [i64; 2]) -> Result<()> {
        if let Some((approval, input)) = &entry.approval {
            self.approvals.push([
                Param::text(approval.approval_id.as_str()),
                run_no.into(),
                Param::text(approval.state.as_str()),
                Param::text(&approval.expires_at),
                rows::to_json(approval)?.into(),
                Param::text(input),
            ]);
        }
        if let Some(decision) = &entry.approval_decision {
            let id = Param::text(decision.approval_id.as_str());
            if let Some(voter) = &decision.voter {
                // As JSON, which escapes line ends, and NUL, which PostgreSQL does not store.
                let person = decision.on_behalf_of.as_ref().map(rows::to_json).transpose()?;
                self.votes.push([
                    id.clone(),
                    Param::text(voter.as_str()),
                    person.into(),
                    Param::text(&entry.draft.timestamp),
                ]);
            }
            if decision.state != ApprovalState::Pending {
                let stored = rows::approval_decision(decision, seq, entry.draft.code)?;
                self.decisions.push([id, Param::text(decision.state.as_str()), stored.into()]);
            }
        }
        Ok(())
    }

    /// Returns the statements that add completed zones to the zone map. Run them after the records are written.
    pub(crate) fn seal_zones(&self) -> Vec<Statement> {
        let completed = self.positions.iter().cloned().flatten().filter(|position| position % ZONE_POSITIONS == 0);
        let seal = |position: i64| {
            let zone = position / ZONE_POSITIONS - 1;
            Statement::new(SEAL_ZONE, [zone.into(), (zone * ZONE_POSITIONS).into(), (position - 1).into()])
        };
        completed.map(seal).collect()
    }
}

/// Returns the statement that stores the summary of the run's first prompt, if the entry is a prompt.
fn first_prompt(entry: &Entry) -> Result<Option<Statement>> {
    let draft = &entry.draft;
    if draft.tool != EventKind::Prompt.tool() || draft.outcome != Outcome::Ok {
        return Ok(None);
    }
    let Some(summary) = draft.input.as_ref().and_then(|input| input.get("summary")) else { return Ok(None) };
    Ok(Some(Statement::new(SET_PROMPT, [draft.run_id.as_str().into(), rows::to_json(summary)?.into()])))
}

/// Returns the paths that a record is indexed by: the paths that it read, wrote or requested, or left out because they are denied, sorted, without duplicates.
pub(crate) fn indexed_paths<'a>(
    read: &'a [LogicalPath],
    written: &'a [LogicalPath],
    files: &'a [RecordFile],
    left: &'a [DeniedEntry],
) -> Vec<&'a str> {
    let requested = files.iter().map(|file| &file.path);
    let named = read.iter().chain(written).chain(requested).map(LogicalPath::as_str);
    let mut paths: Vec<_> = named.chain(left.iter().map(|left| left.path.as_str())).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns the reason that a record is counted by, without NUL, which PostgreSQL does not store.
pub(crate) fn indexed_reason(record: &Record) -> Option<String> {
    record.main_reason().map(|reason| reason.replace('\0', "\u{fffd}"))
}

/// Returns the numbers for the contents that the record at `position` writes: about a million, more than a call can write.
fn content_numbers(position: i64) -> impl Iterator<Item = i64> {
    position << 20..(position + 1) << 20
}

/// Returns the text of a decision, as in the record's JSON.
pub(crate) fn decision_text(decision: Verdict) -> &'static str {
    match decision {
        Verdict::Allow => "ALLOW",
        Verdict::RequireApproval => "REQUIRE_APPROVAL",
        Verdict::Deny => "DENY",
    }
}

/// Returns the text of an outcome, as in the record's JSON.
pub(crate) fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Refused => "refused",
        Outcome::Pending => "pending",
        Outcome::Failed => "failed",
    }
}

/// Stores a pending delivery for each webhook that is subscribed to the event of a message.
macro_rules! fan_out {
    ($condition:literal) => {
        concat!(
            "INSERT INTO webhook_delivery (webhook, message_id, event_type, run_id, body, state, attempts, next_attempt_at, ",
            "created_at) SELECT webhook, $2, $1, $3, $4, 'pending', 0, $5, $5 FROM webhook_subscription ",
            "WHERE event_type = $1",
            $condition,
            " ORDER BY webhook ON CONFLICT (webhook, message_id) DO NOTHING"
        )
    };
}
const FAN_OUT: &str = fan_out!("");
/// Only if the run is not marked for repair.
const FAN_OUT_IF_UNMARKED: &str = fan_out!(" AND EXISTS (SELECT 1 FROM run WHERE run_id = $3 AND NOT needs_repair)");

/// The state of a run's head before and after an entry.
pub(crate) struct HeadChange<'a> {
    pub(crate) before: (RunState, Usage),
    pub(crate) after: (RunState, &'a Usage),
}

/// Returns the statement that stores the deliveries of a message.
pub(crate) fn fan_out(message: &WebhookMessage) -> Statement {
    fan_out_by(FAN_OUT, message)
}

/// Returns the statement that stores the deliveries of a message, unless its run is marked for repair already.
pub(crate) fn fan_out_if_unmarked(message: &WebhookMessage) -> Statement {
    fan_out_by(FAN_OUT_IF_UNMARKED, message)
}

fn fan_out_by(sql: &'static str, message: &WebhookMessage) -> Statement {
    let run = message.run_id.as_ref().map_or(Param::Null, |run| run.as_str().into());
    Statement::new(
        sql,
        [
            message.event.as_str().into(),
            message.id.as_str().into(),
            run,
            message.body.as_str().into(),
            message.created_at.as_str().into(),
        ],
    )
}

/// Returns the messages of `entry`, whose record is `record`.
pub(crate) fn messages(entry: &Entry, record: &Record, change: &HeadChange<'_>) -> Vec<WebhookMessage> {
    let mut messages = Vec::new();
    if let Some((approval, _)) = &entry.approval {
        messages.push(WebhookMessage::approval_requested(record, approval));
    }
    if let Some(decision) = entry.approval_decision.as_ref().filter(|decision| decision.state != ApprovalState::Pending)
    {
        let decided_by = decision.decided_by.as_deref();
        messages.push(WebhookMessage::approval_ended(record, &decision.approval_id, decision.state, decided_by));
    }
    let is_closed = |state: RunState| matches!(state, RunState::Closed | RunState::Deleted);
    if is_closed(change.after.0) && !is_closed(change.before.0) {
        messages.push(WebhookMessage::run_closed(record));
    }
    let reached = entry.run_budget.as_ref().map(|budget| budget.reached(&change.before.1, change.after.1));
    for (member, limit, used) in reached.into_iter().flatten() {
        messages.push(WebhookMessage::budget_reached(record, member, limit, used));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_json_record() {
        for verdict in [Verdict::Allow, Verdict::RequireApproval, Verdict::Deny] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), decision_text(verdict));
        }
        for outcome in [Outcome::Ok, Outcome::Refused, Outcome::Pending, Outcome::Failed] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome_text(outcome));
        }
    }
}
