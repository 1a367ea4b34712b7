//! Rows and what they stand for, the same in both databases.

use std::collections::BTreeMap;

use model::{
    Approval, ApprovalState, Disk, ImportReport, LogicalPath, Mount, Policy, Run, RunCounts, RunId, RunState, Sha256,
    Source, Step, StepBytes, StepContent, Token, TokenId, Usage,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::{Columns, damaged, to_count};
use crate::{JournalEntry, LedgerError, Result, StoredRecord, StoredRun};

/// What never changes about a run and is never searched for.
#[derive(Serialize, Deserialize)]
struct RunBody {
    source: Source,
    policy: Policy,
    mounts: Vec<Mount>,
    labels: BTreeMap<String, String>,
}

/// Who decided an approval, and what they noted. As JSON, since PostgreSQL's text cannot hold every note.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredDecision {
    decided_by: Option<String>,
    note: Option<String>,
}

/// `SELECT` of a run; what follows may narrow it.
macro_rules! select_run {
    ($($rest:literal)?) => {
        concat!(
            "SELECT run.run_no, run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, body, ",
            "import_report, mount_paths, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $($rest)?
        )
    };
}

/// `SELECT` of an approval.
macro_rules! select_approval {
    ($($rest:literal)?) => {
        concat!("SELECT approval_no, body, state, decision FROM approval ", $($rest)?)
    };
}

/// One run.
pub(crate) const RUN: &str = select_run!("WHERE run_id = $1");

pub(crate) use {select_approval, select_run};

/// Reads what [`select_run`] gives, with the run's number.
pub(crate) fn run(row: &dyn Columns) -> Result<(i64, StoredRun)> {
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
    Ok((row.int(0)?, StoredRun { run, usage, mount_paths, needs_repair: row.flag(7)? }))
}

/// Reads the five columns of a usage, from `first` on.
pub(crate) fn usage(row: &dyn Columns, first: usize) -> Result<Usage> {
    let count = |column| row.int(column).map(to_count);
    Ok(Usage {
        files_touched: count(first)?,
        insertions: count(first + 1)?,
        deletions: count(first + 2)?,
        files_deleted: count(first + 3)?,
        bytes: count(first + 4)?,
    })
}

/// Reads the two columns of what a tree holds, from `first` on.
pub(crate) fn disk(row: &dyn Columns, first: usize) -> Result<Option<Disk>> {
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

pub(crate) fn run_id(row: &dyn Columns, column: usize) -> Result<RunId> {
    RunId::parse(&row.text(column)?).map_err(|_| damaged("run ID"))
}

pub(crate) fn run_state(text: &str) -> Result<RunState> {
    [RunState::Preparing, RunState::Open, RunState::AwaitingApproval, RunState::Closed, RunState::Deleted]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| damaged("run state"))
}

/// Reads `run_id, token_id, secret_sha256, permissions, expires_at, revoked`.
pub(crate) fn token(row: &dyn Columns) -> Result<Token> {
    Ok(Token {
        run_id: run_id(row, 0)?,
        token_id: TokenId::parse(&row.text(1)?).map_err(|_| damaged("token ID"))?,
        secret_sha256: sha256(&row.bytes(2)?)?,
        permissions: json(&row.text(3)?, "permission")?,
        expires_at: row.maybe_text(4)?,
        revoked: row.flag(5)?,
    })
}

/// Reads what [`select_approval`] gives, with the approval's number.
pub(crate) fn approval(row: &dyn Columns) -> Result<(i64, Approval)> {
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

/// Reads `position, body` of a record.
pub(crate) fn record(row: &dyn Columns) -> Result<StoredRecord> {
    Ok(StoredRecord { position: row.int(0)?, text: row.text(1)? })
}

/// The hash that a record's JSON text tells.
pub(crate) fn record_hash(text: &str) -> Result<Sha256> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: Sha256,
    }
    json::<Hashed>(text, "record").map(|record| record.hash)
}

/// Reads `run_id, seq, path, before_sha256, after_sha256, mode, staged, bytes`.
pub(crate) fn step(row: &dyn Columns) -> Result<(RunId, u64, Step)> {
    let hash = |column| row.maybe_bytes(column)?.map(|bytes| sha256(&bytes)).transpose();
    let after = match hash(4)? {
        None => None,
        Some(sha256) => Some(StepContent {
            sha256,
            mode: row.maybe_int(5)?.and_then(|mode| u32::try_from(mode).ok()).ok_or_else(|| damaged("mode"))?,
            bytes: match row.maybe_text(6)? {
                Some(name) => StepBytes::Staged(name),
                // A content that somebody has removed is not the one that is named, which is for its own run to tell.
                None => StepBytes::Inline(row.maybe_bytes(7)?.unwrap_or_default()),
            },
        }),
    };
    let path = LogicalPath::parse(&row.text(2)?).map_err(|_| damaged("path"))?;
    Ok((run_id(row, 0)?, to_count(row.int(1)?), Step { path, before: hash(3)?, after }))
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

/// Steps in order, put together by their records.
pub(crate) fn by_record(steps: Vec<(RunId, u64, Step)>) -> Vec<JournalEntry> {
    let mut open: Vec<JournalEntry> = Vec::new();
    for (run_id, seq, step) in steps {
        match open.last_mut().filter(|last| last.run_id == run_id && last.seq == seq) {
            Some(last) => last.steps.push(step),
            None => open.push(JournalEntry { run_id, seq, steps: vec![step] }),
        }
    }
    open
}
