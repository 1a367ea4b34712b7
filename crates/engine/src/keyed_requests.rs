//! Creations under an `Idempotency-Key`: a repetition returns the first answer, the token included.

use std::sync::Arc;

use ledger::Ledger;
use model::{Code, Refusal, RunId, Sha256};
use serde::de::DeserializeOwned;

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::operators::OperatorIdentity;
use crate::admission::pools::no_permit;
use crate::admission::tokens::{IssueTokenRequest, IssuedToken, Tokens};
use crate::caller::Caller;
use crate::clock::latest;
use crate::engine::Engine;
use crate::operators::manage::{CreateOperatorRequest, CreatedOperator};
use crate::operators::rotate::RotateTokenRequest;
use crate::runs::{CreateRunRequest, CreatedRun, CreationAnswer};

/// An answer that contains a token.
trait WithToken: DeserializeOwned {
    /// Derives the secret of the token of an answer that was stored without it.
    fn secret(&self, tokens: &Tokens, request: &KeyedRequest) -> String;
    /// Whether the ledger has the token, by the hash of its secret.
    fn is_stored(&self, ledger: &dyn Ledger, sha256: Sha256) -> impl Future<Output = ledger::Result<bool>> + Send;
    /// Returns the same answer with this secret.
    fn with_token(self, secret: String) -> Self;
}

impl WithToken for CreatedRun {
    fn secret(&self, tokens: &Tokens, request: &KeyedRequest) -> String {
        self.token.secret(tokens, request)
    }

    async fn is_stored(&self, ledger: &dyn Ledger, sha256: Sha256) -> ledger::Result<bool> {
        self.token.is_stored(ledger, sha256).await
    }

    fn with_token(self, secret: String) -> Self {
        Self { token: self.token.with_token(secret), ..self }
    }
}

impl WithToken for IssuedToken {
    fn secret(&self, tokens: &Tokens, request: &KeyedRequest) -> String {
        tokens.secret(Some(request), &self.token_id)
    }

    async fn is_stored(&self, ledger: &dyn Ledger, sha256: Sha256) -> ledger::Result<bool> {
        Ok(ledger.token(&sha256).await?.is_some())
    }

    fn with_token(self, secret: String) -> Self {
        self.with_secret(secret)
    }
}

impl WithToken for CreatedOperator {
    fn secret(&self, tokens: &Tokens, request: &KeyedRequest) -> String {
        tokens.operator_secret(request, &self.operator)
    }

    async fn is_stored(&self, ledger: &dyn Ledger, sha256: Sha256) -> ledger::Result<bool> {
        // Another operator may have the name by now.
        Ok(ledger.operator(&self.operator.name).await?.is_some_and(|found| found.secret_sha256 == sha256))
    }

    fn with_token(self, secret: String) -> Self {
        Self { token: secret, ..self }
    }
}

impl Engine {
    /// As [`create_run`](Self::create_run); a repetition returns the first answer. Goes on if the caller disconnects.
    ///
    /// # Errors
    ///
    /// As for [`create_run`](Self::create_run); `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first request is under way.
    pub async fn create_run_once(
        &self,
        request: CreateRunRequest,
        creator: Arc<OperatorIdentity>,
        caller: &Caller,
        keyed: KeyedRequest,
        answer: CreationAnswer,
    ) -> Result<CreatedRun, CallError> {
        let (engine, caller) = (self.clone(), caller.clone());
        // Boxed, so that requests without a key do not carry its size.
        let work = async move {
            Box::pin(engine.once(&keyed, engine.create(request, creator, &caller, Some(keyed.clone()), answer))).await
        };
        Box::pin(self.detached(work)).await
    }

    /// As [`issue_token`](Self::issue_token); a repetition returns the first answer.
    ///
    /// # Errors
    ///
    /// As for [`issue_token`](Self::issue_token); `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first request is under
    /// way.
    pub async fn issue_token_once(
        &self,
        run: &RunId,
        caller: &Caller,
        request: IssueTokenRequest,
        keyed: KeyedRequest,
    ) -> Result<IssuedToken, CallError> {
        let (engine, run, caller) = (self.clone(), run.clone(), caller.clone());
        let work = async move { engine.once(&keyed, engine.create_token(&run, &caller, request, Some(&keyed))).await };
        self.detached(work).await
    }

    /// As [`create_operator`](Self::create_operator); a repetition returns the first answer. Goes on if the caller disconnects.
    ///
    /// # Errors
    ///
    /// As for [`create_operator`](Self::create_operator); `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first request is
    /// under way.
    pub async fn create_operator_once(
        &self,
        request: CreateOperatorRequest,
        creator: Arc<OperatorIdentity>,
        keyed: KeyedRequest,
    ) -> Result<CreatedOperator, CallError> {
        let engine = self.clone();
        let work = async move { engine.once(&keyed, engine.add_operator(request, &creator, Some(&keyed))).await };
        self.detached(work).await
    }

    /// As [`rotate_operator_token`](Self::rotate_operator_token); a repetition returns the first answer.
    ///
    /// # Errors
    ///
    /// As for [`rotate_operator_token`](Self::rotate_operator_token); `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first
    /// request is under way.
    pub async fn rotate_operator_token_once(
        &self,
        name: &str,
        request: RotateTokenRequest,
        rotator: Arc<OperatorIdentity>,
        keyed: KeyedRequest,
    ) -> Result<CreatedOperator, CallError> {
        let (engine, name) = (self.clone(), name.to_owned());
        let work = async move {
            engine.once(&keyed, engine.replace_operator_token(&name, request, &rotator, Some(&keyed))).await
        };
        self.detached(work).await
    }

    /// Runs `create`, unless the request has an answer.
    async fn once<T: WithToken>(
        &self,
        request: &KeyedRequest,
        create: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let patience = self.limits.request_timeout;
        let in_flight = tokio::time::timeout(patience, self.keyed_requests.lock(&request.id())).await;
        let _in_flight = in_flight.map_err(|_| no_permit("another request under the same key", patience))?;
        if let Some(answer) = self.keyed_answer(request).await? {
            return Ok(answer);
        }
        match create.await {
            // The commit of an earlier attempt, whose outcome was uncertain, may have been stored meanwhile.
            Err(error) if error.is(Code::AlreadyExists) => self.keyed_answer(request).await?.ok_or(error),
            created => created,
        }
    }

    async fn keyed_answer<T: WithToken>(&self, request: &KeyedRequest) -> Result<Option<T>, CallError> {
        let stored = self.ledger.keyed_answer(&request.operator, &request.key_sha256(), &latest()).await?;
        let Some(stored) = stored else { return Ok(None) };
        if stored.request_sha256 != request.request_sha256 {
            let message = format!("another request was sent under the idempotency key `{}`", request.key);
            let hint = "Give every new request a key of its own, or repeat the first one with exactly the same body.";
            return Err(Refusal::new(Code::IdempotencyKeyReused, message, hint).into());
        }
        let answer: T = serde_json::from_str(&stored.answer).map_err(|error| CallError::Internal(Box::new(error)))?;
        let secret = answer.secret(&self.tokens, request);
        if !answer.is_stored(self.ledger.as_ref(), Sha256::of(secret.as_bytes())).await? {
            let message = "the token of the first request under this idempotency key was created with another key file, or \
                           the operator or its token was replaced since";
            let hint = "Send the request under a new key.";
            return Err(Refusal::new(Code::IdempotencyKeyReused, message, hint).into());
        }
        tracing::info!(operator = request.operator, "a keyed request was repeated");
        Ok(Some(answer.with_token(secret)))
    }
}
