//! Conversions of rows to values, the same for both databases, and the queries that select those rows.

use model::{
    Approval, ApprovalVote, Code, Disk, DiskUse, Fork, ForkedFrom, LogicalPath, Mount, Operator, OperatorName,
    OperatorToken, PeopleCounts, Policy, Run, RunCounts, RunId, Sha256, Source, Step, StepBytes, StepContent, Token,
    TokenId, Usage,
};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize, Serialize};

use crate::packed::{self, record_columns};
use crate::statement::{RowReader, Select, damaged, to_count};
use crate::{
    DecidedApproval, JournalEntry, LedgerError, Node, RecordData, Reply, Result, StoredCall, StoredRecord, StoredRun,
};

/// The members of a run that never change and that no query searches, stored as JSON.
#[derive(Serialize, Deserialize)]
struct RunBody {
    source: Source,
    policy: Policy,
    mounts: Vec<Mount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_by: Option<OperatorName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<ForkedFrom>,
}

/// Who decided an approval, and their note. Stored as JSON, because a text in PostgreSQL cannot contain NUL.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredDecision {
    decided_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_behalf_of: Option<String>,
    note: Option<String>,
    /// The votes that have decided, the number of the record, and the code of a call that could not be executed. Missing for a
    /// decision of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    votes: Option<Vec<ApprovalVote>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The number of the first record of the changes of the person who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edited_seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
}

/// Selects the columns that [`run`] reads.
macro_rules! select_run {
    ($rest:literal) => {
        $crate::rows::select_run!("run.run_no", $rest)
    };
    // `$number` is what the rows are ordered by.
    ($number:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $number,
            " AS run_no, run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, body, ",
            "import_report, mount_paths, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files, labels, archived_at, archive_uri, ",
            "history_bytes, people_records, people_mutations, ",
            "(SELECT a.timestamp FROM audit_record a WHERE a.run_no = run.run_no AND a.seq = head_seq) AS last_activity_at, ",
            "repository, agent, prompt, merged_seq, own_bytes, own_files ",
            "FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $rest
        )
    };
}

/// Selects the operators who have approved an approval, in order, one a line, each with a space and the person for whom it did, as JSON.
/// Those of a pending approval that were revoked since are left out.
macro_rules! select_voters {
    () => {
        "(SELECT string_agg(voter || ' ' || coalesce(on_behalf_of, ''), '\n' ORDER BY vote_no) FROM approval_vote \
         WHERE approval_vote.approval_id = approval.approval_id AND (approval.state <> 'pending' OR NOT EXISTS (\
           SELECT 1 FROM operator_token WHERE lower(name) = lower(voter) AND withdrawn_at >= coalesce(voted_at, '')))) AS voters"
    };
}

/// Selects the columns that [`approval`] reads.
macro_rules! select_approval {
    ($rest:literal) => {
        concat!("SELECT approval_no, body, state, decision, ", $crate::rows::select_voters!(), " FROM approval ", $rest)
    };
}

/// The condition that content `c` was written by the record at `$position`.
macro_rules! written_at {
    ($position:literal) => {
        concat!("c.content_no >= (", $position, " << 20) AND c.content_no < ((", $position, " + 1) << 20)")
    };
}

/// The columns that [`content`] reads, of content `c`. The diff is read only where it is needed.
macro_rules! content_columns {
    () => {
        "c.bytes, c.raw_bytes, \
         (SELECT a.diff FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20), \
         (SELECT a.diff_bytes FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20)"
    };
}

/// Selects the columns that [`step`] reads, in order. `$where` may be empty.
macro_rules! select_steps {
    ($where:literal) => {
        concat!(
            "SELECT run_id, seq, path, before_sha256, after_sha256, mode, staged, ",
            "(SELECT c.bytes FROM content c WHERE c.content_no = s.content_no), ",
            "(SELECT c.raw_bytes FROM content c WHERE c.content_no = s.content_no), ",
            "(SELECT a.diff FROM artifact a WHERE a.position = s.diff_position), ",
            "(SELECT a.diff_bytes FROM artifact a WHERE a.position = s.diff_position) ",
            "FROM (SELECT s.*, CASE WHEN (SELECT c.needs_diff FROM content c WHERE c.content_no = s.content_no) ",
            "THEN position END AS diff_position ",
            "FROM (SELECT run_id, step.run_no, seq, place, path, before_sha256, after_sha256, mode, staged, position, ",
            "CASE WHEN staged IS NULL THEN (SELECT c.content_no FROM content c WHERE ",
            written_at!("step.position"),
            " AND c.sha256 = step.after_sha256 LIMIT 1) END AS content_no ",
            "FROM step JOIN run ON run.run_no = step.run_no ",
            $where,
            // Ordered subqueries, so that PostgreSQL computes their columns once.
            " ORDER BY step.run_no, seq, place) AS s ORDER BY run_no, seq, place) AS s ORDER BY run_no, seq, place"
        )
    };
}

