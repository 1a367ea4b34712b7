//! The resource server of OAuth 2.0: access tokens that a configured issuer has signed (RFC 9068), and the issuer's keys.
//!
//! A token says who its caller is, so that nothing of it is stored. The keys are fetched from the issuer (RFC 8414), at the start, every
//! few minutes, and when a token names one that is not known. While the issuer is away, its last keys stay valid. Each node fetches
//! them by itself.

mod access_token;
mod fetch;
mod keys;
pub(crate) mod sign_in;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::clock::now_seconds;
use engine::operators::{Identity, Operators};
use model::{Code, Refusal, Sha256};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use config::IssuerConfig;
use config::StartError;
use config::http_client;

use self::access_token::AccessToken;
pub(crate) use self::access_token::MAX_TOKEN_BYTES;
use self::fetch::Endpoints;
use self::keys::IssuerKey;

/// How long a request to the issuer may take, and how long all requests for its keys may take together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often the keys are fetched anew, which also says how long a withdrawn key stays valid.
const RENEWAL: Duration = Duration::from_mins(5);
/// The minimum time between two attempts to fetch keys, however many tokens name unknown ones.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// The issuer with its keys.
pub(crate) struct Issuer {
    pub(crate) config: IssuerConfig,
    http: reqwest::Client,
    keys: RwLock<Arc<FromIssuer>>,
    /// When the last attempt to fetch keys began. Held during an attempt.
    last_attempt: tokio::sync::Mutex<Option<Instant>>,
}

/// What the issuer has said of itself, and its keys.
#[derive(Default)]
struct FromIssuer {
    keys: Vec<IssuerKey>,
    /// Where people sign in, if the issuer says so.
    endpoints: Option<Endpoints>,
    /// Whether the issuer has answered at all.
    are_known: bool,
}

impl Issuer {
    /// Prepares the issuer. Nothing is fetched yet.
    ///
    /// # Errors
    ///
    /// If the TLS library fails.
    pub(crate) fn new(config: IssuerConfig) -> Result<Self, StartError> {
        let http = http_client::client_of(&config.url, TIMEOUT)
            .map_err(|error| StartError::failed("the issuer's client", &error.without_url()))?;
        let last_attempt = tokio::sync::Mutex::default();
        Ok(Self { config, http, keys: RwLock::default(), last_attempt })
    }

    /// Returns the caller of an access token with the hash `hash`; `None` if it is none, or not one for this service.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` as long as the issuer has never given its keys.
    pub(crate) async fn identify(
        self: &Arc<Self>,
        operators: &Arc<Operators>,
        token: &str,
        hash: &Sha256,
    ) -> Result<Option<Identity>, Refusal> {
        if !access_token::has_form(token) {
            return Ok(None);
        }
        if let Some(known) = operators.identify_issued(hash) {
            return Ok(Some(known));
        }
        // Claims are checked first: a token that is for nobody here makes no request to the issuer.
        let Some(token) = AccessToken::parse(token) else { return Ok(None) };
        let Some(caller) = token.caller(&self.config, now_seconds()) else { return Ok(None) };
        let mut keys = self.current();
        if !keys.keys.iter().any(|key| token.names(key)) {
            keys = self.renew(operators, &keys).await;
        }
        if !keys.are_known {
            return Err(unavailable());
        }
        let signed = keys.keys.iter().find(|key| token.names(key) && token.is_signed_by(key));
        Ok(signed.and_then(|key| operators.admit_issued(hash, key.fingerprint, caller)))
    }

    /// Keeps the keys current until the service shuts down.
    pub(crate) async fn keep_current(self: Arc<Self>, operators: Arc<Operators>, shutdown: CancellationToken) {
        loop {
            self.renew(&operators, &self.current()).await;
            tokio::select! {
                () = tokio::time::sleep(RENEWAL) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn current(&self) -> Arc<FromIssuer> {
        Arc::clone(&self.keys.read())
    }

    /// Fetches the keys again, unless others than `known` were fetched meanwhile or the last attempt was a moment ago. Returns the
    /// present ones. An attempt goes on if its request is given up, or callers who leave at once would keep others from new keys.
    async fn renew(self: &Arc<Self>, operators: &Arc<Operators>, known: &Arc<FromIssuer>) -> Arc<FromIssuer> {
        let (issuer, operators, known) = (Arc::clone(self), Arc::clone(operators), Arc::clone(known));
        let attempt = tokio::spawn(async move {
            let mut last_attempt = issuer.last_attempt.lock().await;
            let is_early = last_attempt.is_some_and(|at| at.elapsed() < MIN_INTERVAL);
            if !is_early && Arc::ptr_eq(&issuer.current(), &known) {
                *last_attempt = Some(Instant::now());
                issuer.fetch(&operators).await;
            }
        });
        if attempt.await.is_err() {
            tracing::error!("the task that fetches the issuer's keys has failed");
        }
        self.current()
    }

    async fn fetch(&self, operators: &Operators) {
        match tokio::time::timeout(TIMEOUT, fetch::keys(&self.http, &self.config)).await {
            Ok(Ok((keys, endpoints))) => {
                tracing::debug!(keys = keys.len(), "fetched the issuer's keys");
                let keys = Arc::new(FromIssuer { keys, endpoints, are_known: true });
                *self.keys.write() = Arc::clone(&keys);
                operators.retain_issued(|known| keys.keys.iter().any(|key| key.fingerprint == *known));
            }
            Ok(Err(error)) => {
                let error = &error as &dyn Error;
                tracing::warn!(error, "failed to fetch the issuer's keys; the last ones stay valid");
            }
            Err(_) => tracing::warn!("the issuer did not give its keys in time; the last ones stay valid"),
        }
    }
}

fn unavailable() -> Refusal {
    let message = "the issuer of the token has not given its keys yet";
    Refusal::new(Code::Unavailable, message, "Repeat the request in a moment; if it fails again, tell the operator.")
}
