//! Changes of a run beside its files, which become durable with the record of the operation.

use std::collections::BTreeMap;

use model::{Disk, RunId, RunState};

use crate::insert::insert_token;
use crate::run_head::RunHead;
use crate::statement::Statement;
use crate::{Appended, Expiry, FailedPrecondition, Result, RunTransition, rows};

const OPEN_RUN: &str = "UPDATE run SET base_commit = $2, import_report = $3, state = 'open' \
    WHERE run_id = $1 AND state = 'preparing'";
const FAIL_IMPORT: &str = "UPDATE run SET closed_at = $2, import_report = $3, state = 'closed' \
    WHERE run_id = $1 AND state = 'preparing'";
const RESUME_IMPORT: &str = "UPDATE run SET import_report = $2 WHERE run_id = $1 AND state = 'preparing'";
const SET_STATE: &str = "UPDATE run SET state = CASE state WHEN 'deleted' THEN state ELSE $2 END, \
    closed_at = coalesce(closed_at, $3) WHERE run_id = $1";
const ARCHIVE_RUN: &str = "UPDATE run SET state = 'deleted', archived_at = $2, archive_uri = $3, archived_seq = $4 \
    WHERE run_id = $1 AND state = 'closed'";
const SET_LABELS: &str = "UPDATE run SET labels = $2 WHERE run_id = $1";
const SET_EXPIRY: &str = "UPDATE run SET expires_at = $2 WHERE run_id = $1";
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
            (Self::IssueToken(_) | Self::Update { .. }, RunState::Deleted)
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
    let labels = labels.map(rows::to_json).transpose()?;
    let labels = labels.map(|labels| Statement::new(SET_LABELS, [run.as_str().into(), labels.into()]));
    let expires_at = expires_at
        .map(|at| Statement::new(SET_EXPIRY, [run.as_str().into(), Option::<String>::from(at.clone()).into()]));
    Ok(labels.into_iter().chain(expires_at).collect())
}
