//! Conversions between rows and values, the same for both databases, with the queries whose columns they read.

use std::collections::BTreeMap;

use model::{
    Approval, ApprovalState, Disk, ImportReport, LogicalPath, Mount, Policy, Run, RunCounts, RunId, RunState, Sha256,
    Source, Step, StepBytes, StepContent, Token, TokenId, Usage,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::{RowReader, damaged, to_count};
use crate::{JournalEntry, LedgerError, Reply, Result, StoredCall, StoredRecord, StoredRun};

/// The part of a run that never changes and is never searched, stored as JSON.
#[derive(Serialize, Deserialize)]
struct RunBody {
    source: Source,
    policy: Policy,
    mounts: Vec<Mount>,
    labels: BTreeMap<String, String>,
}

/// Who decided an approval, and their note. Stored as JSON, because a text of PostgreSQL cannot contain every character.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredDecision {
    decided_by: Option<String>,
    note: Option<String>,
}

/// Selects what [`run`] reads.
macro_rules! select_run {
    ($rest:literal) => {
        concat!(
            "SELECT run.run_no, run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, body, ",
            "import_report, mount_paths, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $rest
        )
    };
}

/// Selects what [`approval`] reads.
macro_rules! select_approval {
    ($rest:literal) => {
        concat!("SELECT approval_no, body, state, decision FROM approval ", $rest)
    };
}

/// The condition that content `c` was written by the record at a position.
macro_rules! written_at {
    ($position:literal) => {
        concat!("c.content_no >= (", $position, " << 20) AND c.content_no < ((", $position, " + 1) << 20)")
    };
}

/// Selects what [`step`] reads.
macro_rules! select_steps {
    ($rest:literal) => {
        concat!(
            "SELECT run_id, seq, path, before_sha256, after_sha256, mode, staged, CASE WHEN staged IS NULL THEN ",
            "(SELECT bytes FROM content c WHERE ",
            written_at!("step.position"),
            " AND c.sha256 = step.after_sha256 LIMIT 1) END ",
            "FROM step JOIN run ON run.run_no = step.run_no ",
            $rest
        )
    };
}

/// One run.
pub(crate) const RUN: &str = select_run!("WHERE run_id = $1");
/// The pending steps of one run.
pub(crate) const STEPS_OF_RUN: &str =
    select_steps!("WHERE step.run_no = (SELECT run_no FROM run WHERE run_id = $1) ORDER BY seq, place");
/// The pending steps of all runs.
pub(crate) const STEPS: &str = select_steps!("ORDER BY step.run_no, seq, place");

pub(crate) use {select_approval, select_run, written_at};

/// Reads a run and its number.
pub(crate) fn run(row: &dyn RowReader) -> Result<(i64, StoredRun)> {
    let body: RunBody = json(&row.text(8)?, "run")?;
    let count = |column| row.int(column).map(to_count);
    let head_seq = count(11)?;
    let run = Run {
        run_id: run_id(row, 1)?,
        state: run_state(&row.text(2)?)?,
        created_at: row.text(3)?,
        closed_at: row.maybe_text(4)?,
        expires_at: row.maybe_text(5)?,
        base_commit: row.maybe_text(6)?,
        source: body.source,
        policy: body.policy,
        mounts: body.mounts,
        labels: body.labels,
        import: json(&row.text(9)?, "import report")?,
        disk: disk(row, 21)?.unwrap_or_default(),
        counts: RunCounts { calls: head_seq, mutations: count(13)?, denied: count(14)?, pending_approvals: count(15)? },
        head_seq,
        head_hash: sha256(&row.bytes(12)?)?,
    };
    let usage = usage(row, 16)?;
    let mount_paths = json(&row.text(10)?, "mount")?;
    Ok((row.int(0)?, StoredRun { run, usage, mount_paths, needs_repair: row.bool(7)? }))
}

/// Reads a usage from five columns, starting at `first`.
pub(crate) fn usage(row: &dyn RowReader, first: usize) -> Result<Usage> {
    let count = |column| row.int(column).map(to_count);
    Ok(Usage {
        files_touched: count(first)?,
        insertions: count(first + 1)?,
        deletions: count(first + 2)?,
        files_deleted: count(first + 3)?,
        bytes: count(first + 4)?,
    })
}

/// Reads the size of a tree from two columns, starting at `first`.
pub(crate) fn disk(row: &dyn RowReader, first: usize) -> Result<Option<Disk>> {
    let count = |column| Ok::<_, LedgerError>(row.maybe_int(column)?.map(to_count));
    Ok(count(first)?.zip(count(first + 1)?).map(|(bytes, files)| Disk { bytes, files }))
}

pub(crate) fn run_body(run: &Run) -> Result<String> {
    to_json(&RunBody {
        source: run.source.clone(),
        policy: run.policy.clone(),
        mounts: run.mounts.clone(),
        labels: run.labels.clone(),
    })
}

