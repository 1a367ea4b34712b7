//! Identifies callers by their tokens; issues and revokes run tokens.

pub(crate) mod issuer;

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ledger::{Entry, LedgerError, RequiredToken, TokenHolder};
use model::{Code, Permission, RUN_TOKEN_ACTOR, Refusal, RunId, Scope, Sha256, Token, TokenId};

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::operators::OperatorIdentity;
use crate::admission::tokens::form::TokenForm;
use crate::admission::tokens::lookups::LookupKind;
use crate::admission::tokens::{Identity, IssueTokenRequest, IssuedToken, TOKEN_TICK, has_expired};
use crate::call_error::refusals::run_not_found;
use crate::caller::Caller;
use crate::clock::latest;
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::operators::Operators;
use crate::run::lifecycle;

/// The pause after a query for operators, which reads all of them.
const OPERATOR_PAUSE: Duration = Duration::from_millis(50);
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
                now: latest,
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
    pub fn identify<'a>(
        self: &'a Arc<Self>,
        token: &'a str,
        hash: &'a Sha256,
        peer: IpAddr,
    ) -> BoxFuture<'a, Result<Option<Identity>, CallError>> {
        Box::pin(async move {
            let tokens = &self.engine.tokens;
            if let Some(operator) = tokens.operators.find(hash) {
                return Ok(Some(Identity::Operator(operator)));
            }
            let cached = tokens.cached(hash);
            let found = match TokenForm::of(token) {
                _ if cached.is_some() => cached,
                TokenForm::Foreign => None,
                TokenForm::Run => self.look_up(LookupKind::Runs, hash).await?,
                // A single service knows all operators.
                TokenForm::Operator if self.engine.ledger.node().is_none() => None,
                // Another node may have issued it a moment ago.
                TokenForm::Operator => {
                    self.look_up(LookupKind::Operators, hash).await?;
                    if let Some(operator) = tokens.operators.find(hash) {
                        return Ok(Some(Identity::Operator(operator)));
                    }
                    None
                }
            };
            let found = found.filter(|token| !has_expired(token));
            if found.is_none() {
                tokens.fail(peer)?;
            }
            Ok(found.map(Identity::Run))
        })
    }

    /// Looks up a token that is not cached, in one query with the others that wait. Returns a valid token of a run; a valid operator is
    /// known afterwards.
    async fn look_up(self: &Arc<Self>, kind: LookupKind, hash: &Sha256) -> Result<Option<Arc<Token>>, CallError> {
        let (found, is_first) = self.engine.tokens.lookups(kind).add(*hash);
        if is_first {
            let operators = Arc::clone(self);
            self.engine.tasks.spawn(async move { operators.run_lookups(kind).await });
        }
        found.await.map_err(|_| LedgerError::Unavailable("tokens cannot be looked up".into()).into())
    }

    async fn run_lookups(&self, kind: LookupKind) {
        let (tokens, ledger) = (&self.engine.tokens, self.engine.ledger.as_ref());
        while let Some(waiting) = tokens.lookups(kind).next() {
            let hashes: Vec<_> = waiting.iter().map(|(hash, _)| *hash).collect();
            let found = match kind {
                LookupKind::Runs => tokens.look_up(ledger, &hashes).await,
                LookupKind::Operators => tokens.operators.refresh(ledger).await.map(|()| Vec::new()),
            };
            match found {
                Ok(found) => {
                    for (hash, answer) in waiting {
                        let token = found.iter().find(|token| token.secret_sha256 == hash).cloned();
                        // A request that has left waits for nothing.
                        let _ = answer.send(token);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "failed to look up tokens");
                }
            }
            if kind == LookupKind::Operators {
                tokio::time::sleep(OPERATOR_PAUSE).await;
            }
        }
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
            let (operators, run, caller) = (Arc::clone(self), run.clone(), caller.clone());
            let work = async move {
                let engine = &operators.engine;
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
        if self.identify_issued(hash).is_some() {
            while self.identify_issued(hash).is_some() {
                drop(tokio::time::timeout(TOKEN_TICK, revocations.changed()).await);
            }
            return;
        }
        let is_operator = tokens.operators.find(hash).is_some();
        loop {
            if is_operator {
                match tokens.operators.find(hash) {
                    None => return,
                    // Does not expire.
                    Some(operator) if !operator.may_end() => {
                        if revocations.changed().await.is_err() {
                            return std::future::pending().await;
                        }
                        continue;
                    }
                    Some(_) => {}
                }
                drop(tokio::time::timeout(TOKEN_TICK, revocations.changed()).await);
                continue;
            }
            let cached = tokens.cached(hash);
            let found = if cached.is_some() {
                Ok(cached)
            } else {
                tokens.look_up(self.engine.ledger.as_ref(), &[*hash]).await.map(|mut found| found.pop())
            };
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
        Box::pin(async move {
            let (operators, run, token) = (Arc::clone(self), run.clone(), token.clone());
            let entry = lifecycle::token_revoked(&run, caller, &token);
            self.engine.detached(async move { operators.record_revocation(&run, &token, entry).await }).await
        })
    }

    async fn record_revocation(&self, run: &RunId, token: &TokenId, entry: Entry) -> Result<(), CallError> {
        self.engine.append_change(entry).await?;
        self.engine.tokens.revoked(run, Some(token));
        tracing::info!(run.id = %run, token.id = %token, "token revoked");
        Ok(())
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

/// Another request has stored its answer under the same key meanwhile.
fn key_taken() -> Refusal {
    Refusal::new(Code::AlreadyExists, "another request under the same key has created its token", "Repeat the request.")
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
