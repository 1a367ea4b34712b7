//! One entry's rows, in the transaction of its group.

use std::collections::{HashMap, HashSet};

use model::{Record, RunId, Step, StepBytes, TokenId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::convert::{failed, fetch};
use crate::backend::to_int;
use crate::filter::ZONE;
use crate::group::{LAST_POSITION, Linked, RunHead, content_numbers, contents_of, select_head};
use crate::{AppendedAll, ApprovalDecision, Entry, LedgerError, Result, rows};

const FIRST_OF_ID: &str =
    "SELECT tool, input_sha256 FROM audit_record WHERE tool_call_id = ?1 AND run_no = ?2 ORDER BY seq LIMIT 1";
const IS_ANSWERED: &str = "SELECT 1 FROM audit_record a JOIN call_reply c ON c.position = a.position \
    WHERE a.tool_call_id = ?1 AND a.run_no = ?2 AND a.tool = ?3 AND a.input_sha256 = ?4";
const INSERT_RECORD: &str = "INSERT INTO audit_record (position, run_no, seq, tool_call_id, tool, timestamp, decision, \
    outcome, mutates, input_sha256, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const INSERT_PATH: &str = "INSERT INTO record_path (position, path, run_no) VALUES (?1, ?2, ?3)";
const INSERT_REPLY: &str = "INSERT INTO call_reply (position, status, body) VALUES (?1, ?2, ?3)";
const INSERT_ARTIFACT: &str = "INSERT INTO artifact (position, artifact_id, run_no, diff) VALUES (?1, ?2, ?3, ?4)";
const INSERT_CONTENT: &str = "INSERT INTO content (content_no, run_no, sha256, bytes) VALUES (?1, ?2, ?3, ?4)";
const INSERT_STEP: &str = "INSERT INTO step (run_no, seq, place, path, before_sha256, after_sha256, mode, staged, position) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const INSERT_APPROVAL: &str = "INSERT INTO approval (approval_id, run_no, state, expires_at, body, input) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const IS_REVOKED: &str = "SELECT 1 FROM token WHERE run_no = ?1 AND token_id = ?2 AND revoked";
const IS_PENDING: &str = "SELECT 1 FROM approval WHERE approval_id = ?1 AND run_no = ?2 AND state = 'pending'";
const DECIDE: &str =
    "UPDATE approval SET state = ?1, decision = ?2 WHERE approval_id = ?3 AND run_no = ?4 AND state = 'pending'";
const UPDATE_HEAD: &str = "UPDATE run_head SET head_seq = ?2, head_hash = ?3, mutations = ?4, denied = ?5, \
    pending_approvals = ?6, files_touched = ?7, insertions = ?8, deletions = ?9, files_deleted = ?10, bytes = ?11, \
    disk_bytes = ?12, disk_files = ?13 WHERE run_no = ?1";
const UPDATE_STATE: &str = "UPDATE run SET state = ?2 WHERE run_no = ?1";
const SEAL_ZONE: &str = "INSERT INTO audit_zone (zone, min_timestamp, max_timestamp) \
    SELECT ?1, min(timestamp), max(timestamp) FROM audit_record WHERE position >= ?2 AND position <= ?3 \
    HAVING count(*) > 0 ON CONFLICT (zone) DO NOTHING";

/// Heads kept at most; a run that comes back is read again.
const MAX_HEADS: usize = 4096;

/// Where the audit stands, over all runs and in those that were used of late.
#[derive(Default)]
pub(super) struct Heads {
    runs: HashMap<RunId, Known>,
    /// The last record's position.
    pub(super) position: i64,
}

/// What is known of one run.
struct Known {
    head: RunHead,
    /// Tokens that are not revoked: whatever revokes one has the run read again.
    good_tokens: HashSet<TokenId>,
}

impl Heads {
    /// Reads where the audit stands, after an opening or a failure.
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let position = connection.query_row(LAST_POSITION, [], |row| row.get(0)).map_err(failed)?;
        Ok(Self { runs: HashMap::new(), position })
    }

    /// Appends `entries`, all or none. Where the answer is an error, part of them may have been written.
    pub(super) fn append_all(&mut self, connection: &Connection, entries: &[Entry]) -> Result<AppendedAll> {
        // Whatever may be refused comes before anything is written.
        for (place, entry) in entries.iter().enumerate() {
            let known = self.known(connection, &entry.draft.run_id)?;
            let is_revoked = known.is_revoked(connection, entry)?;
            if let Some(unmet) = known.head.unmet(entry, is_revoked) {
                return Ok(AppendedAll::PreconditionFailed(unmet));
            }
            let run_no = known.head.run_no;
            match if entry.client_supplied_id { first_of_id(connection, entry, run_no)? } else { First::New } {
                First::Other => return Ok(AppendedAll::Reused(place)),
                First::Same if entry.is_answered_once() && is_answered(connection, entry, run_no)? => {
                    return Ok(AppendedAll::Repeated(place));
                }
                First::New | First::Same => {}
            }
            if let Some(approval_decision) = &entry.approval_decision
                && !is_pending(connection, approval_decision, run_no)?
            {
                return Ok(AppendedAll::NotPending);
            }
        }
        let records = entries.iter().map(|entry| self.append(connection, entry)).collect::<Result<_>>()?;
        Ok(AppendedAll::Recorded(records))
    }

    fn append(&mut self, connection: &Connection, entry: &Entry) -> Result<Record> {
        let position = self.position + 1;
        let head = &mut self.known(connection, &entry.draft.run_id)?.head;
        if let Some(approval_decision) = &entry.approval_decision {
            decide(connection, approval_decision, head.run_no)?;
        }
        let linked = head.link(entry);
        insert(connection, entry, &linked, position, head.run_no).map_err(failed)?;
        if let Some((approval, input)) = &entry.approval {
            let body = rows::to_json(approval)?;
            let (id, state) = (approval.approval_id.as_str(), approval.state.as_str());
            connection
                .prepare_cached(INSERT_APPROVAL)
                .and_then(|mut sql| sql.execute(params![id, head.run_no, state, approval.expires_at, body, input]))
                .map_err(failed)?;
        }
        self.position = position;
        if position % ZONE == 0 {
            let zone = position / ZONE - 1;
            connection
                .prepare_cached(SEAL_ZONE)
                .and_then(|mut sql| sql.execute(params![zone, zone * ZONE, position - 1]))
                .map_err(failed)?;
        }
        Ok(linked.record)
    }

    fn known(&mut self, connection: &Connection, run: &RunId) -> Result<&mut Known> {
        if !self.runs.contains_key(run) {
            let sql = select_head!("WHERE run_id = $1");
            let found = fetch(connection, sql, &[run.as_str().into()], RunHead::read)?;
            let head = found.into_iter().next().ok_or(LedgerError::NoSuchRun)?;
            self.runs.insert(run.clone(), Known { head, good_tokens: HashSet::new() });
        }
        self.runs.get_mut(run).ok_or(LedgerError::NoSuchRun)
    }

    /// Writes the heads that changed.
    pub(super) fn store(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for head in self.runs.values_mut().map(|known| &mut known.head).filter(|head| head.changed) {
            let usage = &head.usage;
            connection.prepare_cached(UPDATE_HEAD)?.execute(params![
                head.run_no,
                to_int(head.seq),
                head.hash.as_bytes(),
                to_int(head.mutations),
                to_int(head.denied),
                to_int(head.pending_approvals),
                to_int(usage.files_touched),
                to_int(usage.insertions),
                to_int(usage.deletions),
                to_int(usage.files_deleted),
                to_int(usage.bytes),
                head.disk.map(|disk| to_int(disk.bytes)),
                head.disk.map(|disk| to_int(disk.files)),
            ])?;
            if head.state_changed {
                connection.prepare_cached(UPDATE_STATE)?.execute(params![head.run_no, head.state.as_str()])?;
            }
            head.changed = false;
            head.state_changed = false;
        }
        Ok(())
    }

    /// Forgets the head of a run that is about to change beside it; it has been stored.
    pub(super) fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
    }

    /// Forgets the heads of all runs; they have been stored.
    pub(super) fn clear(&mut self) {
        self.runs = HashMap::new();
    }

    /// Keeps within bounds what is held in memory; all of it has been stored.
    pub(super) fn shrink(&mut self) {
        if self.runs.len() > MAX_HEADS {
            self.runs = HashMap::new();
        }
    }
}