pub(crate) fn import_report(report: &ImportReport) -> Result<String> {
    to_json(report)
}

pub(crate) fn run_id(row: &dyn RowReader, column: usize) -> Result<RunId> {
    RunId::parse(&row.text(column)?).map_err(|_| damaged("run ID"))
}

pub(crate) fn run_state(text: &str) -> Result<RunState> {
    [RunState::Preparing, RunState::Open, RunState::AwaitingApproval, RunState::Closed, RunState::Deleted]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| damaged("run state"))
}

/// Reads `run_id, token_id, secret_sha256, permissions, expires_at, revoked`.
pub(crate) fn token(row: &dyn RowReader) -> Result<Token> {
    Ok(Token {
        run_id: run_id(row, 0)?,
        token_id: TokenId::parse(&row.text(1)?).map_err(|_| damaged("token ID"))?,
        secret_sha256: sha256(&row.bytes(2)?)?,
        permissions: json(&row.text(3)?, "permission")?,
        expires_at: row.maybe_text(4)?,
        revoked: row.bool(5)?,
    })
}

/// Reads an approval and its number.
pub(crate) fn approval(row: &dyn RowReader) -> Result<(i64, Approval)> {
    let stored: Approval = json(&row.text(1)?, "approval")?;
    let decision: StoredDecision = match row.maybe_text(3)? {
        Some(text) => json(&text, "decision")?,
        None => StoredDecision::default(),
    };
    let state = approval_state(&row.text(2)?)?;
    Ok((row.int(0)?, Approval { state, decided_by: decision.decided_by, note: decision.note, ..stored }))
}

fn approval_state(text: &str) -> Result<ApprovalState> {
    use ApprovalState::{Approved, Denied, Expired, Failed, Pending};
    [Pending, Approved, Denied, Expired, Failed]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| damaged("approval state"))
}

pub(crate) fn approval_decision(decided_by: Option<&str>, note: Option<&str>) -> Result<String> {
    to_json(&StoredDecision { decided_by: decided_by.map(str::to_owned), note: note.map(str::to_owned) })
}

/// Reads `record, seq, tool, input_sha256, status, reply, answered record` of a call.
pub(crate) fn call(row: &dyn RowReader) -> Result<StoredCall> {
    let reply = match row.maybe_int(4)? {
        None => None,
        Some(status) => Some(Reply { status: u16::try_from(status).unwrap_or(0), body: row.text(5)? }),
    };
    Ok(StoredCall {
        record: row.text(0)?,
        seq: to_count(row.int(1)?),
        hash: record_hash(&row.text(6)?)?,
        tool: row.text(2)?,
        input_sha256: sha256(&row.bytes(3)?)?,
        reply,
    })
}

/// Reads `position, body` of a record.
pub(crate) fn record(row: &dyn RowReader) -> Result<StoredRecord> {
    Ok(StoredRecord { position: row.int(0)?, text: row.text(1)? })
}

/// Returns the hash that a record's JSON text contains.
pub(crate) fn record_hash(text: &str) -> Result<Sha256> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: Sha256,
    }
    json::<Hashed>(text, "record").map(|record| record.hash)
}

/// Reads a step with its run and the `seq` of its record.
pub(crate) fn step(row: &dyn RowReader) -> Result<(RunId, u64, Step)> {
    let hash = |column| row.maybe_bytes(column)?.map(|bytes| sha256(&bytes)).transpose();
    let after = match hash(4)? {
        None => None,
        Some(sha256) => Some(StepContent {
            sha256,
            mode: row.maybe_int(5)?.and_then(|mode| u32::try_from(mode).ok()).ok_or_else(|| damaged("mode"))?,
            bytes: match row.maybe_text(6)? {
                Some(name) => StepBytes::Staged(name),
                // A missing content does not match its hash. Whoever applies the step finds that, for this run alone.
                None => StepBytes::Inline(row.maybe_bytes(7)?.unwrap_or_default()),
            },
        }),
    };
    let path = LogicalPath::parse(&row.text(2)?).map_err(|_| damaged("path"))?;
    Ok((run_id(row, 0)?, to_count(row.int(1)?), Step { path, before: hash(3)?, after }))
}

/// Groups steps, which are in order, by their records.
pub(crate) fn journal(steps: Vec<(RunId, u64, Step)>) -> Vec<JournalEntry> {
    let mut journal: Vec<JournalEntry> = Vec::new();
    for (run_id, seq, step) in steps {
        match journal.last_mut().filter(|last| last.run_id == run_id && last.seq == seq) {
            Some(last) => last.steps.push(step),
            None => journal.push(JournalEntry { run_id, seq, steps: vec![step] }),
        }
    }
    journal
}

pub(crate) fn sha256(bytes: &[u8]) -> Result<Sha256> {
    bytes.try_into().map(Sha256::from_bytes).map_err(|_| damaged("hash"))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| LedgerError::Internal(Box::new(error)))
}

pub(crate) fn json<T: DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|_| damaged(what))
}
