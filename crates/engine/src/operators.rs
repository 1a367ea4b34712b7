//! Operators and tokens: who may call, and how often. Operators are created, listed, revoked, their tokens replaced; each such change is a
//! record of the service's own chain.

mod authentication;
pub mod chain;
pub(crate) mod manage;
mod rotate;
mod sign_in;

use async_recursion::async_recursion as boxed;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::{Refusal, Sha256};

use crate::admission::rate_limit::{RateLimiter, limited};
use crate::admission::tokens::lookups::Lookups;
use crate::engine::Engine;
use crate::metrics;

pub use crate::admission::idempotency::KeyedRequest;
pub use crate::admission::operators::{AUDIT, LoadError, OPERATOR, OperatorIdentity, parse_name};
pub use crate::admission::pools::{operator_party, run_party, token_parties};
pub use crate::admission::rate_limit::{OpenStream, RateState, RequestPermit};
pub use crate::admission::tokens::{
    ConfiguredTokens, Identity, IssueTokenRequest, IssuedToken, TokenSettings, Tokens, network_of, store_first_token,
};
pub use authentication::issuer::IssuedCaller;
pub use manage::{CreateOperatorRequest, CreatedOperator};
pub use rotate::{RotateTokenRequest, TokenRotation};
pub use sign_in::SESSION_SECONDS;

/// The pause after a query for operators, which reads all of them.
const OPERATOR_PAUSE: Duration = Duration::from_millis(50);

/// Who may call: operators, tokens, and their rates.
pub struct Operators {
    engine: Arc<Engine>,
    /// Rate and concurrency limits by token.
    rate_limiter: RateLimiter,
    run_lookups: Lookups,
    /// An operator that another node has created is known after its look-up.
    operator_lookups: Lookups,
}

impl Operators {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let rate_limiter = RateLimiter::new(&engine.limits, engine.pools.request.clone());
        let of_runs = Arc::clone(&engine);
        let run_lookups = Lookups::start(Duration::ZERO, move |hashes| {
            let engine = Arc::clone(&of_runs);
            async move { engine.tokens.look_up(engine.ledger.as_ref(), &hashes).await }
        });
        let of_operators = Arc::clone(&engine);
        let operator_lookups = Lookups::start(OPERATOR_PAUSE, move |_| {
            let engine = Arc::clone(&of_operators);
            async move { engine.tokens.operators.refresh(engine.ledger.as_ref()).await.map(|()| Vec::new()) }
        });
        Self { engine, rate_limiter, run_lookups, operator_lookups }
    }

    /// Counts a request of the token with this hash. If there is a rate limit, passes its state to `observe`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub fn acquire(&self, token: Sha256, observe: impl FnOnce(RateState)) -> Result<RequestPermit, Refusal> {
        self.rate_limiter.acquire(token, observe)
    }

    /// Counts `calls` more of a request of the token with this hash, which are several calls. If there is a rate limit, passes its
    /// state to `observe`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait. Nothing is counted then.
    pub fn charge(&self, token: &Sha256, calls: usize, observe: impl FnOnce(RateState)) -> Result<(), Refusal> {
        self.rate_limiter.charge(token, calls, observe)
    }

    /// Turns a request into a stream.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait; `UNAVAILABLE` if others use all streams.
    pub fn open_stream(&self, permit: RequestPermit) -> Result<OpenStream, Refusal> {
        permit.into_stream(&self.engine.pools.stream)
    }

    /// Counts a request of an address without a valid token.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the address has failed too often.
    pub fn fail(&self, peer: IpAddr) -> Result<(), Refusal> {
        metrics::authentication_failed();
        let limited = |wait| limited("too many requests without a valid token come from this address", wait);
        self.engine.tokens.failures.count(peer).map_err(limited)
    }

    /// Replaces the tokens of the configuration. Without an operator token in `configured`, the present one stays. Afterwards
    /// requests with a token that is not among them are refused and its streams end; a call in progress is completed.
    ///
    /// # Errors
    ///
    /// If an operator of the configuration has the name of a stored one. Nothing is replaced then.
    #[boxed]
    pub async fn reconfigure(&self, configured: ConfiguredTokens) -> Result<(), LoadError> {
        let tokens = &self.engine.tokens;
        let orchestrate = configured.operator.unwrap_or_else(|| tokens.operators.built_in_sha256());
        tokens.operators.reconfigure(configured.identities(orchestrate)?).await?;
        tokens.announce_revocation();
        Ok(())
    }

    /// Removes the state of idle tokens and addresses. To be called periodically.
    pub fn tidy(&self) {
        self.rate_limiter.tidy();
        self.engine.tokens.failures.tidy();
    }
}
