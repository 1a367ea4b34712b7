//! Creates, lists and revokes operators.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::LedgerError;
use model::{Code, Operator, OperatorName, OperatorToken, Refusal, Scope, Sha256};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::operators::{OperatorIdentity, Operators, parse_name};
use crate::admission::tokens::form::{OPERATOR_PREFIX, new_token};
use crate::admission::tokens::future_time;
use crate::clock::{latest, now, now_plus};
use crate::engine::Engine;
use crate::page::{Cursor, List, Page};

/// Maximum number of stored operators that are not revoked. All of them are in memory.
const MAX_OPERATORS: usize = 1000;
/// How long a replaced token stays valid, if the request does not say, and at most.
const DEFAULT_OVERLAP_SECONDS: u64 = 3600;
const MAX_OVERLAP_SECONDS: u64 = 7 * 24 * 3600;

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

/// A request for another token of an operator.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateTokenRequest {
    /// Seconds for which the present token stays valid, at most 604,800 (7 days). With 0 it is refused at once. Default: 3600.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 604_800, example = 3600)]
    pub overlap_seconds: Option<u64>,
    /// Expiry time of the new token, RFC 3339. Default: that of the present one.
    #[serde(default)]
    #[schema(example = "2030-01-01T00:00:00Z")]
    pub expires_at: Option<String>,
}

/// A new token in the making, with the end of the present one.
#[derive(Debug)]
pub struct Rotation {
    /// The new token, without its secret.
    pub token: OperatorToken,
    /// The new token, with its secret.
    pub created: CreatedOperator,
    /// When the present token ends, RFC 3339 UTC.
    pub ends_at: String,
    /// Whether the present token is valid until then.
    pub overlaps: bool,
}

impl RotateTokenRequest {
    /// Generates a token that replaces that of `present`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an overlap that is too long, an invalid time or a time in the past.
    pub fn issue(self, present: Operator, created_by: &str) -> Result<Rotation, Refusal> {
        let overlap = self.overlap_seconds.unwrap_or(DEFAULT_OVERLAP_SECONDS);
        if overlap > MAX_OVERLAP_SECONDS {
            let message = format!("`overlapSeconds` is more than {MAX_OVERLAP_SECONDS}");
            return Err(Refusal::invalid(message, "Rotate again later, or create another operator."));
        }
        let until = if overlap == 0 { now() } else { now_plus(i64::try_from(overlap).unwrap_or(i64::MAX)) };
        // A token that expires earlier than the overlap ends still does.
        let ends_at = present.expires_at.clone().filter(|expires_at| *expires_at < until).unwrap_or(until);
        let expires_at = self.expires_at.as_deref().map(future_time).transpose()?.or(present.expires_at);
        let created_by = Some(created_by.to_owned());
        let operator = Operator { created_at: Some(now()), created_by, expires_at, revoked_at: None, ..present };
        let secret = new_token(OPERATOR_PREFIX);
        let token = OperatorToken { operator: operator.clone(), secret_sha256: Sha256::of(secret.as_bytes()) };
        Ok(Rotation { token, created: CreatedOperator { operator, token: secret }, ends_at, overlaps: overlap > 0 })
    }
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

impl CreateOperatorRequest {
    /// Generates the token. Only the second value has its secret.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a malformed or reserved name, an empty list of scopes, an invalid time or a time in the past.
    pub fn issue(self, created_by: &str) -> Result<(OperatorToken, CreatedOperator), Refusal> {
        self.issue_with(created_by, |_| new_token(OPERATOR_PREFIX))
    }

