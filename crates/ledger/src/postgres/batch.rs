//! The rows of a group, gathered into columns: one statement, however many entries, since each is a way to the server and
//! back.

use std::collections::{HashMap, HashSet};

use model::{Approval, ApprovalId, Draft, Record, RunId, Sha256, StepBytes, StepContent, TokenId, ToolCallId};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use super::fence::FencedTx;
use crate::backend::to_int;
use crate::filter::ZONE;
use crate::group::{self, Linked, RunHead};
use crate::{AppendedAll, Entry, LedgerError, Result, rows};

/// Records, their paths and the heads behind them in one statement, with whatever goes along.
macro_rules! insert_records {
    ($along:literal) => {
        concat!(
            "WITH paths AS (",
            "INSERT INTO record_path (position, path, run_no) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])), ",
            "heads AS (",
            "UPDATE run_head SET head_seq = h.head_seq, head_hash = h.head_hash, mutations = h.mutations, denied = h.denied, ",
            "pending_approvals = h.pending_approvals, files_touched = h.files_touched, insertions = h.insertions, ",
            "deletions = h.deletions, files_deleted = h.files_deleted, bytes = h.bytes, ",
            "disk_bytes = h.disk_bytes, disk_files = h.disk_files ",
            "FROM unnest($4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], ",
            "$11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[]) AS h ",
            "(run_no, head_seq, head_hash, mutations, ",
            "denied, pending_approvals, files_touched, insertions, deletions, files_deleted, bytes, disk_bytes, disk_files) ",
            "WHERE run_head.run_no = h.run_no)",
            $along,
            " INSERT INTO audit_record (position, run_no, seq, tool_call_id, tool, timestamp, decision, outcome, mutates, ",
            "input_sha256, body) ",
            "SELECT * FROM unnest($17::bigint[], $18::bigint[], $19::bigint[], $20::text[], $21::text[], $22::text[], ",
            "$23::text[], $24::text[], $25::boolean[], $26::bytea[], $27::text[])"
        )
    };
}
const INSERT_RECORDS: &str = insert_records!("");
const INSERT_WITH_ALL: &str = insert_records!(
    ", replies AS (INSERT INTO call_reply (position, status, body) \
      SELECT * FROM unnest($28::bigint[], $29::bigint[], $30::text[])), \
    artifacts AS (INSERT INTO artifact (position, artifact_id, run_no, diff) \
      SELECT * FROM unnest($31::bigint[], $32::text[], $33::bigint[], $34::bytea[])), \
    contents AS (INSERT INTO content (content_no, run_no, sha256, bytes) \
      SELECT * FROM unnest($35::bigint[], $36::bigint[], $37::bytea[], $38::bytea[])), \
    steps AS (INSERT INTO step (run_no, seq, place, path, before_sha256, after_sha256, mode, staged, position) \
      SELECT * FROM unnest($39::bigint[], $40::bigint[], $41::bigint[], $42::text[], $43::bytea[], $44::bytea[], \
      $45::bigint[], $46::text[], $47::bigint[]))"
);
const INSERT_APPROVALS: &str = "INSERT INTO approval (approval_id, run_no, state, expires_at, body, input) \
    SELECT approval_id, run_no, state, expires_at, body, input \
    FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) \
    WITH ORDINALITY AS a (approval_id, run_no, state, expires_at, body, input, place) ORDER BY place";
const DECIDE: &str = "UPDATE approval SET state = d.state, decision = d.decision \
    FROM unnest($1::text[], $2::text[], $3::text[]) AS d (approval_id, state, decision) \
    WHERE approval.approval_id = d.approval_id";
const UPDATE_STATES: &str = "UPDATE run SET state = s.state FROM unnest($1::bigint[], $2::text[]) AS s (run_no, state) \
    WHERE run.run_no = s.run_no";
const SEAL_ZONE: &str = "INSERT INTO audit_zone (zone, min_timestamp, max_timestamp) \
    SELECT $1, min(timestamp), max(timestamp) FROM audit_record WHERE position >= $2 AND position <= $3 \
    HAVING count(*) > 0 ON CONFLICT (zone) DO NOTHING";

type Insert<'q> = Query<'q, Postgres, PgArguments>;

/// What a group is put behind.
#[derive(Default)]
pub(super) struct Known {
    pub(super) heads: HashMap<RunId, RunHead>,
    /// The first call under each ID that the group claims.
    pub(super) calls: HashMap<(i64, ToolCallId), FirstCall>,
    /// Of the approvals that the group decides, those that are pending, with their runs.
    pub(super) pending: HashSet<(i64, ApprovalId)>,
    /// Of the tokens that the group needs, those that are revoked, with their runs.
    pub(super) revoked: HashSet<(i64, TokenId)>,
    /// The last record's position.
    pub(super) position: i64,
}

