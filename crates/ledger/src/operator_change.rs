//! Changes of operators, which become durable with their record in the service's own chain.

use model::{OperatorName, OperatorToken, RunId};

use crate::backend::{Check, Statement};
use crate::store::insert::{insert_operator, operator_params};
use crate::store::sql;
use crate::{KeyedAnswer, Result};

/// A change of an operator.
#[derive(Clone, Debug)]
pub enum OperatorChange {
    /// Stores an operator.
    Create {
        /// The operator with its token.
        token: OperatorToken,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Replaces the token of a valid operator.
    ReplaceToken {
        /// The operator with its new token.
        token: OperatorToken,
        /// When the present token ends, RFC 3339 UTC.
        ends_at: String,
        /// Whether the present token is valid until then, and earlier ones until they end. Otherwise `ends_at` is the current time, at
        /// which every token of the operator is revoked.
        is_valid_until: bool,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Revokes a valid operator with every token of it. Its earlier votes for pending approvals no longer count.
    Revoke {
        /// The operator's name, in any letter case.
        name: OperatorName,
        /// When, RFC 3339 UTC.
        at: String,
    },
}

impl OperatorChange {
    /// Returns the statements of the change. They run while the head of the service's chain is locked, one change at a time.
    pub(crate) fn statements(&self) -> Result<Vec<Statement>> {
        let (mut statements, answer) = match self {
            Self::Create { token, answer } => (vec![insert_operator(token)?], answer.as_ref()),
            Self::ReplaceToken { token, ends_at, is_valid_until, answer } => {
                let end = if *is_valid_until { sql::END_OPERATOR_TOKEN } else { sql::REVOKE_OPERATOR };
                let end = Statement::new(end, [token.operator.name.as_str().into(), ends_at.as_str().into()]);
                let [name, hash, scopes, created_at, created_by, expires] = operator_params(token)?;
                let params = [name, hash, scopes, created_at, created_by, expires, ends_at.as_str().into()];
                let insert = Statement::new(sql::INSERT_OPERATOR_TOKEN, params);
                (vec![end, Statement { check: Some(Check::IsOperator), ..insert }], answer.as_ref())
            }
            Self::Revoke { name, at } => {
                let revoke = Statement::new(sql::WITHDRAW_OPERATOR, [name.as_str().into(), at.as_str().into()]);
                (vec![Statement { check: Some(Check::IsOperator), ..revoke }], None)
            }
        };
        statements.extend(answer.into_iter().flat_map(|(answer, now)| answer.statements(now)));
        Ok(statements)
    }
}

/// Returns the statements that create the service's own chain, unless it exists. It is a deleted run, which no job looks for.
pub(crate) fn create_service_chain(at: &str) -> [Statement; 2] {
    let service = RunId::service();
    let params = [service.as_str().into(), at.into(), false.into()];
    let head = [service.as_str().into(), (&model::Sha256::ZERO).into()];
    [Statement::new(sql::INSERT_SERVICE_CHAIN, params), Statement::new(sql::INSERT_SERVICE_HEAD, head)]
}
