//! The head of a run's chain, as appends read it, and the changes of a run that become durable with the record of the operation.

use std::collections::BTreeMap;

use model::{Disk, PeopleCounts, RunId, RunState, Sha256, Usage, agent_of, repository_of};

use crate::insert::insert_token;
use crate::statement::{RowReader, Statement, to_count};
use crate::{Appended, Epoch, Expiry, FailedPrecondition, HistoryQuota, Node, Result, RunTransition, rows};

/// Selects what [`RunHead::read`] reads.
macro_rules! select_head {
    ($rest:literal) => {
        select_head!("", $rest)
    };
    // `$more` are further columns, each with a comma before it.
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT run_id, run.run_no, state, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files, events, event_bytes, expires_at, ",
            "owner_node, owner_incarnation, epoch, history_bytes, max_history_bytes, max_records, people_records, people_mutations, ",
            "own_bytes, own_files",
            $more,
            " FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $rest
        )
    };
}

pub(crate) use select_head;

/// The head of a run's chain, with the counters that each record updates.
#[derive(Clone, Debug)]
pub(crate) struct RunHead {
    pub(crate) run_no: i64,
    pub(crate) state: RunState,
    /// When the run expires, RFC 3339 UTC.
    pub(crate) expires_at: Option<String>,
    pub(crate) seq: u64,
    pub(crate) hash: Sha256,
    pub(crate) mutations: u64,
    pub(crate) denied: u64,
    /// Records that are not by the agent, and the mutations among them.
    pub(crate) people: PeopleCounts,
    pub(crate) pending_approvals: u64,
    pub(crate) usage: Usage,
    /// The disk usage, if it is known.
    pub(crate) disk: Option<Disk>,
    /// The files that the run has written.
    pub(crate) own: Disk,
    /// Events and uploads.
    pub(crate) events: u64,
    pub(crate) event_bytes: u64,
    /// The process that owns the run, and the epoch under which it does.
    pub(crate) owner: Option<Node>,
    pub(crate) epoch: Epoch,
    /// Bytes that its calls have added to the database, and those of the objects that it refers to.
    pub(crate) history_bytes: u64,
    pub(crate) history_quota: HistoryQuota,
    /// Whether the head differs from the stored one.
    pub(crate) changed: bool,
    /// Whether `state` differs from the stored one.
    pub(crate) state_changed: bool,
}

impl RunHead {
    /// How many columns [`read`](Self::read) reads. Those that a query selects besides follow them.
    pub(crate) const COLUMNS: usize = 28;

    /// Reads a row of [`select_head`].
    pub(crate) fn read(row: &dyn RowReader) -> Result<Self> {
        let count = |column| row.int(column).map(to_count);
        Ok(Self {
            run_no: row.int(1)?,
            state: rows::enum_value(&row.text(2)?, "run state")?,
            seq: count(3)?,
            hash: rows::sha256(&row.bytes(4)?)?,
            mutations: count(5)?,
            denied: count(6)?,
            pending_approvals: count(7)?,
            usage: rows::usage(row, 8)?,
            disk: rows::disk(row, 13)?,
            events: count(15)?,
            event_bytes: count(16)?,
            expires_at: row.maybe_text(17)?,
            owner: rows::node(row, [18, 19])?,
            epoch: Epoch(count(20)?),
            history_bytes: count(21)?,
            history_quota: HistoryQuota::stored(row.maybe_int(22)?, row.maybe_int(23)?),
            people: PeopleCounts { calls: count(24)?, mutations: count(25)? },
            own: Disk { bytes: count(26)?, files: count(27)? },
            changed: false,
            state_changed: false,
        })
    }
}

const OPEN_RUN: &str = "UPDATE run SET base_commit = $2, import_report = $3, state = 'open' \
    WHERE run_id = $1 AND state = 'preparing'";
const FAIL_IMPORT: &str = "UPDATE run SET closed_at = $2, import_report = $3, state = 'closed' \
    WHERE run_id = $1 AND state = 'preparing'";
const RESUME_IMPORT: &str = "UPDATE run SET import_report = $2 WHERE run_id = $1 AND state = 'preparing'";
const SET_STATE: &str = "UPDATE run SET state = CASE state WHEN 'deleted' THEN state ELSE $2 END, \
    closed_at = coalesce(closed_at, $3) WHERE run_id = $1";
const ARCHIVE_RUN: &str = "UPDATE run SET state = 'deleted', archived_at = $2, archive_uri = $3, archived_seq = $4 \
    WHERE run_id = $1 AND state = 'closed'";
const SET_LABELS: &str =
    "UPDATE run SET labels = $2, repository = coalesce(nullif($3, ''), source_url), agent = $4 WHERE run_id = $1";
const SET_EXPIRY: &str = "UPDATE run SET expires_at = $2 WHERE run_id = $1";
/// Never to an earlier record.
const SET_MERGED: &str =
    "UPDATE run SET merged_seq = $2 WHERE run_id = $1 AND parent_id IS NOT NULL AND coalesce(merged_seq, 0) < $2";
const REVOKE_ALL_TOKENS: &str =
    "UPDATE token SET revoked = $2 WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const REVOKE_TOKEN: &str = "UPDATE token SET revoked = $3 \
    WHERE token_id = $2 AND run_no = (SELECT run_no FROM run WHERE run_id = $1)";

