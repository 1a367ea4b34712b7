//! Changes of operators, which become durable with their record in the service's own chain.

use model::RunId;

use crate::insert::{insert_keyed_answer, insert_operator, operator_params};
use crate::statement::{Check, Statement};
use crate::{OperatorChange, Result};

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