/// Selects one run.
pub(crate) const RUN: Select<(i64, StoredRun)> = Select { sql: select_run!("WHERE run_id = $1"), read: run };
/// Selects the forks of a run, the newest first.
pub(crate) const FORKS: Select<Fork> = Select {
    sql: "SELECT run_id, forked_at, state, merged_seq FROM run WHERE parent_id = $1 ORDER BY run_no DESC LIMIT $2",
    read: fork,
};

/// Selects the pending steps of one run.
pub(crate) const STEPS_OF_RUN: Select<(RunId, u64, Step)> =
    Select { sql: select_steps!("WHERE step.run_no = (SELECT run_no FROM run WHERE run_id = $1)"), read: step };
/// Selects the pending steps of all runs.
pub(crate) const STEPS: Select<(RunId, u64, Step)> = Select { sql: select_steps!(""), read: step };

pub(crate) use {content_columns, select_approval, select_run, select_voters, written_at};

/// Reads a row of [`FORKS`].
fn fork(row: &dyn RowReader) -> Result<Fork> {
    Ok(Fork {
        run_id: run_id(row, 0)?,
        at_seq: to_count(row.int(1)?),
        state: enum_value(&row.text(2)?, "run state")?,
        merged_seq: row.maybe_int(3)?.map(to_count),
    })
}

/// Reads a run and its number.
pub(crate) fn run(row: &dyn RowReader) -> Result<(i64, StoredRun)> {
    let body: RunBody = json(&row.text(8)?, "run")?;
    let count = |column| row.int(column).map(to_count);
    let head_seq = count(11)?;
    let merged_seq = row.maybe_int(33)?.map(to_count);
    let named = |column| row.text(column).map(|text| Some(text).filter(|text| !text.is_empty()));
    let run = Run {
        run_id: run_id(row, 1)?,
        state: enum_value(&row.text(2)?, "run state")?,
        created_at: row.text(3)?,
        created_by: body.created_by,
        closed_at: row.maybe_text(4)?,
        expires_at: row.maybe_text(5)?,
        archived_at: row.maybe_text(24)?,
        archive_uri: row.maybe_text(25)?,
        base_commit: row.maybe_text(6)?,
        source: body.source,
        parent: body.parent.map(|parent| ForkedFrom { merged_seq, ..parent }),
        forks: None,
        more_forks: false,
        policy: body.policy,
        mounts: body.mounts,
        labels: json(&row.text(23)?, "label")?,
        import: json(&row.text(9)?, "import report")?,
        disk: DiskUse::new(
            disk(row, 21)?.unwrap_or_default(),
            Disk { bytes: count(34)?, files: count(35)? },
            count(26)?,
        ),
        counts: RunCounts {
            calls: head_seq.saturating_sub(count(27)?),
            mutations: count(13)?,
            denied: count(14)?,
            pending_approvals: count(15)?,
            insertions: count(17)?,
            deletions: count(18)?,
        },
        people: PeopleCounts { calls: count(27)?, mutations: count(28)? },
        head_seq,
        head_hash: sha256(&row.bytes(12)?)?,
        last_activity_at: row.maybe_text(29)?,
        repository: named(30)?,
        agent: named(31)?,
        prompt: row.maybe_text(32)?.map(|text| json(&text, "prompt")).transpose()?,
    };
    let usage = usage(row, 16)?;
    let mount_paths = json(&row.text(10)?, "mount")?;
    Ok((row.int(0)?, StoredRun { run, usage, mount_paths, needs_repair: row.bool(7)? }))
}