impl RunTransition {
    /// Returns why a run with this `head` does not take the change.
    pub(crate) fn rejection(&self, head: &RunHead) -> Option<Appended> {
        let state = head.state;
        match (self, state) {
            (Self::Archive { head_seq, head_hash, .. }, _) => {
                let is_archived_head = (head.seq, head.hash) == (*head_seq, *head_hash);
                (state != RunState::Closed || !is_archived_head).then_some(Appended::Unchanged)
            }
            (Self::Open { .. } | Self::FailImport { .. } | Self::ResumeImport { .. }, RunState::Preparing) => None,
            (Self::Open { .. } | Self::FailImport { .. } | Self::ResumeImport { .. }, _)
            | (Self::Close { .. } | Self::Expire { .. }, RunState::Closed | RunState::Deleted)
            | (Self::Delete { .. }, RunState::Deleted) => Some(Appended::Unchanged),
            (
                Self::IssueToken(_) | Self::RevokeAllTokens | Self::Update { .. } | Self::Fork | Self::Merge { .. },
                RunState::Deleted,
            )
            | (Self::Update { expires_at: Some(_), .. }, RunState::Closed) => {
                Some(Appended::PreconditionFailed(FailedPrecondition::Run(state)))
            }
            (Self::Expire { expires_at }, _) if head.expires_at.as_ref() != Some(expires_at) => {
                Some(Appended::Unchanged)
            }
            (
                Self::Close { .. }
                | Self::Expire { .. }
                | Self::Delete { .. }
                | Self::IssueToken(_)
                | Self::RevokeToken(_)
                | Self::RevokeAllTokens
                | Self::Fork
                | Self::Merge { .. }
                | Self::Update { .. },
                _,
            ) => None,
        }
    }

    /// Updates the run's head in memory as [`statements`](Self::statements) update the database.
    pub(crate) fn apply(&self, head: &mut RunHead) {
        match self {
            Self::Open { import, .. } => {
                head.state = RunState::Open;
                head.disk = Some(Disk { bytes: import.bytes, files: import.files });
            }
            Self::FailImport { .. } | Self::Close { .. } | Self::Expire { .. } => head.state = RunState::Closed,
            Self::Delete { .. } | Self::Archive { .. } => head.state = RunState::Deleted,
            Self::Update { expires_at: Some(expires_at), .. } => head.expires_at = expires_at.clone().into(),
            Self::ResumeImport { .. }
            | Self::IssueToken(_)
            | Self::RevokeToken(_)
            | Self::RevokeAllTokens
            | Self::Fork
            | Self::Merge { .. }
            | Self::Update { expires_at: None, .. } => {}
        }
    }

    /// Returns the statements of the change. The run's head, with the size of its tree, is written separately.
    pub(crate) fn statements(&self, run: &RunId) -> Result<Vec<Statement>> {
        let set_state = |state: RunState, at: &String| {
            Statement::new(SET_STATE, [run.as_str().into(), state.as_str().into(), at.as_str().into()])
        };
        let statement = match self {
            Self::Open { base_commit, import } => {
                let params = [run.as_str().into(), base_commit.as_str().into(), rows::to_json(import)?.into()];
                Statement::new(OPEN_RUN, params)
            }
            Self::FailImport { at, import } => {
                let params = [run.as_str().into(), at.as_str().into(), rows::to_json(import)?.into()];
                Statement::new(FAIL_IMPORT, params)
            }
            Self::ResumeImport { import } => {
                Statement::new(RESUME_IMPORT, [run.as_str().into(), rows::to_json(import)?.into()])
            }
            Self::Close { at } | Self::Expire { expires_at: at } => set_state(RunState::Closed, at),
            Self::Delete { at } => set_state(RunState::Deleted, at),
            Self::Archive { at, uri, head_seq, head_hash: _ } => {
                let params = [run.as_str().into(), at.as_str().into(), uri.as_str().into(), (*head_seq).into()];
                Statement::new(ARCHIVE_RUN, params)
            }
            Self::IssueToken(token) => insert_token(token)?,
            Self::RevokeToken(token) => {
                Statement::new(REVOKE_TOKEN, [run.as_str().into(), token.as_str().into(), true.into()])
            }
            Self::RevokeAllTokens => Statement::new(REVOKE_ALL_TOKENS, [run.as_str().into(), true.into()]),
            Self::Fork => return Ok(Vec::new()),
            Self::Merge { seq } => Statement::new(SET_MERGED, [run.as_str().into(), (*seq).into()]),
            Self::Update { labels, expires_at } => return update(run, labels.as_ref(), expires_at.as_ref()),
        };
        Ok(vec![statement])
    }
}

fn update(
    run: &RunId,
    labels: Option<&BTreeMap<String, String>>,
    expires_at: Option<&Expiry>,
) -> Result<Vec<Statement>> {
    let set_labels = |labels: &BTreeMap<String, String>| {
        let [repository, agent] = [repository_of(labels), agent_of(labels)].map(|name| rows::sortable(name).into());
        Ok(Statement::new(SET_LABELS, [run.as_str().into(), rows::to_json(labels)?.into(), repository, agent]))
    };
    let labels = labels.map(set_labels).transpose()?;
    let expires_at = expires_at
        .map(|at| Statement::new(SET_EXPIRY, [run.as_str().into(), Option::<String>::from(at.clone()).into()]));
    Ok(labels.into_iter().chain(expires_at).collect())
}