impl Known {
    /// Whether the token that `entry` needs is revoked.
    fn is_revoked(&mut self, connection: &Connection, entry: &Entry) -> Result<bool> {
        let Some(token) = &entry.preconditions.token else { return Ok(false) };
        if self.good_tokens.contains(&token.token_id) {
            return Ok(false);
        }
        let mut revoked = connection.prepare_cached(IS_REVOKED).map_err(failed)?;
        let revoked = revoked.exists(params![self.head.run_no, token.token_id.as_str()]).map_err(failed)?;
        if !revoked {
            self.good_tokens.insert(token.token_id.clone());
        }
        Ok(revoked)
    }
}

/// The first call under an ID.
enum First {
    /// There is none.
    New,
    /// It has the same tool and input.
    Same,
    /// It is another.
    Other,
}

fn first_of_id(connection: &Connection, entry: &Entry, run_no: i64) -> Result<First> {
    let mut first = connection.prepare_cached(FIRST_OF_ID).map_err(failed)?;
    let found: Option<(String, Vec<u8>)> = first
        .query_row(params![entry.draft.tool_call_id.as_str(), run_no], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .map_err(failed)?;
    Ok(match found {
        None => First::New,
        Some((tool, input)) if tool == entry.draft.tool && input == entry.input_sha256.as_bytes() => First::Same,
        Some(_) => First::Other,
    })
}

fn is_answered(connection: &Connection, entry: &Entry, run_no: i64) -> Result<bool> {
    let mut answered = connection.prepare_cached(IS_ANSWERED).map_err(failed)?;
    let draft = &entry.draft;
    let values = params![draft.tool_call_id.as_str(), run_no, draft.tool, entry.input_sha256.as_bytes()];
    answered.exists(values).map_err(failed)
}

fn is_pending(connection: &Connection, approval_decision: &ApprovalDecision, run_no: i64) -> Result<bool> {
    let mut pending = connection.prepare_cached(IS_PENDING).map_err(failed)?;
    pending.exists(params![approval_decision.approval_id.as_str(), run_no]).map_err(failed)
}

fn decide(connection: &Connection, approval_decision: &ApprovalDecision, run_no: i64) -> Result<()> {
    let decision = rows::approval_decision(approval_decision.decided_by.as_deref(), approval_decision.note.as_deref())?;
    let mut update = connection.prepare_cached(DECIDE).map_err(failed)?;
    let values = params![approval_decision.state.as_str(), decision, approval_decision.approval_id.as_str(), run_no];
    update.execute(values).map(drop).map_err(failed)
}

fn insert(connection: &Connection, entry: &Entry, linked: &Linked, position: i64, run_no: i64) -> rusqlite::Result<()> {
    let record = &linked.record;
    let seq = to_int(record.seq);
    connection.prepare_cached(INSERT_RECORD)?.execute(params![
        position,
        run_no,
        seq,
        record.tool_call_id.as_str(),
        record.tool,
        record.timestamp,
        linked.decision,
        linked.outcome,
        record.mutates,
        entry.input_sha256.as_bytes(),
        linked.body,
    ])?;
    for path in linked.paths() {
        connection.prepare_cached(INSERT_PATH)?.execute(params![position, path, run_no])?;
    }
    if let Some(reply) = &entry.reply {
        connection.prepare_cached(INSERT_REPLY)?.execute(params![position, reply.status, reply.body])?;
    }
    if let Some(artifact) = &entry.artifact {
        let values = params![position, artifact.artifact_id.as_str(), run_no, artifact.diff];
        connection.prepare_cached(INSERT_ARTIFACT)?.execute(values)?;
    }
    for (content_no, (sha256, bytes)) in content_numbers(position).zip(contents_of(&entry.steps)) {
        connection.prepare_cached(INSERT_CONTENT)?.execute(params![content_no, run_no, sha256.as_bytes(), bytes])?;
    }
    let mut steps = (0..).zip(&entry.steps);
    steps.try_for_each(|(place, step)| insert_step(connection, step, (run_no, seq, place), position))
}

fn insert_step(
    connection: &Connection,
    step: &Step,
    (run_no, seq, place): (i64, i64, i64),
    position: i64,
) -> rusqlite::Result<()> {
    let after = step.after.as_ref();
    let staged = match after.map(|content| &content.bytes) {
        None | Some(StepBytes::Inline(_)) => None,
        Some(StepBytes::Staged(name)) => Some(name),
    };
    let before = step.before.as_ref().map(model::Sha256::as_bytes);
    let values = params![
        run_no,
        seq,
        place,
        step.path.as_str(),
        before,
        after.map(|content| content.sha256.as_bytes()),
        after.map(|content| content.mode),
        staged,
        position,
    ];
    connection.prepare_cached(INSERT_STEP)?.execute(values).map(drop)
}
