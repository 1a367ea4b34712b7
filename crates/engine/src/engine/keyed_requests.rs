//! Creations under an `Idempotency-Key`: a repetition creates nothing but another token.

use model::{Code, Refusal};
use serde::de::DeserializeOwned;

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::pools::no_permit;
use crate::clock::now;
use crate::engine::Engine;

impl Engine {
    /// Runs `create`; for a request under a key that has an answer, `repeat` with that.
    ///
    /// # Errors
    ///
    /// As for `create`; `IDEMPOTENCY_KEY_REUSED`; `UNAVAILABLE` while the first request is under way.
    pub(crate) async fn once<T: DeserializeOwned, R: Future<Output = Result<T, CallError>>>(
        &self,
        request: Option<&KeyedRequest>,
        create: impl Future<Output = Result<T, CallError>>,
        repeat: impl FnOnce(T) -> R,
    ) -> Result<T, CallError> {
        let Some(request) = request else { return create.await };
        let timeout = self.limits.request_timeout;
        let in_flight = tokio::time::timeout(timeout, self.keyed_requests.lock(&request.id())).await;
        let _in_flight = in_flight.map_err(|_| no_permit("another request under the same key", timeout))?;
        if let Some(answer) = self.keyed_answer(request).await? {
            return repeat(answer).await;
        }
        match create.await {
            // The commit of an earlier attempt, whose outcome was uncertain, may have been stored meanwhile.
            Err(error) if error.is(Code::AlreadyExists) => match self.keyed_answer(request).await? {
                Some(answer) => repeat(answer).await,
                None => Err(error),
            },
            created => created,
        }
    }

    async fn keyed_answer<T: DeserializeOwned>(&self, request: &KeyedRequest) -> Result<Option<T>, CallError> {
        let stored = self.ledger.keyed_answer(&request.operator, &request.key_sha256(), &now()).await?;
        let Some(stored) = stored else { return Ok(None) };
        if stored.request_sha256 != request.request_sha256 {
            let message = format!("another request was sent under the idempotency key `{}`", request.key);
            let hint = "Give every new request a key of its own, or repeat the first one with exactly the same body.";
            return Err(Refusal::new(Code::IdempotencyKeyReused, message, hint).into());
        }
        tracing::info!(operator = request.operator, "a keyed request was repeated");
        serde_json::from_str(&stored.answer).map(Some).map_err(|error| CallError::Internal(Box::new(error)))
    }
}