    /// As [`issue`](Self::issue), with the secret that `secret` generates for the operator.
    fn issue_with(
        self,
        created_by: &str,
        secret: impl FnOnce(&Operator) -> String,
    ) -> Result<(OperatorToken, CreatedOperator), Refusal> {
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
        let secret = secret(&operator);
        let token = OperatorToken { operator: operator.clone(), secret_sha256: Sha256::of(secret.as_bytes()) };
        Ok((token, CreatedOperator { operator, token: secret }))
    }
}

impl Operators {
    /// Describes the configured operators.
    fn describe_fixed(&self) -> Vec<Operator> {
        let describe = |operator: &Arc<OperatorIdentity>| Operator {
            name: operator.name.clone(),
            scopes: operator.scopes.clone(),
            created_at: None,
            created_by: None,
            expires_at: None,
            revoked_at: None,
        };
        let mut described: Vec<Operator> = Vec::new();
        for operator in self.fixed.read().iter().map(describe) {
            // An operator may have two tokens.
            if !described.iter().any(|other| other.name.is_same(&operator.name)) {
                described.push(operator);
            }
        }
        described
    }

    /// Checks that there may be one more token.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    fn check_count(&self) -> Result<(), Refusal> {
        let count = self.stored.lock().len();
        if count < MAX_OPERATORS {
            return Ok(());
        }
        let message = format!("there are {count} operators; there may be {MAX_OPERATORS}");
        let refusal = Refusal::new(Code::QuotaExceeded, message, "Revoke operators that are not used any more.");
        Err(refusal.with_details(|details| {
            (details.limit, details.actual) = (Some(MAX_OPERATORS as u64), Some(count as u64));
        }))
    }

    fn add(&self, token: OperatorToken) {
        self.stored.lock().insert(token.secret_sha256, Arc::new(OperatorIdentity::stored(token)));
    }

    /// Replaces the token of an operator. The present one is valid until `ends_at`, if that is given.
    fn replace(&self, token: OperatorToken, ends_at: Option<&str>) {
        let mut stored = self.stored.lock();
        let name = token.operator.name.clone();
        stored.retain(|_, operator| !operator.name.is_same(&name) || ends_at.is_some() && !operator.has_expired());
        for operator in stored.values_mut().filter(|operator| operator.name.is_same(&name)) {
            let ends_first = operator.expires_at.as_deref().zip(ends_at).is_some_and(|(expiry, end)| expiry <= end);
            if !ends_first {
                let replaced = OperatorIdentity { expires_at: ends_at.map(str::to_owned), ..(**operator).clone() };
                *operator = Arc::new(replaced);
            }
        }
        stored.insert(token.secret_sha256, Arc::new(OperatorIdentity::stored(token)));
    }

    fn remove(&self, name: &OperatorName) {
        self.stored.lock().retain(|_, operator| !operator.name.is_same(name));
    }
}

impl Engine {
    /// Creates an operator with a token of its own.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `ALREADY_EXISTS`, `QUOTA_EXCEEDED`.
    pub async fn create_operator(
        &self,
        request: CreateOperatorRequest,
        creator: &OperatorIdentity,
    ) -> Result<CreatedOperator, CallError> {
        self.add_operator(request, creator, None).await
    }

    /// As [`create_operator`](Self::create_operator), for a request that may be a keyed one.
    pub(crate) async fn add_operator(
        &self,
        request: CreateOperatorRequest,
        creator: &OperatorIdentity,
        keyed: Option<&KeyedRequest>,
    ) -> Result<CreatedOperator, CallError> {
        let (token, created) = request.issue_with(creator.name.as_str(), |operator| match keyed {
            Some(keyed) => self.tokens.operator_secret(keyed, operator),
            None => new_token(OPERATOR_PREFIX),
        })?;
        let operators = &self.tokens.operators;
        let _changing = operators.changes.lock().await;
        let name = token.operator.name.clone();
        if operators.is_fixed(&name) {
            return Err(name_taken(&name).into());
        }
        operators.check_count()?;
        operators.check(creator)?;
        let answer = keyed.map(|keyed| {
            let without_secret = CreatedOperator { token: String::new(), ..created.clone() };
            (keyed.answer(&without_secret), latest())
        });
        match self.ledger.create_operator(&token, answer).await {
            Ok(()) => {}
            Err(LedgerError::AlreadyExists) => return Err(name_taken(&name).into()),
            Err(error) => return Err(error.into()),
        }
        operators.add(token);
        tracing::info!(operator.name = %name, operator.created_by = %creator.name, "operator created");
        Ok(created)
    }

