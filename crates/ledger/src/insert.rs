//! The statements that store new runs, tokens, operators and keyed answers, and that change operators. Changes of operators become
//! durable with their record in the service's own chain.

use model::{OperatorToken, RunId, Token};

use crate::statement::{Check, Param, Statement, to_int};
use crate::{Epoch, KeyedAnswer, Node, OperatorChange, Result, StoredRun, rows};

const INSERT_RUN: &str = "INSERT INTO run (run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, \
    body, import_report, mount_paths, labels, source_url, repository, agent, parent_id, forked_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, nullif($16, -1))";
const INSERT_HEAD: &str = "INSERT INTO run_head (run_no, head_seq, head_hash, mutations, denied, pending_approvals, \
    files_touched, insertions, deletions, files_deleted, bytes, disk_bytes, disk_files, owner_node, owner_incarnation, epoch, \
    max_history_bytes, max_records, own_bytes, own_files) \
    SELECT run_no, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, 0), $16, $17, $18, $19, $20 FROM run WHERE run_id = $1";
const INSERT_TOKEN: &str = "INSERT INTO token (run_no, secret_sha256, token_id, permissions, expires_at, revoked) \
    SELECT run_no, $2, $3, $4, $5, $6 FROM run WHERE run_id = $1";
const INSERT_OPERATOR: &str = "INSERT INTO operator_token (name, secret_sha256, scopes, created_at, created_by, \
    expires_at) VALUES ($1, $2, $3, $4, $5, $6)";
const INSERT_KEYED_ANSWER: &str = "INSERT INTO keyed_answer (operator, key_sha256, request_sha256, answer, expires_at) \
    VALUES ($1, $2, $3, $4, $5)";
const DELETE_EXPIRED_ANSWERS: &str = "DELETE FROM keyed_answer WHERE expires_at <= $1";

/// Stores a run.
pub(crate) fn insert_run(stored: &StoredRun) -> Result<Statement> {
    let run = &stored.run;
    Ok(Statement::new(
        INSERT_RUN,
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
            rows::sortable(run.first_source().repository_url()).into(),
            rows::sortable(run.repository.as_deref()).into(),
            rows::sortable(run.agent.as_deref()).into(),
            run.parent.as_ref().map(|parent| parent.run_id.as_str()).into(),
            // Stored as null for a run that is no fork. A null parameter would have the type of a text.
            Param::Int(run.parent.as_ref().map_or(-1, |parent| to_int(parent.seq))),
        ],
    ))
}

/// Stores the head of a run that belongs to `node`.
pub(crate) fn insert_head(stored: &StoredRun, node: Option<&Node>) -> Statement {
    let (run, usage) = (&stored.run, &stored.usage);
    Statement::new(
        INSERT_HEAD,
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
            run.disk.own_bytes.into(),
            run.disk.own_files.into(),
        ],
    )
}

