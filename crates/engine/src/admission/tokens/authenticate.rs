//! Identifies callers by their tokens; issues and revokes run tokens.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ledger::RequiredToken;
use model::{Code, Permission, Refusal, RunId, RunState, Sha256, Token, TokenId};

use crate::CallError;
use crate::admission::tokens::form::TokenForm;
use crate::admission::tokens::{
    Identity, IssueTokenRequest, IssuedToken, Scope, TOKEN_TICK, has_expired, hash_prefix, same,
};
use crate::call_error::refusals::run_not_found;
use crate::clock::latest;
use crate::engine::{Caller, Engine};

impl Caller {
    /// The operator, with every permission in every run.
    pub fn operator() -> Self {
        let actor = Scope::Orchestrate.actor().to_owned();
        Self { actor, permissions: BTreeSet::from(Permission::ALL), token: None }
    }

    /// The agent that holds `token`.
    pub fn of(token: &Token) -> Self {
        Self {
            actor: format!("run-token:{}", token.token_id),
            permissions: token.permissions.iter().copied().collect(),
            token: Some(RequiredToken {
                token_id: token.token_id.clone(),
                expires_at: token.expires_at.clone(),
                now: latest,
            }),
        }
    }
}

impl Engine {
    /// Returns the owner of a token; `None` if it is unknown, expired or revoked.
    ///
    /// Known tokens are cached. The ledger is queried for an unknown token only if its checksum is valid and `peer` is under
    /// its limit of failures, one query at a time.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`; fails if the ledger fails.
    pub async fn identify(&self, token: &str, hash: &Sha256, peer: IpAddr) -> Result<Option<Identity>, CallError> {
        let tokens = &self.tokens;
        if let Some(scope) = tokens.operator(hash) {
            return Ok(Some(Identity::Operator(scope)));
        }
        let cached = tokens.cache.lock().get(hash).cloned();
        let is_known = || tokens.known.lock().contains(&hash_prefix(hash));
        let found = match TokenForm::of(token) {
            _ if cached.is_some() => cached,
            TokenForm::Checked | TokenForm::Unchecked if is_known() => self.look_up(hash).await?,
            TokenForm::Foreign | TokenForm::Unchecked => None,
            TokenForm::Checked => {
                // Counted before the query. A token that turns out to be valid has counted as one failure.
                tokens.fail(peer)?;
                let _permit = tokens.unknown.acquire().await.map_err(|error| CallError::Internal(Box::new(error)))?;
                let found = self.look_up(hash).await?;
                return Ok(found.filter(|token| !has_expired(token)).map(Identity::Run));
            }
        };
        let found = found.filter(|token| !has_expired(token));
        if found.is_none() {
            tokens.fail(peer)?;
        }
        Ok(found.map(Identity::Run))
    }

    /// Reads a token from the ledger and caches it. It may have expired.
    async fn look_up(&self, hash: &Sha256) -> Result<Option<Arc<Token>>, CallError> {
        let tokens = &self.tokens;
        let revocations = *tokens.revocations.borrow();
        let found = self.ledger.token(hash).await?;
        let found = found.filter(|token| same(&token.secret_sha256, hash) && !token.revoked).map(Arc::new);
        if found.is_none() {
            // It was revoked. Its next use is that of an unknown token.
            tokens.known.lock().remove(&hash_prefix(hash));
        }
        if let Some(token) = &found {
            let mut cache = tokens.cache.lock();
            if *tokens.revocations.borrow() == revocations {
                cache.put(*hash, Arc::clone(token));
            }
            tokens.note(token);
        }
        Ok(found)
    }

    /// Issues another token for a run.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `RUN_CLOSED` for a deleted run, `INVALID_REQUEST`.
    pub async fn issue_token(&self, run: &RunId, request: IssueTokenRequest) -> Result<IssuedToken, CallError> {
        let stored = self.ledger.run(run).await?.ok_or_else(run_not_found)?;
        let (token, issued) = request.issue(run)?;
        if stored.run.state == RunState::Deleted {
            return Err(Refusal::new(Code::RunClosed, "the run is deleted", "Its audit is still available.").into());
        }
        self.tokens.note(&token);
        self.ledger.create_token(&token).await?;
        tracing::info!(run.id = %run, token.id = %token.token_id, "token issued");
        Ok(issued)
    }

    /// Waits until the token with this hash is revoked or has expired. An operator's token never ends.
    pub async fn token_ended(&self, hash: &Sha256) {
        let tokens = &self.tokens;
        if tokens.operator(hash).is_some() {
            return std::future::pending().await;
        }
        let mut revocations = tokens.revocations.subscribe();
        loop {
            let cached = tokens.cache.lock().get(hash).cloned();
            let found = if cached.is_some() { Ok(cached) } else { self.look_up(hash).await };
            match found {
                Ok(found) if found.as_ref().is_none_or(|token| has_expired(token)) => return,
                Ok(_) => {}
                // The token counts as valid while the ledger is unavailable. No call is recorded meanwhile.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a token could not be looked up");
                }
            }
            // Expiry is polled, since the system clock may be set.
            drop(tokio::time::timeout(TOKEN_TICK, revocations.changed()).await);
        }
    }

    /// Revokes a token. After the answer, requests with it are refused, and so are calls that are not recorded yet.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub async fn revoke_token(&self, run: &RunId, token: &TokenId) -> Result<(), CallError> {
        if !self.ledger.revoke_token(run, token).await? {
            self.ledger.run(run).await?.ok_or_else(run_not_found)?;
            let message = format!("the run has no token `{token}`");
            return Err(
                Refusal::new(Code::NotFound, message, "Use the tokenId that was returned with the token.").into()
            );
        }
        let tokens = &self.tokens;
        let mut cache = tokens.cache.lock();
        let known = cache.iter().find(|(_, known)| known.token_id == *token && known.run_id == *run);
        if let Some(hash) = known.map(|(hash, _)| *hash) {
            cache.pop(&hash);
        }
        // Under the lock, so that a lookup that began before does not cache the token.
        tokens.revocations.send_modify(|count| *count += 1);
        drop(cache);
        tracing::info!(run.id = %run, token.id = %token, "token revoked");
        Ok(())
    }
}