    /// Gives an operator another token. The present one is valid for a while beside it.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, also for an operator of the configuration; `NOT_FOUND`; `QUOTA_EXCEEDED`.
    pub async fn rotate_operator_token(
        &self,
        raw: &str,
        request: RotateTokenRequest,
        rotator: &OperatorIdentity,
    ) -> Result<CreatedOperator, CallError> {
        let name = OperatorName::parse(raw).map_err(|_| no_such_operator())?;
        let operators = &self.tokens.operators;
        if operators.is_fixed(&name) {
            let message = format!("the operator `{name}` is set by the configuration of the service");
            let hint = "Give it a second token there, and send the service SIGHUP or restart it.";
            return Err(Refusal::invalid(message, hint).into());
        }
        let _changing = operators.changes.lock().await;
        operators.check_count()?;
        operators.check(rotator)?;
        let present = self.ledger.operator(&name).await?.filter(|present| present.operator.revoked_at.is_none());
        let present = present.ok_or_else(no_such_operator)?.operator;
        let Rotation { token, created, ends_at, overlaps } = request.issue(present, rotator.name.as_str())?;
        if !self.ledger.replace_operator_token(&token, &ends_at, overlaps).await? {
            return Err(no_such_operator().into());
        }
        operators.replace(token, overlaps.then_some(ends_at.as_str()));
        self.tokens.announce_revocation();
        tracing::info!(operator.name = %name, operator.rotated_by = %rotator.name, ends_at, "operator's token replaced");
        Ok(created)
    }

    /// Lists operators: those of the configuration, then the others in order of creation, revoked ones included.
    ///
    /// # Errors
    ///
    /// Fails if the ledger fails.
    pub async fn operators(&self, after: Option<Cursor>, limit: u32) -> Result<Page<Operator>, CallError> {
        let fixed = self.tokens.operators.describe_fixed();
        // The configured operators have the first positions.
        let offset = i64::try_from(fixed.len()).unwrap_or(i64::MAX);
        let (after, limit) = (after.map_or(0, Cursor::position), limit as usize);
        let mut items: Vec<_> = (1..).zip(fixed).filter(|(position, _)| *position > after).collect();
        if items.len() <= limit {
            // One more shows whether there is another page.
            let more = u32::try_from(limit + 1 - items.len()).unwrap_or(u32::MAX);
            let stored = self.ledger.operators((after - offset).max(0), more).await?;
            items.extend(stored.into_iter().map(|(position, token)| (position + offset, token.operator)));
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page::of(ledger::Page { items, more, resume: None }, &List::Operators.unfiltered()))
    }

    /// Revokes an operator. After the answer its requests are refused, its streams end, and its calls in progress are not
    /// recorded.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `INVALID_REQUEST` for an operator of the configuration.
    pub async fn revoke_operator(&self, raw: &str, revoker: &OperatorIdentity) -> Result<(), CallError> {
        let name = OperatorName::parse(raw).map_err(|_| no_such_operator())?;
        let operators = &self.tokens.operators;
        if operators.is_fixed(&name) {
            let message = format!("the operator `{name}` is set by the configuration of the service");
            return Err(Refusal::invalid(
                message,
                "Remove it from the configuration, and send the service SIGHUP or restart it.",
            )
            .into());
        }
        let _changing = operators.changes.lock().await;
        operators.check(revoker)?;
        if !self.ledger.revoke_operator(&name, &now()).await? && self.ledger.operator(&name).await?.is_none() {
            return Err(no_such_operator().into());
        }
        operators.remove(&name);
        self.tokens.announce_revocation();
        tracing::info!(operator.name = %name, operator.revoked_by = %revoker.name, "operator revoked");
        Ok(())
    }
}

fn no_such_operator() -> Refusal {
    Refusal::new(Code::NotFound, "there is no operator of this name", "GET /v1/operators lists every operator.")
}

fn name_taken(name: &OperatorName) -> Refusal {
    let hint = "Give another name, or revoke that operator first.";
    Refusal::new(Code::AlreadyExists, format!("there is an operator `{name}` already"), hint)
}
