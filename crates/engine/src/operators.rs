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

use model::{Refusal, Sha256};

use crate::admission::rate_limit::RateLimiter;
use crate::engine::Engine;

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

/// Who may call: operators, tokens, and their rates.
pub struct Operators {
    engine: Arc<Engine>,
    /// Rate and concurrency limits by token.
    rate_limiter: RateLimiter,
}

impl Operators {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let rate_limiter = RateLimiter::new(&engine.limits, engine.pools.request.clone());
        Self { engine, rate_limiter }
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

    /// Counts a failed authentication of an address.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the address has failed too often.
    pub fn fail(&self, peer: IpAddr) -> Result<(), Refusal> {
        self.engine.tokens.fail(peer)
    }

    /// Replaces the tokens of the configuration.
    ///
    /// # Errors
    ///
    /// If an operator of the configuration has the name of a stored one. Nothing is replaced then.
    #[boxed]
    pub async fn reconfigure(&self, configured: ConfiguredTokens) -> Result<(), LoadError> {
        self.engine.tokens.reconfigure(configured).await
    }

    /// Removes the state of idle tokens and addresses. To be called periodically.
    pub fn tidy(&self) {
        self.rate_limiter.tidy();
        self.engine.tokens.tidy();
    }
}
