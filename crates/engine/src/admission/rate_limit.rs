//! Limits by token: requests per second, concurrent requests and open streams.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use model::{Code, Refusal, Sha256};
use parking_lot::Mutex;

use crate::limits::Limits;
use crate::metrics;

/// Limits the requests of every token.
pub struct RateLimiter {
    rate: Option<DefaultKeyedRateLimiter<Sha256>>,
    concurrency: usize,
    in_flight: InFlight,
}

/// The requests in flight, by hash of the token.
type InFlight = Arc<Mutex<HashMap<Sha256, Count>>>;

#[derive(Debug, Default)]
struct Count {
    /// Includes the streams.
    requests: usize,
    streams: usize,
}

/// A request in flight. It counts until this is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    token: Sha256,
    max_streams: usize,
    in_flight: InFlight,
}

/// An open stream. It counts as a request until this is dropped.
#[derive(Debug)]
pub struct OpenStream(RequestPermit);

impl RateLimiter {
    /// Creates a limiter with the limits of the settings.
    pub fn new(limits: &Limits) -> Self {
        let quota = limits.rate.and_then(|(rate, burst)| {
            Some(Quota::per_second(NonZeroU32::new(rate)?).allow_burst(NonZeroU32::new(burst)?))
        });
        Self {
            rate: quota.map(DefaultKeyedRateLimiter::keyed),
            concurrency: limits.token_concurrency,
            in_flight: Arc::default(),
        }
    }

    /// Counts a request of the token with this hash.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub fn acquire(&self, token: Sha256) -> Result<RequestPermit, Refusal> {
        if let Some(rate) = &self.rate
            && let Err(refused) = rate.check_key(&token)
        {
            let wait = refused.wait_time_from(DefaultClock::default().now());
            return Err(limited("the token makes too many requests", wait));
        }
        let mut in_flight = self.in_flight.lock();
        let count = in_flight.entry(token).or_default();
        if count.requests >= self.concurrency {
            return Err(limited("the token has too many concurrent requests", Duration::from_secs(1)));
        }
        count.requests += 1;
        drop(in_flight);
        let max_streams = (self.concurrency / 2).max(1);
        Ok(RequestPermit { token, max_streams, in_flight: Arc::clone(&self.in_flight) })
    }

    /// Removes the state of idle tokens. To be called periodically.
    pub fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl RequestPermit {
    /// The hash of the request's token.
    pub fn token(&self) -> &Sha256 {
        &self.token
    }

    /// Turns the request into a stream. Streams use at most half of a token's concurrent requests, so that calls still pass.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub fn into_stream(self) -> Result<OpenStream, Refusal> {
        let mut in_flight = self.in_flight.lock();
        let count = in_flight.entry(self.token).or_default();
        if count.streams >= self.max_streams {
            drop(in_flight);
            let refusal = limited("the token has too many open streams", Duration::from_secs(1));
            return Err(refusal.with_details(|details| details.limit = Some(self.max_streams as u64)));
        }
        count.streams += 1;
        drop(in_flight);
        Ok(OpenStream(self))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(count) = self.0.in_flight.lock().get_mut(&self.0.token) {
            count.streams -= 1;
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.lock();
        if let Some(count) = in_flight.get_mut(&self.token) {
            count.requests -= 1;
            if count.requests == 0 {
                in_flight.remove(&self.token);
            }
        }
    }
}

/// A refusal of too many requests. The next one can succeed after `wait`.
pub(crate) fn limited(message: &str, wait: Duration) -> Refusal {
    metrics::rate_limited();
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Refusal::new(Code::RateLimited, message, "Wait for the time in Retry-After, then continue.")
        .with_details(|details| details.retry_after_seconds = Some(seconds.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter_of(rate: Option<(u32, u32)>, concurrency: usize) -> RateLimiter {
        let quota = rate.map(|(rate, burst)| {
            Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(NonZeroU32::new(burst).unwrap())
        });
        RateLimiter { rate: quota.map(DefaultKeyedRateLimiter::keyed), concurrency, in_flight: Arc::default() }
    }

    #[test]
    fn a_burst_passes_and_the_next_request_is_refused() {
        let limiter = limiter_of(Some((1, 3)), 100);
        let (busy, quiet) = (Sha256::of(b"busy"), Sha256::of(b"quiet"));
        for _ in 0..3 {
            assert!(limiter.acquire(busy).is_ok());
        }
        let refusal = limiter.acquire(busy).unwrap_err();
        assert_eq!((refusal.code, refusal.details.retry_after_seconds), (Code::RateLimited, Some(1)));
        assert!(limiter.acquire(quiet).is_ok(), "another token is not affected");
    }

    #[test]
    fn requests_at_a_time_are_counted_until_they_end() {
        let limiter = limiter_of(None, 2);
        let token = Sha256::of(b"token");
        let first = limiter.acquire(token).unwrap();
        let second = limiter.acquire(token).unwrap();
        assert_eq!(limiter.acquire(token).unwrap_err().code, Code::RateLimited);
        drop(first);
        assert!(limiter.acquire(token).is_ok());
        drop(second);
        assert!(limiter.in_flight.lock().is_empty(), "an idle token leaves no entry");
    }

    #[test]
    fn streams_count_while_they_are_open_and_leave_half_to_calls() {
        let limiter = limiter_of(None, 5);
        let token = Sha256::of(b"token");
        let open = || limiter.acquire(token).unwrap().into_stream();
        let (first, second) = (open().unwrap(), open().unwrap());
        let refusal = open().unwrap_err();
        assert_eq!((refusal.code, refusal.details.limit), (Code::RateLimited, Some(2)));
        let calls: Vec<_> = (0..3).map(|_| limiter.acquire(token).unwrap()).collect();
        assert_eq!(limiter.acquire(token).unwrap_err().code, Code::RateLimited, "streams are requests too");
        drop(first);
        let third = limiter.acquire(token).unwrap().into_stream().unwrap();
        drop((calls, second, third));
        assert!(limiter.in_flight.lock().is_empty(), "an idle token leaves no entry");
    }
}
