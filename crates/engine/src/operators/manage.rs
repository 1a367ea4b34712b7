//! Creates, lists and revokes operators. Every change runs to completion even if the client disconnects, so that memory follows the
//! ledger.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ledger::{KeyedAnswer, LedgerError, OperatorChange};
use model::{Code, Operator, OperatorName, OperatorToken, Refusal, Scope, Sha256};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::operators::{OperatorIdentity, parse_name};
use crate::admission::tokens::form::{OPERATOR_PREFIX, new_token};
use crate::admission::tokens::future_time;
use crate::clock::now;
use crate::operators::Operators;
use crate::operators::rotate::RotateTokenRequest;
use crate::page::{Cursor, List, Page};

/// How long after a failure the operators are read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// A request for an operator.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateOperatorRequest {
    /// The name: a letter or digit, then up to 63 letters, digits, `.`, `_`, `@`, `+` or `-`. Letter case does not
    /// distinguish names.
    #[schema(example = "ada")]
    pub name: String,
    /// What the operator may do, at least one scope.
    #[schema(example = json!(["approve", "audit"]))]
    pub scopes: Vec<Scope>,
    /// Expiry time of the token, RFC 3339. Default: never.
    #[serde(default)]
    #[schema(example = "2030-01-01T00:00:00Z")]
    pub expires_at: Option<String>,
}

/// An operator with its token. The token is shown only once.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedOperator {
    /// The operator.
    #[serde(flatten)]
    pub operator: Operator,
    /// The secret, for `Authorization: Bearer`.
    #[schema(example = "wso_7Qm3XcV0bT9kLr2WzYd8NfJh5PsGa4Ue1iOqKxMvBnC6l0w3RtZp1")]
    pub token: String,
}

impl CreatedOperator {
    /// Returns the answer to a keyed request as it is stored, without the secret, and the current time.
    pub(crate) fn keyed_answer(&self, keyed: Option<&KeyedRequest>) -> Option<(KeyedAnswer, String)> {
        keyed.map(|keyed| keyed.answer(&Self { token: String::new(), ..self.clone() }))
    }
}

impl CreateOperatorRequest {
    /// Generates the token. Only the second value has its secret.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a malformed or reserved name, an empty list of scopes, an invalid time or a time in the past.
    pub fn issue(self, created_by: &str) -> Result<(OperatorToken, CreatedOperator), Refusal> {
        let name = parse_name(&self.name)?;
        let scopes: BTreeSet<_> = self.scopes.into_iter().collect();
        if scopes.is_empty() {
            let names: Vec<_> = Scope::ALL.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
            return Err(Refusal::invalid("`scopes` is empty", format!("Give at least one of {}.", names.join(", "))));
        }
        let expires_at = self.expires_at.as_deref().map(future_time).transpose()?;
        let operator = Operator {
            name,
            scopes,
            created_at: Some(now()),
            created_by: Some(created_by.to_owned()),
            expires_at,
            revoked_at: None,
        };
        let secret = new_token(OPERATOR_PREFIX);
        let token = OperatorToken { operator: operator.clone(), secret_sha256: Sha256::of(secret.as_bytes()) };
        Ok((token, CreatedOperator { operator, token: secret }))
    }
}

