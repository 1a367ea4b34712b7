//! Who may call: operators' tokens, and the tokens of runs.

mod authenticate;
mod form;
mod peers;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ledger::Ledger;
use lru::LruCache;
use model::{Permission, Refusal, RunId, Sha256, Token, TokenId};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::sync::{Semaphore, watch};

use crate::clock::{latest, new_token_id, parse_time};
use crate::metrics;

use self::form::{OPERATOR_PREFIX, RUN_PREFIX, new_token};
use self::peers::PeerFailures;

/// Where the ledger keeps the hash of the operator token that was made at the first start.
const OPERATOR_SETTING: &str = "operator_token_sha256";
/// The most run tokens that are remembered without asking the ledger.
const CACHED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Hashes of tokens that are taken from the ledger at a time.
const PAGE: u32 = 10_000;
/// Questions to the ledger at a time about tokens that this process does not know: they never take the connections that
/// good callers need.
const UNKNOWN_AT_A_TIME: usize = 1;
/// How often an answer under way looks whether its token has expired.
const TOKEN_TICK: Duration = Duration::from_secs(1);

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Orchestrate,
    /// Read runs, audit, artifacts and approvals.
    Audit,
}

/// Who a token belongs to.
#[derive(Clone, Debug)]
pub enum Identity {
    /// An operator.
    Operator(Scope),
    /// The agent of a run.
    Run(Arc<Token>),
}

/// The tokens of the configuration, as hashes of their secrets.
#[derive(Clone, Copy, Debug)]
pub struct TokenSettings {
    /// The operator token with the scope `orchestrate`; one is made at the first start where it is missing.
    pub operator: Option<Sha256>,
    /// The operator token with the scope `audit`.
    pub audit: Option<Sha256>,
    /// Requests a minute from one address without a valid token; 0 is no limit.
    pub failures_per_minute: u32,
}

/// Every token that is good, as far as this process needs to remember.
pub struct Tokens {
    orchestrate: Sha256,
    audit: Option<Sha256>,
    cache: Mutex<LruCache<Sha256, Arc<Token>>>,
    /// What begins the hash of every run token that may be good: others need not be asked about. 8 bytes of each are enough
    /// for that, and a million tokens take 16 MB.
    known: Mutex<HashSet<u64>>,
    /// Taken for a question about a token that is not among them.
    unknown: Semaphore,
    failures: PeerFailures,
    /// Grows with every revocation, so that a look-up that was under way meanwhile is not remembered, and answers under way
    /// end.
    revocations: watch::Sender<u64>,
}

/// What `POST …/tokens` takes.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssueTokenRequest {
    /// What the token may do; everything where it is missing.
    #[serde(default)]
    #[schema(example = json!(["file:list", "file:read"]))]
    permissions: Option<Vec<Permission>>,
    /// When it ends, RFC 3339; never where it is missing.
    #[serde(default)]
    #[schema(example = "2030-01-01T00:00:00Z")]
    expires_at: Option<String>,
}

