//! The statements that store new runs, tokens and operators.

use model::{OperatorToken, Token};

use super::sql;
use crate::backend::{Param, Statement, to_int};
use crate::{Epoch, Node, Result, StoredRun, rows};

/// Stores a run.
pub(crate) fn insert_run(stored: &StoredRun) -> Result<Statement> {
    let run = &stored.run;
    Ok(Statement::new(
        sql::INSERT_RUN,
        [
            run.run_id.as_str().into(),
            run.state.as_str().into(),
            run.created_at.as_str().into(),
            run.closed_at.as_deref().into(),
            run.expires_at.as_deref().into(),
            run.base_commit.as_deref().into(),
            stored.needs_repair.into(),
            rows::run_body(run)?.into(),
            rows::to_json(&run.import)?.into(),
            rows::to_json(&stored.mount_paths)?.into(),
            rows::to_json(&run.labels)?.into(),
        ],
    ))
}

/// Stores the head of a run that belongs to `node`.
pub(crate) fn insert_head(stored: &StoredRun, node: Option<&Node>) -> Statement {
    let (run, usage) = (&stored.run, &stored.usage);
    Statement::new(
        sql::INSERT_HEAD,
        [
            run.run_id.as_str().into(),
            run.head_seq.into(),
            (&run.head_hash).into(),
            run.counts.mutations.into(),
            run.counts.denied.into(),
            run.counts.pending_approvals.into(),
            usage.files_touched.into(),
            usage.insertions.into(),
            usage.deletions.into(),
            usage.files_deleted.into(),
            usage.bytes.into(),
            run.disk.bytes.into(),
            run.disk.files.into(),
            node.map(|node| node.node_id.as_str()).into(),
            // Stored as null. A null parameter would have the type of a text.
            node.map_or(0, |node| node.incarnation).into(),
            Param::Int(node.map_or(0, |_| to_int(Epoch::FIRST.0))),
            run.policy.quota.max_history_bytes.into(),
            run.policy.quota.max_records.into(),
        ],
    )
}

/// Stores an operator.
pub(crate) fn insert_operator(token: &OperatorToken) -> Result<Statement> {
    Ok(Statement::new(sql::INSERT_OPERATOR, operator_params(token)?))
}

/// Returns the parameters of an operator's row.
pub(crate) fn operator_params(token: &OperatorToken) -> Result<[Param<'static>; 6]> {
    let operator = &token.operator;
    Ok([
        operator.name.as_str().into(),
        (&token.secret_sha256).into(),
        rows::to_json(&operator.scopes)?.into(),
        operator.created_at.as_deref().unwrap_or_default().into(),
        operator.created_by.as_deref().unwrap_or_default().into(),
        operator.expires_at.as_deref().into(),
    ])
}

/// Stores a token, if its run exists.
pub(crate) fn insert_token(token: &Token) -> Result<Statement> {
    Ok(Statement::new(
        sql::INSERT_TOKEN,
        [
            token.run_id.as_str().into(),
            (&token.secret_sha256).into(),
            token.token_id.as_str().into(),
            rows::to_json(&token.permissions)?.into(),
            token.expires_at.as_deref().into(),
            token.revoked.into(),
        ],
    ))
}