impl Operators {
    /// Creates an operator with a token of its own. A repetition under the same key replaces the token. Runs to completion even if
    /// the client disconnects.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `IDEMPOTENCY_KEY_REUSED`, `ALREADY_EXISTS`, `QUOTA_EXCEEDED`.
    pub fn create_operator(
        self: &Arc<Self>,
        request: CreateOperatorRequest,
        creator: Arc<OperatorIdentity>,
        keyed: Option<KeyedRequest>,
    ) -> BoxFuture<'_, Result<CreatedOperator, CallError>> {
        Box::pin(async move {
            let operators = Arc::clone(self);
            let work = async move {
                let create = operators.add_operator(request, &creator, keyed.as_ref());
                let repeat = |first: CreatedOperator| {
                    let (operators, creator) = (&operators, &creator);
                    async move {
                        let name = first.operator.name.as_str();
                        operators.replace_operator_token(name, RotateTokenRequest::default(), creator, None).await
                    }
                };
                operators.engine.once(keyed.as_ref(), create, repeat).await
            };
            self.engine.detached(work).await
        })
    }

    /// Creates an operator, whatever was answered under its key.
    async fn add_operator(
        &self,
        request: CreateOperatorRequest,
        creator: &OperatorIdentity,
        keyed: Option<&KeyedRequest>,
    ) -> Result<CreatedOperator, CallError> {
        let (token, created) = request.issue(creator.name.as_str())?;
        let operators = &self.engine.tokens.operators;
        let _changing = operators.changes.lock().await;
        let name = token.operator.name.clone();
        if operators.is_fixed(&name) {
            return Err(name_taken(&name).into());
        }
        operators.check_count()?;
        operators.check(creator)?;
        let change = OperatorChange::Create { token: token.clone(), answer: created.keyed_answer(keyed) };
        self.change_operator(creator, change, || name_taken(&name)).await?;
        operators.add(token);
        tracing::info!(operator.name = %name, operator.created_by = %creator.name, "operator created");
        Ok(created)
    }

    /// Lists operators: those of the configuration, then the others in order of creation, revoked ones included.
    ///
    /// # Errors
    ///
    /// Fails if the ledger fails.
    #[boxed]
    pub async fn operators(&self, after: Option<Cursor>, limit: u32) -> Result<Page<Operator>, CallError> {
        let fixed = self.engine.tokens.operators.describe_fixed();
        // The configured operators have the first positions.
        let offset = i64::try_from(fixed.len()).unwrap_or(i64::MAX);
        let (after, limit) = (after.map_or(0, Cursor::position), limit as usize);
        let mut items: Vec<_> = (1..).zip(fixed).filter(|(position, _)| *position > after).collect();
        if items.len() <= limit {
            // One more shows whether there is another page.
            let more = u32::try_from(limit + 1 - items.len()).unwrap_or(u32::MAX);
            let stored = self.engine.ledger.operators((after - offset).max(0), more).await?;
            items.extend(stored.into_iter().map(|(position, token)| (position + offset, token.operator)));
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page::of(ledger::LedgerPage { items, more, resume: None }, &List::Operators.unfiltered()))
    }

    /// Revokes an operator. After the answer its requests are refused, its streams end, and its calls in progress are not
    /// recorded.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `INVALID_REQUEST` for an operator of the configuration.
    pub fn revoke_operator<'a>(
        self: &'a Arc<Self>,
        raw: &'a str,
        revoker: Arc<OperatorIdentity>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        let (this, raw) = (Arc::clone(self), raw.to_owned());
        let work = async move {
            let hint = "Remove it from the configuration, and send the service SIGHUP or restart it.";
            let name = this.stored_name(&raw, hint)?;
            let operators = &this.engine.tokens.operators;
            let _changing = operators.changes.lock().await;
            operators.check(&revoker)?;
            let change = OperatorChange::Revoke { name: name.clone(), at: now() };
            let revoked = this.change_operator(&revoker, change, no_such_operator).await?;
            if !revoked && this.engine.ledger.operator(&name).await?.is_none() {
                return Err(no_such_operator().into());
            }
            operators.remove(&name);
            this.engine.tokens.announce_revocation();
            tracing::info!(operator.name = %name, operator.revoked_by = %revoker.name, "operator revoked");
            Ok(())
        };
        Box::pin(async move { self.engine.detached(work).await })
    }

    /// Returns the error of a change of operators that failed in the ledger. As it may have been stored nevertheless, they are
    /// read again once its transaction has ended, as soon as the ledger answers.
    pub(crate) fn uncertain_change(&self, error: LedgerError) -> CallError {
        let engine = Arc::clone(&self.engine);
        self.engine.tasks.spawn(async move {
            let reload = || async {
                engine.ledger.settle_operators().await?;
                engine.tokens.operators.refresh(engine.ledger.as_ref()).await
            };
            while let Err(error) = reload().await {
                report_reload(&error);
                tokio::select! {
                    () = tokio::time::sleep(RELOAD_INTERVAL) => {}
                    () = engine.shutdown.cancelled() => return,
                }
            }
            engine.tokens.announce_revocation();
        });
        error.into()
    }
}

fn report_reload(error: &LedgerError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "the operators could not be read again after a change that failed; it is repeated");
}

pub(crate) fn no_such_operator() -> Refusal {
    Refusal::new(Code::NotFound, "there is no operator of this name", "GET /v1/operators lists every operator.")
}

fn name_taken(name: &OperatorName) -> Refusal {
    let hint = "Give another name, or revoke that operator first.";
    Refusal::new(Code::AlreadyExists, format!("there is an operator `{name}` already"), hint)
}
