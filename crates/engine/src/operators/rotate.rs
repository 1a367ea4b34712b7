//! Replaces the tokens of operators.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ledger::OperatorChange;
use model::{Operator, OperatorToken, Refusal, Sha256};
use serde::Deserialize;

use crate::CallError;
use crate::admission::idempotency::{KeyedRequest, key_taken};
use crate::admission::operators::OperatorIdentity;
use crate::admission::tokens::form::{OPERATOR_PREFIX, new_token};
use crate::admission::tokens::future_time;
use crate::clock::{now, now_plus};
use crate::operators::Operators;
use crate::operators::manage::{CreatedOperator, no_such_operator};

/// How long a replaced token stays valid, if the request does not say, and at most.
const DEFAULT_OVERLAP_SECONDS: u64 = 3600;
const MAX_OVERLAP_SECONDS: u64 = 7 * 24 * 3600;

/// A request for another token of an operator.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateTokenRequest {
    /// Seconds for which the present token stays valid, at most 604,800 (7 days). Default: 3600. With 0 it is refused at once, and
    /// so is every earlier token of the operator.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 604_800, example = 3600)]
    pub overlap_seconds: Option<u64>,
    /// Expiry time of the new token, RFC 3339. Default: that of the present one, which must not have expired.
    #[serde(default)]
    #[schema(example = "2030-01-01T00:00:00Z")]
    pub expires_at: Option<String>,
}

/// A new token in the making, with the end of the present one.
#[derive(Debug)]
pub struct TokenRotation {
    /// The new token, without its secret.
    pub token: OperatorToken,
    /// The new token, with its secret.
    pub created: CreatedOperator,
    /// When the present token ends, RFC 3339 UTC.
    pub ends_at: String,
    /// Whether the present token is valid until then. Otherwise every token of the operator ends.
    pub overlaps: bool,
}

impl RotateTokenRequest {
    /// Generates a token that replaces that of `present`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an overlap that is too long, an invalid time or a time in the past; also without a time if the present
    /// token has expired.
    pub fn issue(self, present: Operator, created_by: &str) -> Result<TokenRotation, Refusal> {
        let overlap = self.overlap_seconds.unwrap_or(DEFAULT_OVERLAP_SECONDS);
        if overlap > MAX_OVERLAP_SECONDS {
            let message = format!("`overlapSeconds` is more than {MAX_OVERLAP_SECONDS}");
            return Err(Refusal::invalid(message, "Rotate again later, or create another operator."));
        }
        let expires_at = match (self.expires_at.as_deref().map(future_time).transpose()?, &present.expires_at) {
            (None, Some(expired)) if *expired <= now() => {
                let message = format!("the operator's token has expired at {expired}, and so would the new one");
                return Err(Refusal::invalid(message, "Give `expiresAt`, a time in the future."));
            }
            (given, present) => given.or_else(|| present.clone()),
        };
        let ends_at = if overlap == 0 {
            now()
        } else {
            // A token that expires earlier than the overlap ends still does.
            let until = now_plus(i64::try_from(overlap).unwrap_or(i64::MAX));
            present.expires_at.clone().filter(|expires_at| *expires_at < until).unwrap_or(until)
        };
        let created_by = Some(created_by.to_owned());
        let operator = Operator { created_at: Some(now()), created_by, expires_at, revoked_at: None, ..present };
        let secret = new_token(OPERATOR_PREFIX);
        let token = OperatorToken { operator: operator.clone(), secret_sha256: Sha256::of(secret.as_bytes()) };
        Ok(TokenRotation {
            token,
            created: CreatedOperator { operator, token: secret },
            ends_at,
            overlaps: overlap > 0,
        })
    }
}

impl Operators {
    /// Gives an operator another token. The present one is valid for a while beside it. A repetition under the same key gives it one
    /// more.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, also for an operator of the configuration; `IDEMPOTENCY_KEY_REUSED`; `NOT_FOUND`; `QUOTA_EXCEEDED`.
    pub fn rotate_operator_token<'a>(
        self: &'a Arc<Self>,
        raw: &'a str,
        request: RotateTokenRequest,
        rotator: Arc<OperatorIdentity>,
        keyed: Option<KeyedRequest>,
    ) -> BoxFuture<'a, Result<CreatedOperator, CallError>> {
        Box::pin(async move {
            let (operators, raw) = (Arc::clone(self), raw.to_owned());
            let work = async move {
                let replace = operators.replace_operator_token(&raw, request.clone(), &rotator, keyed.as_ref());
                let repeat = |_: CreatedOperator| operators.replace_operator_token(&raw, request, &rotator, None);
                operators.engine.once(keyed.as_ref(), replace, repeat).await
            };
            self.engine.detached(work).await
        })
    }

    /// Gives an operator another token, whatever was answered under its key.
    pub(super) async fn replace_operator_token(
        &self,
        raw: &str,
        request: RotateTokenRequest,
        rotator: &OperatorIdentity,
        keyed: Option<&KeyedRequest>,
    ) -> Result<CreatedOperator, CallError> {
        let hint = "Give it a second token there, and send the service SIGHUP or restart it.";
        let name = self.stored_name(raw, hint)?;
        let operators = &self.engine.tokens.operators;
        let _changing = operators.changes.lock().await;
        operators.check_count()?;
        operators.check(rotator)?;
        let present = self.engine.ledger.operator(&name).await?.filter(|present| present.operator.revoked_at.is_none());
        let present = present.ok_or_else(no_such_operator)?;
        let rotation = request.issue(present.operator, rotator.name.as_str())?;
        let TokenRotation { token, created, ends_at, overlaps } = rotation;
        let change = OperatorChange::ReplaceToken {
            token: token.clone(),
            ends_at: ends_at.clone(),
            is_valid_until: overlaps,
            answer: created.keyed_answer(keyed),
        };
        if !self.change_operator(rotator, change, key_taken).await? {
            return Err(no_such_operator().into());
        }
        operators.replace(&present.secret_sha256, token, overlaps.then_some(ends_at.as_str()));
        self.engine.tokens.announce_revocation();
        tracing::info!(operator.name = %name, operator.rotated_by = %rotator.name, ends_at, "operator's token replaced");
        Ok(created)
    }
}
