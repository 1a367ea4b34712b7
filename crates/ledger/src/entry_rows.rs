//! The rows that appended entries write, the same for both databases.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use model::{LogicalPath, Outcome, RecordFile, Sha256, Step, StepBytes, StepContent, Verdict};

use crate::backend::{Param, Statement};
use crate::chain::RunHead;
use crate::filter::ZONE_POSITIONS;
use crate::table::Column::{Bool, Bytes, Int, Text};
use crate::table::{Rows, Table};
use crate::{ApprovalDecision, Artifact, Entry, Result, rows};

const SEAL_ZONE: &str = "INSERT INTO audit_zone (zone, min_timestamp, max_timestamp) \
    SELECT $1, min(timestamp), max(timestamp) FROM audit_record WHERE position >= $2 AND position <= $3 \
    HAVING count(*) > 0 ON CONFLICT (zone) DO NOTHING";

static RECORD: Table = Table::insert(
    "audit_record",
    &[
        Int("position"),
        Int("run_no"),
        Int("seq"),
        Text("tool_call_id"),
        Text("tool"),
        Text("timestamp"),
        Text("decision"),
        Text("outcome"),
        Bool("mutates"),
        Bytes("input_sha256"),
        Text("body"),
    ],
);
static PATH: Table = Table::insert("record_path", &[Int("position"), Text("path"), Int("run_no")]);
static REPLY: Table = Table::insert("call_reply", &[Int("position"), Int("status"), Text("body")]);
static ARTIFACT: Table =
    Table::insert("artifact", &[Int("position"), Text("artifact_id"), Int("run_no"), Bytes("diff")]);
static CONTENT: Table = Table::insert("content", &[Int("content_no"), Int("run_no"), Bytes("sha256"), Bytes("bytes")]);
static STEP: Table = Table::insert(
    "step",
    &[
        Int("run_no"),
        Int("seq"),
        Int("place"),
        Text("path"),
        Bytes("before_sha256"),
        Bytes("after_sha256"),
        Int("mode"),
        Text("staged"),
        Int("position"),
    ],
);
static APPROVAL: Table = Table::insert(
    "approval",
    &[Text("approval_id"), Int("run_no"), Text("state"), Text("expires_at"), Text("body"), Text("input")],
);
static DECISION: Table = Table::update("approval", &[Text("approval_id"), Text("state"), Text("decision")]);
static HEAD: Table = Table::update(
    "run_head",
    &[
        Int("run_no"),
        Int("head_seq"),
        Bytes("head_hash"),
        Int("mutations"),
        Int("denied"),
        Int("pending_approvals"),
        Int("files_touched"),
        Int("insertions"),
        Int("deletions"),
        Int("files_deleted"),
        Int("bytes"),
        Int("disk_bytes"),
        Int("disk_files"),
    ],
);
static STATE: Table = Table::update("run", &[Int("run_no"), Text("state")]);

/// Rows of appended entries, by table.
pub(crate) struct EntryRows<'a> {
    pub(crate) records: Rows<'a>,
    pub(crate) paths: Rows<'a>,
    pub(crate) replies: Rows<'a>,
    pub(crate) artifacts: Rows<'a>,
    pub(crate) contents: Rows<'a>,
    pub(crate) steps: Rows<'a>,
    pub(crate) approvals: Rows<'a>,
    pub(crate) decisions: Rows<'a>,
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
            steps: Rows::new(&STEP),
            approvals: Rows::new(&APPROVAL),
            decisions: Rows::new(&DECISION),
            positions: None,
        }
    }

    /// The rows of all tables, in an order that satisfies their constraints.
    pub(crate) fn tables(&self) -> [&Rows<'a>; 8] {
        let Self { records, paths, replies, artifacts, contents, steps, approvals, decisions, .. } = self;
        [records, paths, replies, artifacts, contents, steps, approvals, decisions]
    }

    /// Adds the rows of `entry`. `body` is its record's JSON text.
    pub(crate) fn push(&mut self, entry: &'a Entry, body: String, [position, run_no, seq]: [i64; 3]) -> Result<()> {
        let draft = &entry.draft;
        let first = self.positions.as_ref().map_or(position, |positions| *positions.start());
        self.positions = Some(first..=position);
        self.records.push([
            position.into(),
            run_no.into(),
            seq.into(),
            Param::text(draft.tool_call_id.as_str()),
            Param::text(&draft.tool),
            Param::text(&draft.timestamp),
            Param::text(decision_word(draft.decision)),
            Param::text(outcome_word(draft.outcome)),
            draft.mutates.into(),
            Param::bytes(entry.input_sha256.as_bytes()),
            body.into(),
        ]);
        for path in indexed_paths(&draft.paths_read, &draft.paths_written, &draft.files) {
            self.paths.push([position.into(), Param::text(path), run_no.into()]);
        }
        if let Some(reply) = &entry.reply {
            self.replies.push([position.into(), i64::from(reply.status).into(), Param::text(&reply.body)]);
        }
        if let Some(Artifact { artifact_id, diff }) = &entry.artifact {
            let id = Param::text(artifact_id.as_str());
            self.artifacts.push([position.into(), id, run_no.into(), Param::bytes(diff)]);
        }
        for (content_no, (sha256, bytes)) in content_numbers(position).zip(inline_contents(&entry.steps)) {
            let sha256 = Param::bytes(sha256.as_bytes());
            self.contents.push([content_no.into(), run_no.into(), sha256, Param::bytes(bytes)]);
        }
        for (number, step) in (0_i64..).zip(&entry.steps) {
            self.push_step(step, [run_no, seq, number, position]);
        }
        self.push_approval(entry, run_no)
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

    fn push_approval(&mut self, entry: &'a Entry, run_no: i64) -> Result<()> {
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
        if let Some(ApprovalDecision { approval_id, state, decided_by, note }) = &entry.approval_decision {
            let decision = rows::approval_decision(decided_by.as_deref(), note.as_deref())?;
            self.decisions.push([Param::text(approval_id.as_str()), Param::text(state.as_str()), decision.into()]);
        }
        Ok(())
    }

    /// Returns the statements that add the zones which the records complete to the zone map. Run them after the records are
    /// written.
    pub(crate) fn seal_zones(&self) -> Vec<Statement> {
        let completed = self.positions.iter().cloned().flatten().filter(|position| position % ZONE_POSITIONS == 0);
        let seal = |position: i64| {
            let zone = position / ZONE_POSITIONS - 1;
            Statement::new(SEAL_ZONE, [zone.into(), (zone * ZONE_POSITIONS).into(), (position - 1).into()])
        };
        completed.map(seal).collect()
    }
}

/// Returns the paths that a record is indexed by: every path that it read, wrote or asked for in vain, once and in order.
pub(crate) fn indexed_paths<'a>(
    read: &'a [LogicalPath],
    written: &'a [LogicalPath],
    files: &'a [RecordFile],
) -> Vec<&'a str> {
    let requested = files.iter().map(|file| &file.path);
    let mut paths: Vec<_> = read.iter().chain(written).chain(requested).map(LogicalPath::as_str).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns the numbers for the contents that the record at `position` writes. No call writes a million files.
fn content_numbers(position: i64) -> impl Iterator<Item = i64> {
    position << 20..(position + 1) << 20
}

/// Returns the contents that the steps carry inline, each once.
pub(crate) fn inline_contents<'a>(steps: &'a [Step]) -> Vec<(&'a Sha256, &'a [u8])> {
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
