//! Limits of requests: per second by token, and at a time by the shares of the pools of requests and streams.

use std::time::Duration;

use model::{Code, Refusal, Sha256};
use shared_pool::{Denied, Parties, Permit, SharedPool};

use crate::admission::keyed_rate::KeyedRate;
use crate::admission::pools::no_permit;
use crate::limits::Limits;
use crate::metrics;

/// Limits the requests of every token.
pub(crate) struct RateLimiter {
    rate: Option<Rate>,
    requests: SharedPool,
}

/// The rate limit of every token.
struct Rate {
    per_second: u32,
    burst: u32,
    limiter: KeyedRate<Sha256>,
}

/// The state of a token's rate limit after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateState {
    /// Requests that the token may send at once.
    pub remaining: u32,
    /// Seconds until that is the whole burst again; after a refusal, until the next request can succeed.
    pub reset_seconds: u64,
}

/// A request in flight. It counts until this is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    token: Sha256,
    _share: Permit,
}

/// An open stream. It counts as a request until this is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop")]
pub struct OpenStream(RequestPermit, Permit);

impl RateLimiter {
    /// Creates a limiter with the limits of the settings, for requests that share `requests`.
    pub(crate) fn new(limits: &Limits, requests: SharedPool) -> Self {
        let rate = limits.rate.filter(|(per_second, burst)| *per_second > 0 && *burst > 0);
        Self { rate: rate.map(Rate::new), requests }
    }

    /// Counts a request of the token with this hash. If there is a rate limit, passes its state to `observe`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub(crate) fn acquire(&self, token: Sha256, observe: impl FnOnce(RateState)) -> Result<RequestPermit, Refusal> {
        if let Some(rate) = &self.rate {
            match rate.count(token, 1) {
                Ok(state) => observe(state),
                Err(wait) => {
                    observe(RateState { remaining: 0, reset_seconds: seconds_up(wait) });
                    return Err(limited("the token makes too many requests", wait));
                }
            }
        }
        let share = take_share(&self.requests, "concurrent requests", "requests")?;
        Ok(RequestPermit { token, _share: share })
    }

    /// Counts `calls` more of a request of the token with this hash, which are several calls. If there is a rate limit, passes its
    /// state to `observe`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait. Nothing is counted then.
    pub(crate) fn charge(&self, token: &Sha256, calls: usize, observe: impl FnOnce(RateState)) -> Result<(), Refusal> {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let Some(rate) = &self.rate else { return Ok(()) };
        if calls >= rate.burst {
            let (limit, actual) = (u64::from(rate.burst), u64::from(calls) + 1);
            let message = format!("the request has {actual} calls; the rate limit permits {limit} at once");
            let refusal = Refusal::new(Code::RateLimited, message, "Split the calls into several requests.");
            return Err(refusal.with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual))));
        }
        match rate.count(*token, calls) {
            Ok(state) => observe(state),
            Err(wait) => {
                observe(RateState { remaining: 0, reset_seconds: seconds_up(wait) });
                return Err(limited("the token makes too many calls: a request with several counts as so many", wait));
            }
        }
        Ok(())
    }

    /// Removes the state of idle tokens. To be called periodically.
    pub(crate) fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.limiter.tidy();
        }
    }
}

impl Rate {
    fn new((per_second, burst): (u32, u32)) -> Self {
        Self { per_second, burst, limiter: KeyedRate::new(Duration::from_secs(1) / per_second, burst) }
    }

    /// Counts calls. Returns the state, or the time to wait.
    fn count(&self, token: Sha256, calls: u32) -> Result<RateState, Duration> {
        let remaining = self.limiter.count(token, calls)?;
        let used = self.burst.saturating_sub(remaining);
        Ok(RateState { remaining, reset_seconds: used.div_ceil(self.per_second).into() })
    }
}

impl RequestPermit {
    /// Returns the hash of the request's token.
    pub fn token(&self) -> &Sha256 {
        &self.token
    }

    /// Turns the request into a stream of the pool `streams`, which is half of that of requests, so that calls still pass.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait; `UNAVAILABLE` if others use the pool.
    pub fn into_stream(self, streams: &SharedPool) -> Result<OpenStream, Refusal> {
        let permit = take_share(streams, "open streams", "event streams")?;
        metrics::add_streams(1.0);
        Ok(OpenStream(self, permit))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::add_streams(-1.0);
    }
}

/// Takes one of `pool` for the current request.
fn take_share(pool: &SharedPool, own: &str, all: &str) -> Result<Permit, Refusal> {
    pool.try_acquire(Parties::current(), 1).map_err(|denied| match denied {
        Denied::OwnShare => limited(&format!("the token or its run has too many {own}"), Duration::from_secs(1))
            .with_details(|details| details.limit = Some(pool.share())),
        Denied::Exhausted => no_permit(all, Duration::ZERO),
    })
}

