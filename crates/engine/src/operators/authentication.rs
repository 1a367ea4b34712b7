//! Identifies callers by their tokens; issues and revokes run tokens.

pub(crate) mod issuer;

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ledger::{LedgerError, RequiredToken, TokenHolder};
use model::{Permission, RUN_TOKEN_ACTOR, RunId, Scope, Sha256, Token, TokenId};

use crate::CallError;
use crate::admission::idempotency::{KeyedRequest, key_taken};
use crate::admission::operators::OperatorIdentity;
use crate::admission::tokens::form::TokenForm;
use crate::admission::tokens::{Identity, IssueTokenRequest, IssuedToken, TOKEN_TICK, has_expired};
use crate::call_error::refusals::run_not_found;
use crate::caller::Caller;
use crate::clock::now;
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::operators::Operators;
use crate::run::lifecycle;

/// What a caller with the scope `audit` may do in a run.
const AUDIT_PERMISSIONS: [Permission; 5] =
    [Permission::FileList, Permission::FileRead, Permission::FileSearch, Permission::FileDiff, Permission::AuditRead];
/// What a caller with the scope `approve` may do in a run. Its routes show diffs only.
const APPROVE_PERMISSIONS: [Permission; 2] = [Permission::FileRead, Permission::FileDiff];

impl Caller {
    /// An operator, in any run.
    pub fn of_operator(operator: &OperatorIdentity) -> Self {
        let mut permissions = BTreeSet::new();
        for scope in &operator.scopes {
            match scope {
                Scope::Orchestrate => permissions.extend(Permission::ALL),
                Scope::Approve => permissions.extend(APPROVE_PERMISSIONS),
                Scope::Audit => permissions.extend(AUDIT_PERMISSIONS),
                Scope::Metrics => {}
            }
        }
        Self { actor: operator.actor(), permissions, token: operator.required_token(), request: None }
    }

    /// Returns the agent that holds `token`.
    pub fn of(token: &Token) -> Self {
        Self {
            actor: format!("{RUN_TOKEN_ACTOR}{}", token.token_id),
            permissions: token.permissions.iter().copied().collect(),
            token: Some(RequiredToken {
                holder: TokenHolder::Run(token.token_id.clone()),
                expires_at: token.expires_at.clone(),
                now,
            }),
            request: None,
        }
    }
}

impl Operators {
    /// Returns the owner of a token; `None` if it is unknown, expired or revoked.
    ///
    /// The ledger is queried for a token that is not cached only if its checksum is valid, one query at a time for all that wait. Only
    /// a token that is not valid counts towards the limit of failures of `peer`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`; if the ledger fails.
    #[boxed]
    pub async fn identify(&self, token: &str, hash: &Sha256, peer: IpAddr) -> Result<Option<Identity>, CallError> {
        let tokens = &self.engine.tokens;
        if let Some(operator) = tokens.operators.find(hash) {
            return Ok(Some(Identity::Operator(operator)));
        }
        let found = match (tokens.cached(hash), TokenForm::of(token)) {
            (Some(cached), _) => Some(cached),
            (None, TokenForm::Run) => self.run_lookups.look_up(*hash).await?,
            // Another node may have issued it a moment ago. A single service knows all operators.
            (None, TokenForm::Operator) if self.engine.ledger.node().is_some() => {
                self.operator_lookups.look_up(*hash).await?;
                if let Some(operator) = tokens.operators.find(hash) {
                    return Ok(Some(Identity::Operator(operator)));
                }
                None
            }
            (None, TokenForm::Operator | TokenForm::Foreign) => None,
        };
        let found = found.filter(|token| !has_expired(token));
        if found.is_none() {
            self.fail(peer)?;
        }
        Ok(found.map(Identity::Run))
    }