/// Stores an operator.
pub(crate) fn insert_operator(token: &OperatorToken) -> Result<Statement> {
    Ok(Statement::new(INSERT_OPERATOR, operator_params(token)?))
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
        INSERT_TOKEN,
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

/// Stores the answer under a key, in the row of one that has expired at `now` if there is one.
pub(crate) fn insert_keyed_answer(answer: &KeyedAnswer, now: &str) -> [Statement; 2] {
    let KeyedAnswer { operator, key_sha256, request_sha256, answer, expires_at } = answer;
    let params = [
        operator.as_str().into(),
        key_sha256.into(),
        request_sha256.into(),
        answer.as_str().into(),
        expires_at.as_str().into(),
    ];
    [delete_expired_answers(now), Statement::new(INSERT_KEYED_ANSWER, params)]
}

/// Deletes the answers that have expired at `now`.
pub(crate) fn delete_expired_answers(now: &str) -> Statement {
    Statement::new(DELETE_EXPIRED_ANSWERS, [now.into()])
}

/// Ends the token in force at `$2`, until which it is valid.
const END_OPERATOR_TOKEN: &str = "UPDATE operator_token \
    SET revoked_at = $2, expires_at = $2 WHERE lower(name) = lower($1) AND revoked_at IS NULL";
/// Revokes the token in force, and replaced ones that have not expired.
const REVOKE_OPERATOR: &str = "UPDATE operator_token SET revoked_at = $2 WHERE lower(name) = lower($1) \
    AND (revoked_at IS NULL OR (revoked_at = expires_at AND revoked_at > $2))";
/// Revokes the operator: its votes for pending approvals no longer count.
const WITHDRAW_OPERATOR: &str = "UPDATE operator_token SET revoked_at = $2, withdrawn_at = $2 \
    WHERE lower(name) = lower($1) AND (revoked_at IS NULL OR (revoked_at = expires_at AND revoked_at > $2))";
/// Inserts the successor of a token that ends at `$7`.
const INSERT_OPERATOR_TOKEN: &str = "INSERT INTO operator_token (name, secret_sha256, scopes, created_at, \
    created_by, expires_at) SELECT $1, $2, $3, $4, $5, $6 \
    WHERE EXISTS (SELECT 1 FROM operator_token WHERE lower(name) = lower($1) AND revoked_at = $7)";
/// The row of the service's own chain, created at `$2`. A deleted run is in no list of runs to open, close, measure or purge.
const INSERT_SERVICE_CHAIN: &str = "INSERT INTO run (run_id, state, created_at, closed_at, needs_repair, body, \
    import_report, mount_paths) VALUES ($1, 'deleted', $2, $2, $3, '{}', '{}', '{}') ON CONFLICT (run_id) DO NOTHING";
const INSERT_SERVICE_HEAD: &str = "INSERT INTO run_head (run_no, head_seq, head_hash, mutations, denied, \
    pending_approvals, files_touched, insertions, deletions, files_deleted, bytes) \
    SELECT run_no, 0, $2, 0, 0, 0, 0, 0, 0, 0, 0 FROM run WHERE run_id = $1 ON CONFLICT (run_no) DO NOTHING";

impl OperatorChange {
    /// Returns the statements of the change. They run while the head of the service's chain is locked, one change at a time.
    pub(crate) fn statements(&self) -> Result<Vec<Statement>> {
        let (mut statements, answer) = match self {
            Self::Create { token, answer } => (vec![insert_operator(token)?], answer.as_ref()),
            Self::ReplaceToken { token, ends_at, is_valid_until, answer } => {
                let end = if *is_valid_until { END_OPERATOR_TOKEN } else { REVOKE_OPERATOR };
                let end = Statement::new(end, [token.operator.name.as_str().into(), ends_at.as_str().into()]);
                let [name, hash, scopes, created_at, created_by, expires] = operator_params(token)?;
                let params = [name, hash, scopes, created_at, created_by, expires, ends_at.as_str().into()];
                let insert = Statement::new(INSERT_OPERATOR_TOKEN, params);
                (vec![end, Statement { check: Some(Check::IsOperator), ..insert }], answer.as_ref())
            }
            Self::Revoke { name, at } => {
                let revoke = Statement::new(WITHDRAW_OPERATOR, [name.as_str().into(), at.as_str().into()]);
                (vec![Statement { check: Some(Check::IsOperator), ..revoke }], None)
            }
        };
        statements.extend(answer.into_iter().flat_map(|(answer, now)| insert_keyed_answer(answer, now)));
        Ok(statements)
    }
}

/// Returns the statements that create the service's own chain, unless it exists. It is a deleted run, which no job looks for.
pub(crate) fn create_service_chain(at: &str) -> [Statement; 2] {
    let service = RunId::service();
    let params = [service.as_str().into(), at.into(), false.into()];
    let head = [service.as_str().into(), (&model::Sha256::ZERO).into()];
    [Statement::new(INSERT_SERVICE_CHAIN, params), Statement::new(INSERT_SERVICE_HEAD, head)]
}
