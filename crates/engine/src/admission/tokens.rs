//! Authentication: tokens of operators and of runs.

pub(crate) mod form;
pub(crate) mod lookups;
mod peers;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ledger::Ledger;
use lru::LruCache;
use model::{Permission, Refusal, RunId, Scope, Sha256, Token, TokenId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::admission::operators::{AUDIT, KnownOperators, LoadError, OPERATOR, OperatorIdentity};
use crate::clock::{new_token_id, now, parse_time};

use self::form::{OPERATOR_PREFIX, RUN_PREFIX, new_token};
use self::peers::PeerFailures;
pub use self::peers::network_of;

/// The ledger setting with the hash of the operator token that the first start generates.
const OPERATOR_SETTING: &str = "operator_token_sha256";
/// Maximum number of cached tokens of each kind.
const CACHED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// How often a stream checks whether its token has expired.
pub(crate) const TOKEN_TICK: Duration = Duration::from_secs(1);

/// The owner of a token.
#[derive(Clone, Debug)]
pub enum Identity {
    /// An operator.
    Operator(Arc<OperatorIdentity>),
    /// The agent of a run.
    Run(Arc<Token>),
}

/// The tokens of the configuration, as hashes of their secrets.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredTokens {
    /// The operator token with the scope `orchestrate`; if missing, the first start generates one.
    pub operator: Option<Sha256>,
    /// The operator token with the scope `audit`.
    pub audit: Option<Sha256>,
    /// The other operators.
    pub operators: Vec<OperatorIdentity>,
}

/// The settings of authentication.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// The tokens of the configuration.
    pub configured: ConfiguredTokens,
    /// Maximum requests per minute from one address without a valid token; 0 if there is no limit.
    pub failures_per_minute: u32,
}

/// The valid tokens that this process knows.
pub struct Tokens {
    pub(crate) operators: KnownOperators,
    cache: Mutex<LruCache<Sha256, Arc<Token>>>,
    /// The verified tokens of an issuer, with the hashes of the keys that have signed them. Others are verified again.
    pub(crate) of_issuer: Mutex<LruCache<Sha256, (Sha256, Identity)>>,
    pub(crate) failures: PeerFailures,
    /// Counts revocations. A lookup during a revocation is not cached, and streams check their tokens again.
    revocations: watch::Sender<u64>,
}

/// A request for a run token.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssueTokenRequest {
    /// Permissions of the token. Default: all but `event:append`, `evidence:attest`, `changeset:apply` and `command:serve`, which are
    /// given by name only.
    #[serde(default)]
    #[schema(example = json!(["file:list", "file:read"]))]
    permissions: Option<Vec<Permission>>,
    /// Expiry time, RFC 3339. Default: never.
    #[serde(default)]
    #[schema(example = "2030-01-01T00:00:00Z")]
    expires_at: Option<String>,
}

/// A run token with its secret. The secret is shown only once.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedToken {
    /// The ID of the token, for revocation.
    pub token_id: TokenId,
    /// The secret, for `Authorization: Bearer`.
    #[schema(example = "wsr_7Qm3XcV0bT9kLr2WzYd8NfJh5PsGa4Ue1iOqKxMvBnC6l0w3RtZp1")]
    token: String,
    /// Permissions of the token.
    permissions: Vec<Permission>,
    /// Expiry time.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl ConfiguredTokens {
    /// Returns the operators, of which `operator` has the token `orchestrate`.
    pub(crate) fn identities(self, orchestrate: Sha256) -> ledger::Result<Vec<OperatorIdentity>> {
        let mut identities = vec![OperatorIdentity::built_in(OPERATOR, Scope::Orchestrate, orchestrate)?];
        if let Some(audit) = self.audit {
            identities.push(OperatorIdentity::built_in(AUDIT, Scope::Audit, audit)?);
        }
        identities.extend(self.operators);
        Ok(identities)
    }
}

impl Tokens {
    /// Loads the tokens. Without an operator token in the settings, the first start generates one; its secret is returned, to be
    /// printed once and then [stored](store_first_token).
    ///
    /// # Errors
    ///
    /// Fails if the ledger fails, or if a stored operator has the name of a configured one.
    pub async fn load(settings: TokenSettings, ledger: &dyn Ledger) -> Result<(Self, Option<String>), LoadError> {
        let (orchestrate, printed) = match settings.configured.operator {
            Some(hash) => (hash, None),
            None => load_or_generate(ledger).await?,
        };
        let configured = settings.configured.identities(orchestrate)?;
        let tokens = Self {
            operators: KnownOperators::load(configured, ledger).await?,
            cache: Mutex::new(LruCache::new(CACHED)),
            of_issuer: Mutex::new(LruCache::new(CACHED)),
            failures: PeerFailures::new(settings.failures_per_minute),
            revocations: watch::Sender::new(0),
        };
        Ok((tokens, printed))
    }

    /// Returns the token with this hash if it is cached. It may have expired.
    pub(crate) fn cached(&self, hash: &Sha256) -> Option<Arc<Token>> {
        self.cache.lock().get(hash).cloned()
    }