/// The first call under an ID.
pub(super) struct FirstCall {
    pub(super) tool: String,
    pub(super) input_sha256: Sha256,
    /// Whether it, or the same call after it, has a reply.
    pub(super) is_answered: bool,
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Batch<'a> {
    rows: Vec<Row<'a>>,
    /// Approvals as they are stored.
    approvals: Vec<(&'a Approval, i64, String, &'a str)>,
    /// Decided approvals: which, how, by whom.
    decisions: Vec<(&'a str, &'static str, String)>,
}

struct Row<'a> {
    entry: &'a Entry,
    position: i64,
    run_no: i64,
    seq: i64,
    body: String,
}

impl Known {
    /// Puts `entries` behind their run's head, and their rows into `batch`: all or none.
    pub(super) fn append_all<'a>(&mut self, entries: &'a [Entry], batch: &mut Batch<'a>) -> Result<AppendedAll> {
        for (place, entry) in entries.iter().enumerate() {
            let draft = &entry.draft;
            let head = self.heads.get(&draft.run_id).ok_or(LedgerError::NoSuchRun)?;
            let run_no = head.run_no;
            let token = entry.preconditions.token.as_ref().map(|token| (run_no, token.token_id.clone()));
            let is_revoked = token.is_some_and(|token| self.revoked.contains(&token));
            if let Some(unmet) = head.unmet(entry, is_revoked) {
                return Ok(AppendedAll::PreconditionFailed(unmet));
            }
            let first = self.calls.get(&(run_no, draft.tool_call_id.clone())).filter(|_| entry.client_supplied_id);
            if let Some(first) = first {
                if (&first.tool, first.input_sha256) != (&draft.tool, entry.input_sha256) {
                    return Ok(AppendedAll::Reused(place));
                }
                if first.is_answered && entry.is_answered_once() {
                    return Ok(AppendedAll::Repeated(place));
                }
            }
            let decided = entry
                .approval_decision
                .as_ref()
                .map(|approval_decision| (run_no, approval_decision.approval_id.clone()));
            if decided.is_some_and(|decided| !self.pending.contains(&decided)) {
                return Ok(AppendedAll::NotPending);
            }
        }
        let records = entries.iter().map(|entry| self.append(entry, batch)).collect::<Result<_>>()?;
        Ok(AppendedAll::Recorded(records))
    }

    fn append<'a>(&mut self, entry: &'a Entry, batch: &mut Batch<'a>) -> Result<Record> {
        let draft = &entry.draft;
        let head = self.heads.get_mut(&draft.run_id).ok_or(LedgerError::NoSuchRun)?;
        let run_no = head.run_no;
        let id = (run_no, draft.tool_call_id.clone());
        if let Some(approval_decision) = &entry.approval_decision {
            let decision =
                rows::approval_decision(approval_decision.decided_by.as_deref(), approval_decision.note.as_deref())?;
            self.pending.remove(&(run_no, approval_decision.approval_id.clone()));
            batch.decisions.push((approval_decision.approval_id.as_str(), approval_decision.state.as_str(), decision));
        }
        if let Some((approval, input)) = &entry.approval {
            batch.approvals.push((approval, run_no, rows::to_json(approval)?, input));
        }
        let Linked { record, body, .. } = head.link(entry);
        let first = || FirstCall {
            tool: draft.tool.clone(),
            input_sha256: entry.input_sha256,
            is_answered: entry.reply.is_some(),
        };
        self.calls.entry(id).or_insert_with(first);
        self.position += 1;
        batch.rows.push(Row { entry, position: self.position, run_no, seq: to_int(record.seq), body });
        Ok(record)
    }

    /// The runs whose heads the batch changes.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&RunId, &RunHead)> {
        self.heads.iter().filter(|(_, head)| head.changed)
    }
}