/// A refusal of too many requests. The next one can succeed after `wait`.
pub(crate) fn limited(message: &str, wait: Duration) -> Refusal {
    metrics::rate_limited();
    let seconds = seconds_up(wait);
    Refusal::new(Code::RateLimited, message, "Wait for the time in Retry-After, then continue.")
        .with_details(|details| details.retry_after_seconds = Some(seconds))
}

/// Whole seconds, rounded up, at least one.
fn seconds_up(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use shared_pool::Party;

    use super::*;

    fn limiter_of(rate: Option<(u32, u32)>, requests: u64) -> RateLimiter {
        RateLimiter { rate: rate.map(Rate::new), requests: SharedPool::new("request", requests) }
    }

    /// What a token does, whose requests count together.
    async fn by_token<T>(token: Sha256, work: impl FnOnce() -> T) -> T {
        Box::pin(Parties::one(Party::of("token", token.to_string())).scope(async { work() })).await
    }

    fn acquire(limiter: &RateLimiter, token: Sha256) -> Result<RequestPermit, Refusal> {
        limiter.acquire(token, |_| {})
    }

    #[test]
    fn a_burst_passes_and_the_next_request_is_refused() {
        let limiter = limiter_of(Some((1, 3)), 1024);
        let (busy, quiet) = (Sha256::of(b"busy"), Sha256::of(b"quiet"));
        for _ in 0..3 {
            assert!(acquire(&limiter, busy).is_ok());
        }
        let refusal = acquire(&limiter, busy).unwrap_err();
        assert_eq!((refusal.code, refusal.details.retry_after_seconds), (Code::RateLimited, Some(1)));
        assert!(acquire(&limiter, quiet).is_ok(), "another token is not affected");
    }

    #[test]
    fn the_state_of_the_rate_is_reported() {
        let limiter = limiter_of(Some((2, 5)), 1024);
        let token = Sha256::of(b"token");
        let mut states = Vec::new();
        for _ in 0..6 {
            drop(limiter.acquire(token, |state| states.push((state.remaining, state.reset_seconds))));
        }
        assert_eq!(states, [(4, 1), (3, 1), (2, 2), (1, 2), (0, 3), (0, 1)]);
        assert!(limiter_of(None, 1).acquire(token, |_| panic!("there is no rate limit")).is_ok());
    }

    #[test]
    fn a_request_of_several_calls_costs_all_of_them() {
        let limiter = limiter_of(Some((1, 10)), 1024);
        let token = Sha256::of(b"token");
        let charge = |calls: usize| limiter.charge(&token, calls, |_| {});
        drop(acquire(&limiter, token).unwrap());
        charge(5).unwrap();
        let refusal = charge(5).unwrap_err();
        assert_eq!((refusal.code, refusal.details.retry_after_seconds), (Code::RateLimited, Some(1)));
        charge(4).unwrap();
        assert_eq!(acquire(&limiter, token).unwrap_err().code, Code::RateLimited);
        let refusal = limiter.charge(&Sha256::of(b"other"), 10, |_| {}).unwrap_err();
        assert_eq!((refusal.details.limit, refusal.details.actual), (Some(10), Some(11)));
        limiter_of(None, 1).charge(&token, 1000, |_| panic!("there is no rate limit")).unwrap();
    }

    #[tokio::test]
    async fn requests_at_a_time_are_counted_until_they_end() {
        // A quarter of them is two.
        let limiter = limiter_of(None, 8);
        let token = Sha256::of(b"token");
        by_token(token, || {
            let first = acquire(&limiter, token).unwrap();
            let second = acquire(&limiter, token).unwrap();
            let refusal = acquire(&limiter, token).unwrap_err();
            assert_eq!((refusal.code, refusal.details.limit), (Code::RateLimited, Some(2)));
            drop(first);
            assert!(acquire(&limiter, token).is_ok());
            drop(second);
        })
        .await;
        assert_eq!(limiter.requests.free(), 8, "an idle token holds nothing");
    }

    #[tokio::test]
    async fn streams_count_while_they_are_open_and_leave_half_to_calls() {
        let limiter = limiter_of(None, 16);
        let token = Sha256::of(b"token");
        let streams = SharedPool::new("stream", 8);
        let open = || acquire(&limiter, token).unwrap().into_stream(&streams);
        by_token(token, || {
            let (first, second) = (open().unwrap(), open().unwrap());
            let refusal = open().unwrap_err();
            assert_eq!((refusal.code, refusal.details.limit), (Code::RateLimited, Some(2)));
            let calls: Vec<_> = (0..2).map(|_| acquire(&limiter, token).unwrap()).collect();
            assert_eq!(acquire(&limiter, token).unwrap_err().code, Code::RateLimited, "streams are requests too");
            drop((first, calls));
            let third = open().unwrap();
            drop((second, third));
        })
        .await;
        assert_eq!((limiter.requests.free(), streams.free()), (16, 8), "an idle token holds nothing");
    }
}
