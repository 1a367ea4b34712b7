//! Creations under an `Idempotency-Key`: a repetition returns the first answer, the token included.

use ledger::Ledger;
use model::{Code, Refusal, Sha256};
use serde::de::DeserializeOwned;

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::pools::no_permit;
use crate::admission::tokens::{IssuedToken, Tokens};
use crate::clock::latest;
use crate::engine::Engine;

/// An answer that contains a token.
pub(crate) trait WithToken: DeserializeOwned {
    /// Derives the secret of the token of an answer that was stored without it.
    fn secret(&self, tokens: &Tokens, request: &KeyedRequest) -> String;
    /// Whether the ledger has the token, by the hash of its secret.
    fn is_stored(&self, ledger: &dyn Ledger, sha256: Sha256) -> impl Future<Output = ledger::Result<bool>> + Send;
    /// Returns the same answer with this secret.
    fn with_token(self, secret: String) -> Self;
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

impl Engine {
    /// Runs `create`; for a request under a key, unless it has an answer.
    ///
    /// # Errors
    ///
    /// As for `create`; `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first request is under way.
    pub(crate) async fn once<T: WithToken>(
        &self,
        request: Option<&KeyedRequest>,
        create: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let Some(request) = request else { return create.await };
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