/// Selects what a record wrote besides itself: contents, its diff, an upload and its reply. The columns are a number for which of these,
/// the ID or the reply, the hash, the bytes or the compressed reply, the status, the size, and the diff that content needs.
pub(crate) const RECORD_DATA: Select<RecordData> = Select {
    sql: concat!(
        "WITH r AS (SELECT position FROM audit_record ",
        "WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2) ",
        "SELECT kind, name, sha256, bytes, status, raw_bytes, diff, diff_bytes FROM (",
        "SELECT CAST(0 AS BIGINT) AS kind, CAST(NULL AS TEXT) AS name, sha256, c.bytes, CAST(0 AS BIGINT) AS status, raw_bytes, ",
        "(SELECT a.diff FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20) AS diff, ",
        "(SELECT a.diff_bytes FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20) AS diff_bytes ",
        "FROM content c WHERE ",
        written_at!("(SELECT position FROM r)"),
        " UNION ALL SELECT 1, artifact_id, NULL, diff, 0, diff_bytes, NULL, NULL FROM artifact ",
        "WHERE position = (SELECT position FROM r) ",
        "UNION ALL SELECT 2, NULL, sha256, bytes, 0, raw_bytes, NULL, NULL FROM upload WHERE position = (SELECT position FROM r) ",
        "UNION ALL SELECT 3, body, NULL, packed, status, body_bytes, NULL, NULL FROM call_reply ",
        "WHERE position = (SELECT position FROM r)) AS data"
    ),
    read: record_data,
};

