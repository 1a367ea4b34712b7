//! Operators: people and programs that create runs, decide about calls, or read the audit.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::named_enum::named_enum;
use crate::{OperatorName, Sha256};

named_enum! {
    /// What an operator may do. An operator can have several scopes.
    pub enum Scope {
        /// Everything.
        Orchestrate = "orchestrate",
        /// Read runs, approvals and diffs; approve and deny calls.
        Approve = "approve",
        /// Read runs, approvals, the audit, artifacts and files. Changes nothing.
        Audit = "audit",
        /// Read the metrics, if they require a token.
        Metrics = "metrics",
    }
}

impl Scope {
    /// Parses a scope as callers write it.
    pub fn parse(raw: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == raw)
    }
}

/// An operator, without the secret of its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// The name, which the audit and approvals show.
    #[schema(example = "ada")]
    pub name: OperatorName,
    /// What the operator may do.
    pub scopes: BTreeSet<Scope>,
    /// When it was created, RFC 3339 UTC; missing for an operator of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Who created it: an operator, or `command line`; missing for an operator of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When its token expires, RFC 3339 UTC; missing if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked, RFC 3339 UTC. If another token replaces its token, the time from which this one is refused, which is
    /// then its `expiresAt` too and may be in the future.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

impl Operator {
    /// Whether its token is refused at any time. A replaced token is valid until it expires.
    pub fn is_revoked(&self) -> bool {
        self.revoked_at.is_some() && self.revoked_at != self.expires_at
    }
}

/// An operator with the hash of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    /// The operator.
    pub operator: Operator,
    /// SHA-256 of the token.
    pub secret_sha256: Sha256,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_written_as_it_is_parsed() {
        for scope in Scope::ALL {
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
        }
        assert_eq!(Scope::parse("Audit"), None);
    }
}