/// A run token with its secret, which is shown this once.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedToken {
    /// Its name, for revoking it.
    pub token_id: TokenId,
    /// The secret: `Authorization: Bearer` takes it.
    #[schema(example = "wsr_7Qm3XcV0bT9kLr2WzYd8NfJh5PsGa4Ue1iOqKxMvBnC6l0w3RtZp1")]
    token: String,
    /// What it may do.
    permissions: Vec<Permission>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl Tokens {
    /// Takes the operators' tokens from the settings. Where there is none for orchestrating, one is made at the first start:
    /// the second answer, to be printed once.
    pub async fn load(settings: TokenSettings, ledger: &dyn Ledger) -> ledger::Result<(Self, Option<String>)> {
        let (orchestrate, printed) = match settings.operator {
            Some(hash) => (hash, None),
            None => made_once(ledger).await?,
        };
        let tokens = Self {
            orchestrate,
            audit: settings.audit,
            cache: Mutex::new(LruCache::new(CACHED)),
            known: Mutex::new(known_hashes(ledger).await?),
            unknown: Semaphore::new(UNKNOWN_AT_A_TIME),
            failures: PeerFailures::new(settings.failures_per_minute),
            revocations: watch::Sender::new(0),
        };
        Ok((tokens, printed))
    }

    /// Notes a token that is about to be stored, so that it is good as soon as it is.
    pub fn note(&self, token: &Token) {
        self.known().insert(beginning_of(&token.secret_sha256));
    }

    /// Counts a request without a good token.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, where too many of them come from `peer`.
    pub fn fail(&self, peer: IpAddr) -> Result<(), Refusal> {
        metrics::authentication_failed();
        self.failures.count(peer).map_err(|wait| {
            crate::admission::rate_limit::limited(
                "too many requests without a valid token come from this address",
                wait,
            )
        })
    }

    /// Forgets addresses that have been quiet. Called now and then.
    pub fn tidy(&self) {
        self.failures.tidy();
    }

    fn known(&self) -> MutexGuard<'_, HashSet<u64>> {
        // Nothing panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, LruCache<Sha256, Arc<Token>>> {
        // Nothing panics while it holds the lock.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn operator(&self, hash: &Sha256) -> Option<Scope> {
        if same(&self.orchestrate, hash) {
            Some(Scope::Orchestrate)
        } else if self.audit.is_some_and(|audit| same(&audit, hash)) {
            Some(Scope::Audit)
        } else {
            None
        }
    }
}

/// What begins the hash of every token that may be good.
async fn known_hashes(ledger: &dyn Ledger) -> ledger::Result<HashSet<u64>> {
    let (mut known, mut after) = (HashSet::new(), Sha256::ZERO);
    loop {
        let page = ledger.token_hashes(&after, &latest(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(known) };
        after = *last;
        known.extend(page.iter().map(beginning_of));
    }
}

/// The first 8 bytes of a hash.
fn beginning_of(hash: &Sha256) -> u64 {
    hash.as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

async fn made_once(ledger: &dyn Ledger) -> ledger::Result<(Sha256, Option<String>)> {
    let stored = |text: String| Sha256::parse(&text).map_err(|error| ledger::LedgerError::Internal(Box::new(error)));
    if let Some(text) = ledger.setting(OPERATOR_SETTING).await? {
        return Ok((stored(text)?, None));
    }
    let secret = new_token(OPERATOR_PREFIX);
    let hash = Sha256::of(secret.as_bytes());
    let kept = stored(ledger.set_setting_once(OPERATOR_SETTING, &hash.to_string()).await?)?;
    // Another process on the same database may have been first.
    Ok((kept, (kept == hash).then_some(secret)))
}

fn same(one: &Sha256, other: &Sha256) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

impl Scope {
    /// As the audit names an operator of this scope.
    pub fn actor(self) -> &'static str {
        match self {
            Self::Orchestrate => "operator:orchestrate",
            Self::Audit => "operator:audit",
        }
    }
}

impl IssueTokenRequest {
    /// Makes the token; its secret is in the second answer only.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for no permission at all, a bad time or one that has passed.
    pub fn issue(self, run: &RunId) -> Result<(Token, IssuedToken), Refusal> {
        let permissions: BTreeSet<_> = match self.permissions {
            None => BTreeSet::from(Permission::ALL),
            Some(some) if some.is_empty() => {
                return Err(Refusal::invalid("`permissions` is empty", "Name at least one, or leave it out for all."));
            }
            Some(some) => some.into_iter().collect(),
        };
        let expires_at = self.expires_at.as_deref().map(future_time).transpose()?;
        let secret = new_token(RUN_PREFIX);
        let token = Token {
            token_id: new_token_id(),
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

fn has_expired(token: &Token) -> bool {
    token.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= latest())
}

fn future_time(raw: &str) -> Result<String, Refusal> {
    let hint = "Give a time in the future, such as `2030-01-01T00:00:00Z`, or leave it out.";
    let time = parse_time(raw).map_err(|_| Refusal::invalid("`expiresAt` is no RFC 3339 time", hint))?;
    if time <= latest() { Err(Refusal::invalid("`expiresAt` has passed", hint)) } else { Ok(time) }
}