    /// Reads tokens from the ledger and caches them. They may have expired.
    pub(crate) async fn look_up(&self, ledger: &dyn Ledger, hashes: &[Sha256]) -> ledger::Result<Vec<Arc<Token>>> {
        let revocations = *self.revocations.borrow();
        let found = ledger.tokens(hashes).await?;
        let is_valid = |token: &Token| !token.revoked && hashes.iter().any(|hash| same(&token.secret_sha256, hash));
        let found: Vec<_> = found.into_iter().filter(is_valid).map(Arc::new).collect();
        let mut cache = self.cache.lock();
        if *self.revocations.borrow() == revocations {
            for token in &found {
                cache.put(token.secret_sha256, Arc::clone(token));
            }
        }
        Ok(found)
    }

    /// Forgets the token of `run` that was revoked, or all of its tokens.
    pub(crate) fn revoked(&self, run: &RunId, token: Option<&TokenId>) {
        let mut cache = self.cache.lock();
        let is_revoked = |known: &Token| known.run_id == *run && token.is_none_or(|token| known.token_id == *token);
        let hashes: Vec<_> = cache.iter().filter(|(_, known)| is_revoked(known)).map(|(hash, _)| *hash).collect();
        for hash in hashes {
            cache.pop(&hash);
        }
        // Under the lock, so that a lookup that began before does not cache a token.
        self.announce_revocation();
    }

    /// Changes with every revocation.
    pub(crate) fn revocations(&self) -> watch::Receiver<u64> {
        self.revocations.subscribe()
    }

    /// Forgets the cached tokens. A lookup that has begun does not cache its token.
    pub(crate) fn forget(&self) {
        let mut cache = self.cache.lock();
        cache.clear();
        self.announce_revocation();
    }

    /// Makes streams check their tokens again.
    pub(crate) fn announce_revocation(&self) {
        self.revocations.send_modify(|count| *count += 1);
    }
}

async fn load_or_generate(ledger: &dyn Ledger) -> ledger::Result<(Sha256, Option<String>)> {
    if let Some(text) = ledger.setting(OPERATOR_SETTING).await? {
        return Ok((parse_setting(&text)?, None));
    }
    let secret = new_token(OPERATOR_PREFIX);
    Ok((Sha256::of(secret.as_bytes()), Some(secret)))
}

fn parse_setting(text: &str) -> ledger::Result<Sha256> {
    Sha256::parse(text).map_err(|error| ledger::LedgerError::Internal(Box::new(error)))
}

/// Stores the hash of the operator token that the first start has generated. To be called once somebody has seen it: it is not shown
/// again.
///
/// # Errors
///
/// If the ledger fails, or another process has stored its own first.
pub async fn store_first_token(ledger: &dyn Ledger, secret: &str) -> ledger::Result<()> {
    let hash = Sha256::of(secret.as_bytes());
    if parse_setting(&ledger.set_setting_once(OPERATOR_SETTING, &hash.to_string()).await?)? == hash {
        return Ok(());
    }
    let problem = "another process has started with this database for the first time, and its operator token is valid";
    Err(ledger::LedgerError::Internal(problem.into()))
}

fn same(one: &Sha256, other: &Sha256) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

impl IssueTokenRequest {
    /// Generates the token. Only the second value has the secret.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an empty list of permissions, an invalid time or a time in the past.
    pub fn issue(self, run: &RunId) -> Result<(Token, IssuedToken), Refusal> {
        let permissions: BTreeSet<_> = match self.permissions {
            None => BTreeSet::from(Permission::DEFAULT),
            Some(permissions) if permissions.is_empty() => {
                return Err(Refusal::invalid(
                    "`permissions` is empty",
                    "Give at least one permission, or omit it for the default ones.",
                ));
            }
            Some(permissions) => permissions.into_iter().collect(),
        };
        let expires_at = self.expires_at.as_deref().map(future_time).transpose()?;
        let token_id = new_token_id();
        let secret = new_token(RUN_PREFIX);
        let token = Token {
            token_id,
            run_id: run.clone(),
            secret_sha256: Sha256::of(secret.as_bytes()),
            permissions: permissions.into_iter().collect(),
            expires_at,
            revoked: false,
        };
        let issued = IssuedToken {
            token_id: token.token_id.clone(),
            token: secret,
            permissions: token.permissions.clone(),
            expires_at: token.expires_at.clone(),
        };
        Ok((token, issued))
    }
}

impl IssuedToken {
    /// Returns the token without its secret.
    #[must_use]
    pub(crate) fn without_secret(&self) -> Self {
        Self { token: String::new(), ..self.clone() }
    }
}

pub(crate) fn has_expired(token: &Token) -> bool {
    token.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= now())
}

pub(crate) fn future_time(raw: &str) -> Result<String, Refusal> {
    let hint = "Give a time in the future, such as `2030-01-01T00:00:00Z`, or omit it.";
    let time = parse_time(raw).map_err(|_| Refusal::invalid("`expiresAt` is not an RFC 3339 time", hint))?;
    if time <= now() { Err(Refusal::invalid("`expiresAt` is in the past", hint)) } else { Ok(time) }
}