/// Reads a row of [`RECORD_DATA`].
pub(crate) fn record_data(row: &dyn RowReader) -> Result<RecordData> {
    let digest = || sha256(&row.bytes(2)?);
    let bytes = |what| packed::content(row, [3, 5, 6, 7])?.ok_or_else(|| damaged(what));
    match row.int(0)? {
        0 => Ok(RecordData::Content { sha256: digest()?, bytes: bytes("content")? }),
        1 => Ok(RecordData::Diff { artifact_id: row.text(1)?, bytes: bytes("diff")? }),
        2 => Ok(RecordData::Upload { sha256: digest()?, bytes: bytes("upload")? }),
        _ => {
            let status = u16::try_from(row.int(4)?).map_err(|_| damaged("reply"))?;
            Ok(RecordData::Reply(Reply { status, body: packed::reply(row, [1, 5, 3])? }))
        }
    }
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

/// Reads a disk usage from two columns, starting at `first`.
pub(crate) fn disk(row: &dyn RowReader, first: usize) -> Result<Option<Disk>> {
    let count = |column| Ok::<_, LedgerError>(row.maybe_int(column)?.map(to_count));
    Ok(count(first)?.zip(count(first + 1)?).map(|(bytes, files)| Disk { bytes, files }))
}

/// Reads the process that owns something from the columns of its node and its incarnation.
pub(crate) fn node(row: &dyn RowReader, [node_id, incarnation]: [usize; 2]) -> Result<Option<Node>> {
    let incarnation = row.maybe_int(incarnation)?.map(to_count);
    Ok(row.maybe_text(node_id)?.zip(incarnation).map(|(node_id, incarnation)| Node { node_id, incarnation }))
}

pub(crate) fn run_body(run: &Run) -> Result<String> {
    to_json(&RunBody {
        source: run.source.clone(),
        policy: run.policy.clone(),
        mounts: run.mounts.clone(),
        created_by: run.created_by.clone(),
        parent: run.parent.clone().map(|parent| ForkedFrom { merged_seq: None, ..parent }),
    })
}

/// Maximum characters of a text that lists are ordered by: an index of PostgreSQL holds no row of more than 2,700 bytes.
const MAX_SORTABLE: usize = 512;

/// Returns a text that lists are ordered by, as it is stored: cut, and without NUL, which PostgreSQL does not store.
pub(crate) fn sortable(text: Option<&str>) -> String {
    text.unwrap_or_default().chars().take(MAX_SORTABLE).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

pub(crate) fn run_id(row: &dyn RowReader, column: usize) -> Result<RunId> {
    RunId::parse_recorded(&row.text(column)?).map_err(|_| damaged("run ID"))
}

/// Converts the stored name of an enum's variant.
pub(crate) fn enum_value<T: DeserializeOwned>(name: &str, what: &str) -> Result<T> {
    let deserializer: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
    T::deserialize(deserializer).map_err(|_| damaged(what))
}

/// Selects tokens. Ends with the list of hashes in parentheses.
pub(crate) const TOKENS: &str = "SELECT run_id, token_id, secret_sha256, permissions, token.expires_at, revoked FROM token \
    JOIN run ON run.run_no = token.run_no WHERE secret_sha256 IN";

/// Reads a row of [`TOKENS`].
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

/// Selects what [`operator`] reads.
macro_rules! select_operator {
    ($rest:literal) => {
        concat!(
            "SELECT operator_no, name, secret_sha256, scopes, created_at, created_by, expires_at, revoked_at ",
            "FROM operator_token ",
            $rest
        )
    };
}
pub(crate) const OPERATORS: Select<(i64, OperatorToken)> =
    Select { sql: select_operator!("WHERE operator_no > $1 ORDER BY operator_no LIMIT $2"), read: operator };
/// The newest of the name.
pub(crate) const OPERATOR: Select<(i64, OperatorToken)> =
    Select { sql: select_operator!("WHERE lower(name) = lower($1) ORDER BY operator_no DESC LIMIT 1"), read: operator };

/// Reads an operator and its number.
pub(crate) fn operator(row: &dyn RowReader) -> Result<(i64, OperatorToken)> {
    let operator = Operator {
        name: operator_name(&row.text(1)?)?,
        scopes: json(&row.text(3)?, "scope")?,
        created_at: Some(row.text(4)?),
        created_by: Some(row.text(5)?),
        expires_at: row.maybe_text(6)?,
        revoked_at: row.maybe_text(7)?,
    };
    Ok((row.int(0)?, OperatorToken { operator, secret_sha256: sha256(&row.bytes(2)?)? }))
}

fn operator_name(text: &str) -> Result<OperatorName> {
    OperatorName::parse(text).map_err(|_| damaged("operator name"))
}

pub(crate) const APPROVAL: Select<(i64, Approval)> =
    Select { sql: select_approval!("WHERE approval_id = $1"), read: approval };
/// Selects approvals that are readable or not.
pub(crate) const EXPIRED_APPROVALS: Select<Result<Approval>> = Select {
    sql: concat!(
        "SELECT approval_no, body, state, decision, ",
        select_voters!(),
        ", expires_at FROM approval WHERE state = 'pending' AND expires_at <= $1 ORDER BY expires_at LIMIT $2"
    ),
    read: |row| Ok(approval(row).map(|(_, approval)| approval)),
};

/// Reads an approval and its number.
pub(crate) fn approval(row: &dyn RowReader) -> Result<(i64, Approval)> {
    let stored: Approval = json(&row.text(1)?, "approval")?;
    let decision: StoredDecision = match row.maybe_text(3)? {
        Some(text) => json(&text, "decision")?,
        None => StoredDecision::default(),
    };
    let votes = match decision.votes {
        Some(votes) => votes,
        None => row.maybe_text(4)?.unwrap_or_default().lines().map(vote).collect::<Result<_>>()?,
    };
    let mut approval = Approval {
        state: enum_value(&row.text(2)?, "approval state")?,
        approved_by: votes.iter().map(|vote| vote.operator.clone()).collect(),
        votes,
        decided_seq: decision.seq,
        edited_seq: decision.edited_seq,
        decided_by: decision.decided_by,
        on_behalf_of: decision.on_behalf_of,
        note: decision.note,
        ..stored
    };
    approval.resolve(decision.code);
    Ok((row.int(0)?, approval))
}

/// Parses a line of [`select_voters`].
fn vote(line: &str) -> Result<ApprovalVote> {
    let (operator, person) = line.split_once(' ').unwrap_or((line, ""));
    let on_behalf_of = if person.is_empty() { None } else { Some(json(person, "vote")?) };
    Ok(ApprovalVote { operator: operator_name(operator)?, on_behalf_of })
}

/// Returns the stored form of a decision that the record `seq` has made.
pub(crate) fn approval_decision(decision: &DecidedApproval, seq: i64, code: Option<Code>) -> Result<String> {
    let seq = u64::try_from(seq).ok();
    to_json(&StoredDecision {
        decided_by: decision.decided_by.clone(),
        on_behalf_of: decision.on_behalf_of.clone(),
        note: decision.note.clone(),
        votes: decision.votes.clone(),
        seq,
        edited_seq: seq.zip(decision.edits_after).map(|(seq, after)| seq + after),
        code,
    })
}

/// Selects a call: `seq`, tool, input hash, the status of its reply, and then three columns each of its reply, its newest record, and
/// the record at `seq`.
pub(crate) const CALL: Select<StoredCall> = Select {
    sql: concat!(
        "WITH earliest AS (SELECT a.seq, a.tool, a.input_sha256, a.run_no, a.tool_call_id, a.position \
      FROM audit_record a \
      WHERE a.tool_call_id = $1 AND a.run_no = (SELECT run_no FROM run WHERE run_id = $2) ORDER BY a.seq LIMIT 1), \
    replied AS (\
      SELECT a.seq, a.position FROM earliest JOIN audit_record a ON a.tool_call_id = earliest.tool_call_id \
      AND a.run_no = earliest.run_no AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 \
      JOIN call_reply c ON c.position = a.position ORDER BY a.seq LIMIT 1), \
    found AS (\
      SELECT coalesce(replied.seq, earliest.seq) AS seq, earliest.tool, earliest.input_sha256, replied.position AS replied, \
        coalesce(replied.position, earliest.position) AS position, \
        (SELECT a.position FROM audit_record a WHERE a.tool_call_id = earliest.tool_call_id AND a.run_no = earliest.run_no \
          AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 ORDER BY a.seq DESC LIMIT 1) AS newest \
      FROM earliest LEFT JOIN replied ON 1 = 1) \
    SELECT found.seq, found.tool, found.input_sha256, c.status, c.body, c.body_bytes, c.packed, ",
        record_columns!("n."),
        ", ",
        record_columns!("r."),
        " FROM found LEFT JOIN call_reply c ON c.position = found.replied \
    JOIN audit_record n ON n.position = found.newest JOIN audit_record r ON r.position = found.position"
    ),
    read: call,
};

/// Reads a row of [`CALL`].
pub(crate) fn call(row: &dyn RowReader) -> Result<StoredCall> {
    let reply = match row.maybe_int(3)? {
        None => None,
        Some(status) => {
            Some(Reply { status: u16::try_from(status).unwrap_or(0), body: packed::reply(row, [4, 5, 6])? })
        }
    };
    Ok(StoredCall {
        record: packed::record(row, 7)?,
        seq: to_count(row.int(0)?),
        hash: record_hash(&packed::record(row, 10)?)?,
        tool: row.text(1)?,
        input_sha256: input_sha256(&row.bytes(2)?)?,
        reply,
    })
}

/// Reads a record from its position and the [`record_columns`](packed::record_columns).
pub(crate) fn record(row: &dyn RowReader) -> Result<StoredRecord> {
    Ok(StoredRecord { position: row.int(0)?, text: packed::record(row, 1)? })
}

/// Returns the hash that a record's JSON text contains.
pub(crate) fn record_hash(text: &str) -> Result<Sha256> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: Sha256,
    }
    json::<Hashed>(text, "record").map(|record| record.hash)
}