    /// Issues another token for a run. A repetition under the same key issues one more.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `IDEMPOTENCY_KEY_REUSED`, `RUN_CLOSED` for a deleted run, `INVALID_REQUEST`.
    pub fn issue_token<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: &'a Caller,
        request: IssueTokenRequest,
        keyed: Option<KeyedRequest>,
    ) -> BoxFuture<'a, Result<IssuedToken, CallError>> {
        Box::pin(async move {
            let (engine, run, caller) = (Arc::clone(&self.engine), run.clone(), caller.clone());
            let work = async move {
                let create = engine.create_token(&run, &caller, request.clone(), keyed.as_ref());
                let repeat = |_: IssuedToken| engine.create_token(&run, &caller, request, None);
                engine.once(keyed.as_ref(), create, repeat).await
            };
            self.engine.detached(work).await
        })
    }

    /// Waits until the token with this hash is revoked or has expired.
    #[boxed]
    pub async fn token_ended(&self, hash: &Sha256) {
        let tokens = &self.engine.tokens;
        let mut revocations = tokens.revocations();
        let is_in_memory = || self.identify_issued(hash).is_some() || tokens.operators.find(hash).is_some();
        let is_of_run = !is_in_memory();
        loop {
            let is_valid = if !is_of_run {
                is_in_memory()
            } else if let Some(cached) = tokens.cached(hash) {
                !has_expired(&cached)
            } else {
                match tokens.look_up(self.engine.ledger.as_ref(), &[*hash]).await {
                    Ok(found) => found.first().is_some_and(|token| !has_expired(token)),
                    // The token counts as valid while the ledger is unavailable. No call is recorded meanwhile.
                    Err(error) => {
                        tracing::debug!(error = &error as &dyn std::error::Error, "a token could not be looked up");
                        true
                    }
                }
            };
            if !is_valid {
                return;
            }
            // Expiry is polled, since the system clock may be set.
            drop(tokio::time::timeout(TOKEN_TICK, revocations.changed()).await);
        }
    }

    /// Reads the operators again, and forgets the tokens that are cached: other nodes may have revoked some. Streams check theirs.
    ///
    /// # Errors
    ///
    /// If the ledger fails; the cached tokens are forgotten nevertheless.
    #[boxed]
    pub async fn refresh_tokens(&self) -> ledger::Result<()> {
        self.engine.tokens.forget();
        self.engine.tokens.operators.refresh(self.engine.ledger.as_ref()).await?;
        self.engine.tokens.announce_revocation();
        Ok(())
    }

    /// Revokes a token. After the answer, requests with it are refused, and so are calls that are not recorded yet. Runs to
    /// completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub fn revoke_token<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: &'a Caller,
        token: &'a TokenId,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        let (engine, run, token) = (Arc::clone(&self.engine), run.clone(), token.clone());
        let entry = lifecycle::token_revoked(&run, caller, &token);
        let work = async move {
            engine.append_change(entry).await?;
            engine.tokens.revoked(&run, Some(&token));
            tracing::info!(run.id = %run, token.id = %token, "token revoked");
            Ok(())
        };
        Box::pin(async move { self.engine.detached(work).await })
    }
}

impl Engine {
    /// Issues a token, whatever was answered under its key.
    pub(crate) async fn create_token(
        &self,
        run: &RunId,
        caller: &Caller,
        request: IssueTokenRequest,
        keyed: Option<&KeyedRequest>,
    ) -> Result<IssuedToken, CallError> {
        self.ledger.run(run).await?.ok_or_else(run_not_found)?;
        let (token, issued) = request.issue(run)?;
        let mut entry = lifecycle::token_issued(&token, caller);
        entry.keyed_answer = keyed.map(|keyed| keyed.answer(&issued.without_secret()));
        self.record(vec![entry]).await.map_err(|error| match error {
            NotRecorded::Failed(LedgerError::AlreadyExists) if keyed.is_some() => key_taken().into(),
            error => CallError::from(error),
        })?;
        tracing::info!(run.id = %run, token.id = %token.token_id, "token issued");
        Ok(issued)
    }
}

#[cfg(test)]
mod tests {
    use model::OperatorName;

    use super::*;

    fn operator(scopes: &[Scope]) -> OperatorIdentity {
        let name = OperatorName::parse("ada").unwrap();
        OperatorIdentity::configured(name, scopes.iter().copied(), Sha256::of(b"x"))
    }

    #[test]
    fn scopes_add_up_and_only_one_changes_files() {
        let changes = [Permission::FileWriteCreate, Permission::FilePatchApply, Permission::FileDelete];
        let of = |scopes: &[Scope]| Caller::of_operator(&operator(scopes)).permissions;
        assert_eq!(of(&[Scope::Orchestrate]), BTreeSet::from(Permission::ALL));
        assert_eq!(of(&[Scope::Metrics]), BTreeSet::new());
        let both = of(&[Scope::Approve, Scope::Audit]);
        assert_eq!(both, of(&[Scope::Approve]).union(&of(&[Scope::Audit])).copied().collect());
        assert!(changes.iter().all(|change| !both.contains(change)));
    }
}