impl Batch<'_> {
    /// Writes everything.
    pub(super) async fn write(&self, fenced: &mut FencedTx<'_>, known: &Known) -> sqlx::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let along = self.rows.iter().any(|row| row.entry.reply.is_some() || !row.entry.steps.is_empty());
        if along || self.rows.iter().any(|row| row.entry.artifact.is_some()) {
            let query = self.bind_records(sqlx::query(INSERT_WITH_ALL), known);
            let query = self.bind_steps(self.bind_contents(self.bind_replies(query)));
            query.execute(fenced.connection()).await?;
        } else {
            self.bind_records(sqlx::query(INSERT_RECORDS), known).execute(fenced.connection()).await?;
        }
        self.write_approvals(fenced).await?;
        write_states(fenced, known).await?;
        self.seal_zones(fenced).await
    }

    /// `$1` to `$27`.
    fn bind_records<'q>(&self, query: Insert<'q>, known: &Known) -> Insert<'q> {
        let mut paths: (Vec<i64>, Vec<&str>, Vec<i64>) = Default::default();
        for row in &self.rows {
            let draft = &row.entry.draft;
            for path in group::paths_of(&draft.paths_read, &draft.paths_written, &draft.files) {
                paths.0.push(row.position);
                paths.1.push(path);
                paths.2.push(row.run_no);
            }
        }
        let heads: Vec<_> = known.changed().map(|(_, head)| head).collect();
        let head = |take: fn(&RunHead) -> u64| heads.iter().map(|head| to_int(take(head))).collect::<Vec<_>>();
        let text = |take: fn(&Draft) -> &str| self.rows.iter().map(|row| take(&row.entry.draft)).collect::<Vec<_>>();
        query
            .bind(paths.0)
            .bind(paths.1)
            .bind(paths.2)
            .bind(heads.iter().map(|head| head.run_no).collect::<Vec<_>>())
            .bind(head(|head| head.seq))
            .bind(heads.iter().map(|head| head.hash.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(head(|head| head.mutations))
            .bind(head(|head| head.denied))
            .bind(head(|head| head.pending_approvals))
            .bind(head(|head| head.usage.files_touched))
            .bind(head(|head| head.usage.insertions))
            .bind(head(|head| head.usage.deletions))
            .bind(head(|head| head.usage.files_deleted))
            .bind(head(|head| head.usage.bytes))
            .bind(heads.iter().map(|head| head.disk.map(|disk| to_int(disk.bytes))).collect::<Vec<_>>())
            .bind(heads.iter().map(|head| head.disk.map(|disk| to_int(disk.files))).collect::<Vec<_>>())
            .bind(self.column(|row| row.position))
            .bind(self.column(|row| row.run_no))
            .bind(self.column(|row| row.seq))
            .bind(text(|draft| draft.tool_call_id.as_str()))
            .bind(text(|draft| &draft.tool))
            .bind(text(|draft| &draft.timestamp))
            .bind(text(|draft| group::decision_word(draft.decision)))
            .bind(text(|draft| group::outcome_word(draft.outcome)))
            .bind(self.column(|row| row.entry.draft.mutates))
            .bind(self.column(|row| row.entry.input_sha256.as_bytes().as_slice()))
            .bind(self.column(|row| row.body.as_str()))
    }

    fn column<'b, T>(&'b self, take: impl Fn(&'b Row<'b>) -> T) -> Vec<T> {
        self.rows.iter().map(take).collect()
    }

    /// `$28` to `$34`: replies and diffs.
    fn bind_replies<'q>(&self, query: Insert<'q>) -> Insert<'q> {
        let replies: Vec<_> =
            self.rows.iter().filter_map(|row| Some((row.position, row.entry.reply.as_ref()?))).collect();
        let artifacts: Vec<_> = self.rows.iter().filter_map(|row| Some((row, row.entry.artifact.as_ref()?))).collect();
        query
            .bind(replies.iter().map(|(position, _)| *position).collect::<Vec<_>>())
            .bind(replies.iter().map(|(_, reply)| i64::from(reply.status)).collect::<Vec<_>>())
            .bind(replies.iter().map(|(_, reply)| reply.body.as_str()).collect::<Vec<_>>())
            .bind(artifacts.iter().map(|(row, _)| row.position).collect::<Vec<_>>())
            .bind(artifacts.iter().map(|(_, artifact)| artifact.artifact_id.as_str()).collect::<Vec<_>>())
            .bind(artifacts.iter().map(|(row, _)| row.run_no).collect::<Vec<_>>())
            .bind(artifacts.iter().map(|(_, artifact)| artifact.diff.as_slice()).collect::<Vec<_>>())
    }

    /// `$35` to `$38`: what is left in files.
    fn bind_contents<'q>(&self, query: Insert<'q>) -> Insert<'q> {
        let mut contents = Vec::new();
        for row in &self.rows {
            let left = group::content_numbers(row.position).zip(group::contents_of(&row.entry.steps));
            contents.extend(left.map(|content| (row.run_no, content)));
        }
        query
            .bind(contents.iter().map(|(_, (content_no, _))| *content_no).collect::<Vec<_>>())
            .bind(contents.iter().map(|(run_no, _)| *run_no).collect::<Vec<_>>())
            .bind(contents.iter().map(|(_, (_, (sha256, _)))| hash(sha256)).collect::<Vec<_>>())
            .bind(contents.iter().map(|(_, (_, (_, bytes)))| *bytes).collect::<Vec<_>>())
    }

    /// `$39` to `$47`: the steps.
    fn bind_steps<'q>(&self, query: Insert<'q>) -> Insert<'q> {
        let mut steps = Vec::new();
        for row in &self.rows {
            steps.extend((0_i64..).zip(&row.entry.steps).map(|(place, step)| (row, place, step)));
        }
        let after = || steps.iter().map(|(.., step)| step.after.as_ref());
        query
            .bind(steps.iter().map(|(row, ..)| row.run_no).collect::<Vec<_>>())
            .bind(steps.iter().map(|(row, ..)| row.seq).collect::<Vec<_>>())
            .bind(steps.iter().map(|(_, place, _)| *place).collect::<Vec<_>>())
            .bind(steps.iter().map(|(.., step)| step.path.as_str()).collect::<Vec<_>>())
            .bind(steps.iter().map(|(.., step)| step.before.as_ref().map(hash)).collect::<Vec<_>>())
            .bind(after().map(|after| after.map(|content| hash(&content.sha256))).collect::<Vec<_>>())
            .bind(after().map(|after| after.map(|content| i64::from(content.mode))).collect::<Vec<_>>())
            .bind(after().map(|after| after.and_then(staged)).collect::<Vec<_>>())
            .bind(steps.iter().map(|(row, ..)| row.position).collect::<Vec<_>>())
    }

    async fn write_approvals(&self, fenced: &mut FencedTx<'_>) -> sqlx::Result<()> {
        if !self.approvals.is_empty() {
            let approvals = &self.approvals;
            sqlx::query(INSERT_APPROVALS)
                .bind(approvals.iter().map(|(approval, ..)| approval.approval_id.as_str()).collect::<Vec<_>>())
                .bind(approvals.iter().map(|(_, run_no, ..)| *run_no).collect::<Vec<_>>())
                .bind(approvals.iter().map(|(approval, ..)| approval.state.as_str()).collect::<Vec<_>>())
                .bind(approvals.iter().map(|(approval, ..)| approval.expires_at.as_str()).collect::<Vec<_>>())
                .bind(approvals.iter().map(|(_, _, body, _)| body.as_str()).collect::<Vec<_>>())
                .bind(approvals.iter().map(|(.., input)| *input).collect::<Vec<_>>())
                .execute(fenced.connection())
                .await?;
        }
        if !self.decisions.is_empty() {
            sqlx::query(DECIDE)
                .bind(self.decisions.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
                .bind(self.decisions.iter().map(|(_, state, _)| *state).collect::<Vec<_>>())
                .bind(self.decisions.iter().map(|(.., decision)| decision.as_str()).collect::<Vec<_>>())
                .execute(fenced.connection())
                .await?;
        }
        Ok(())
    }

    /// Notes the times of zones that the batch completes.
    async fn seal_zones(&self, fenced: &mut FencedTx<'_>) -> sqlx::Result<()> {
        for row in self.rows.iter().filter(|row| row.position % ZONE == 0) {
            let zone = row.position / ZONE - 1;
            let seal = sqlx::query(SEAL_ZONE).bind(zone).bind(zone * ZONE).bind(row.position - 1);
            seal.execute(fenced.connection()).await?;
        }
        Ok(())
    }
}

async fn write_states(fenced: &mut FencedTx<'_>, known: &Known) -> sqlx::Result<()> {
    let changed: Vec<_> = known.heads.values().filter(|head| head.state_changed).collect();
    if changed.is_empty() {
        return Ok(());
    }
    sqlx::query(UPDATE_STATES)
        .bind(changed.iter().map(|head| head.run_no).collect::<Vec<_>>())
        .bind(changed.iter().map(|head| head.state.as_str()).collect::<Vec<_>>())
        .execute(fenced.connection())
        .await
        .map(drop)
}

fn hash(hash: &Sha256) -> &[u8] {
    hash.as_bytes()
}

fn staged(content: &StepContent) -> Option<&str> {
    match &content.bytes {
        StepBytes::Staged(name) => Some(name),
        StepBytes::Inline(_) => None,
    }
}