/// Returns the hash of the previous record that a record's JSON text contains.
pub(crate) fn previous_hash(text: &str) -> Result<Sha256> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Linked {
        prev_hash: Sha256,
    }
    json::<Linked>(text, "record").map(|record| record.prev_hash)
}

/// Reads content from its columns. Content that cannot be decompressed is returned as it is stored, so that its hash does not match.
pub(crate) fn content(row: &dyn RowReader, columns: [usize; 4]) -> Result<Vec<u8>> {
    packed::content(row, columns)?.map_or_else(|| row.bytes(columns[0]), Ok)
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
                // If the content is missing, applying the step fails for this run alone, because the hash does not match.
                None if row.maybe_bytes(7)?.is_none() => StepBytes::Inline(Vec::new()),
                None => StepBytes::Inline(content(row, [7, 8, 9, 10])?),
            },
        }),
    };
    let path = LogicalPath::parse(&row.text(2)?).map_err(|_| damaged("path"))?;
    Ok((run_id(row, 0)?, to_count(row.int(1)?), Step { path, before: hash(3)?, after }))
}

/// Groups steps by their records. The steps must be in order.
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

/// Returns a call's hash of its input as its row has it: empty if the call has none. Most calls are such reads.
pub(crate) fn input_bytes(input_sha256: &Sha256) -> &[u8] {
    if *input_sha256 == Sha256::ZERO { &[] } else { input_sha256.as_bytes() }
}

/// The reverse of [`input_bytes`].
pub(crate) fn input_sha256(bytes: &[u8]) -> Result<Sha256> {
    if bytes.is_empty() { Ok(Sha256::ZERO) } else { sha256(bytes) }
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| LedgerError::Internal(Box::new(error)))
}

pub(crate) fn json<T: DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|_| damaged(what))
}
