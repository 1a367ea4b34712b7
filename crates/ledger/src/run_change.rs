//! Changes of a run beside its files, which become durable with the record of the operation.

use std::collections::BTreeMap;

use model::{Disk, ImportReport, RunId, RunState, Sha256, Token, TokenId};

use crate::backend::Statement;
use crate::chain::RunHead;
use crate::store::insert::insert_token;
use crate::store::sql;
use crate::{Appended, FailedPrecondition, Result, rows};

/// A change of the entry's run. A change that would have no effect is not recorded: the append returns
/// [`Appended::Unchanged`].
#[derive(Clone, Debug)]
pub enum RunChange {
    /// Opens a run that is being prepared: sets its base commit, its import report and the size of its tree.
    Open {
        /// The base commit.
        base_commit: String,
        /// The import report.
        import: ImportReport,
    },
    /// Closes a run that is being prepared: its import has failed, as the report says.
    FailImport {
        /// When, RFC 3339 UTC.
        at: String,
        /// The import report.
        import: ImportReport,
    },
    /// Stores the import report of a run that is being prepared and whose import begins again.
    ResumeImport {
        /// The import report.
        import: ImportReport,
    },
    /// Closes the run, unless it is closed or deleted.
    Close {
        /// When, RFC 3339 UTC. Stored unless the run has such a time.
        at: String,
    },
    /// Closes a run that expires at this time, RFC 3339 UTC, unless it is closed or deleted, or another time is stored meanwhile.
    Expire {
        /// The time that has passed.
        expires_at: String,
    },
    /// Deletes the run, unless it is deleted. It stays deleted.
    Delete {
        /// When, as for [`Close`](Self::Close).
        at: String,
    },
    /// Marks a closed run as archived, if its head is still the archived one. It is deleted then, and stays archived.
    Archive {
        /// When, RFC 3339 UTC.
        at: String,
        /// The archive.
        uri: String,
        /// `seq` of the last archived record.
        head_seq: u64,
        /// The hash of that record.
        head_hash: Sha256,
    },
    /// Stores another token of the run, which must not be deleted.
    IssueToken(Token),
    /// Revokes a token of the run, unless it is revoked.
    RevokeToken(TokenId),
    /// Replaces the labels or the expiry time of a run that is not deleted. A closed run has no expiry time to replace.
    Update {
        /// The new labels.
        labels: Option<BTreeMap<String, String>>,
        /// The new expiry time.
        expires_at: Option<Expiry>,
    },
}

/// When a run expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// RFC 3339 UTC.
    At(String),
}

impl From<Expiry> for Option<String> {
    fn from(expiry: Expiry) -> Self {
        match expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(time),
        }
    }
}

/// Content that a caller uploaded, stored by its digest.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The digest, which is that of `bytes`.
    pub sha256: Sha256,
    /// The content.
    pub bytes: Vec<u8>,
}

impl RunChange {
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
            Statement::new(sql::SET_STATE, [run.as_str().into(), state.as_str().into(), at.as_str().into()])
        };
        let statement = match self {
            Self::Open { base_commit, import } => {
                let params = [run.as_str().into(), base_commit.as_str().into(), rows::to_json(import)?.into()];
                Statement::new(sql::OPEN_RUN, params)
            }
            Self::FailImport { at, import } => {
                let params = [run.as_str().into(), at.as_str().into(), rows::to_json(import)?.into()];
                Statement::new(sql::FAIL_IMPORT, params)
            }
            Self::ResumeImport { import } => {
                Statement::new(sql::RESUME_IMPORT, [run.as_str().into(), rows::to_json(import)?.into()])
            }
            Self::Close { at } | Self::Expire { expires_at: at } => set_state(RunState::Closed, at),
            Self::Delete { at } => set_state(RunState::Deleted, at),
            Self::Archive { at, uri, head_seq, head_hash: _ } => {
                let params = [run.as_str().into(), at.as_str().into(), uri.as_str().into(), (*head_seq).into()];
                Statement::new(sql::ARCHIVE_RUN, params)
            }
            Self::IssueToken(token) => insert_token(token)?,
            Self::RevokeToken(token) => {
                Statement::new(sql::REVOKE_TOKEN, [run.as_str().into(), token.as_str().into(), true.into()])
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
    let labels = labels.map(|labels| Statement::new(sql::SET_LABELS, [run.as_str().into(), labels.into()]));
    let expires_at = expires_at
        .map(|at| Statement::new(sql::SET_EXPIRY, [run.as_str().into(), Option::<String>::from(at.clone()).into()]));
    Ok(labels.into_iter().chain(expires_at).collect())
}
