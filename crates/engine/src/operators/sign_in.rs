//! Operators who have signed in: each has made itself, with a token for the session.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use model::{OperatorName, Scope, Sha256};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::clock::now_plus;
use crate::operators::Operators;
use crate::operators::manage::{CreateOperatorRequest, CreatedOperator};
use crate::operators::rotate::RotateTokenRequest;

/// How long a session lasts, in seconds: a working day.
pub const SESSION_SECONDS: u64 = 8 * 3600;

impl Operators {
    /// Returns a token for a session of the person with this verified address, who has `scopes`. Earlier sessions of the person last
    /// on, unless the scopes have changed. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the address is no name of an operator; `ALREADY_EXISTS` if the name is that of an operator that somebody
    /// has made; `QUOTA_EXCEEDED`.
    pub fn sign_in<'a>(
        self: &'a Arc<Self>,
        address: &'a str,
        scopes: BTreeSet<Scope>,
    ) -> BoxFuture<'a, Result<CreatedOperator, CallError>> {
        Box::pin(async move {
            let name = crate::admission::operators::parse_name(&address.to_ascii_lowercase())?;
            let expires_at = now_plus(i64::try_from(SESSION_SECONDS).unwrap_or(i64::MAX));
            let person =
                Arc::new(OperatorIdentity::of_issuer(name.clone(), scopes.clone(), Sha256::ZERO, expires_at.clone()));
            let present = self.engine.ledger.operator(&name).await?.map(|present| present.operator);
            let present = present.filter(|present| !present.is_revoked());
            if let Some(present) = present
                && present.created_by.as_deref().is_some_and(|by| is_self_made(&name, by))
            {
                if present.scopes == scopes {
                    let request =
                        RotateTokenRequest { overlap_seconds: Some(SESSION_SECONDS), expires_at: Some(expires_at) };
                    return self.rotate_operator_token(name.as_str(), request, person, None).await;
                }
                self.revoke_operator(name.as_str(), Arc::clone(&person)).await?;
            }
            let request = CreateOperatorRequest {
                name: name.to_string(),
                scopes: scopes.into_iter().collect(),
                expires_at: Some(expires_at),
            };
            self.create_operator(request, person, None).await
        })
    }

    /// Ends every session of a person who has signed in. An operator with a token of another kind is left as it is.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub fn sign_out<'a>(
        self: &'a Arc<Self>,
        operator: &'a Arc<OperatorIdentity>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let present = self.engine.ledger.operator(&operator.name).await?.map(|present| present.operator);
            let by = present.and_then(|present| present.created_by);
            if by.is_some_and(|by| is_self_made(&operator.name, &by)) {
                // A new token that nobody gets. Revoking would also withdraw the person's votes.
                let request = RotateTokenRequest { overlap_seconds: Some(0), expires_at: Some(now_plus(60)) };
                self.rotate_operator_token(operator.name.as_str(), request, Arc::clone(operator), None).await?;
            }
            Ok(())
        })
    }
}

fn is_self_made(name: &OperatorName, created_by: &str) -> bool {
    created_by.eq_ignore_ascii_case(name.as_str())
}
