//! How much one token may: requests a second, and requests at a time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use model::{Code, Refusal, Sha256};

use crate::limits::Limits;
use crate::metrics;

/// Counts every token's requests.
pub struct Throttle {
    rate: Option<DefaultKeyedRateLimiter<Sha256>>,
    concurrency: usize,
    under_way: UnderWay,
}

/// What every token has under way.
type UnderWay = Arc<Mutex<HashMap<Sha256, Count>>>;

#[derive(Debug, Default)]
struct Count {
    /// Streams among them.
    requests: usize,
    streams: usize,
}

/// A request under way; it counts until this is dropped.
#[derive(Debug)]
pub struct Turn {
    token: Sha256,
    /// How many streams the token may have open.
    most_streams: usize,
    under_way: UnderWay,
}

/// A stream that is open; it counts as a request until this is dropped.
#[derive(Debug)]
pub struct OpenStream(Turn);

impl Throttle {
    /// With the bounds of the settings.
    pub fn new(limits: &Limits) -> Self {
        let quota = limits.rate.and_then(|(rate, burst)| {
            Some(Quota::per_second(NonZeroU32::new(rate)?).allow_burst(NonZeroU32::new(burst)?))
        });
        Self {
            rate: quota.map(DefaultKeyedRateLimiter::keyed),
            concurrency: limits.token_concurrency,
            under_way: Arc::default(),
        }
    }

    /// Counts a request of the token with this hash.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub fn enter(&self, token: Sha256) -> Result<Turn, Refusal> {
        if let Some(rate) = &self.rate
            && let Err(refused) = rate.check_key(&token)
        {
            return Err(limited(
                "the token makes too many requests",
                refused.wait_time_from(DefaultClock::default().now()),
            ));
        }
        let mut under_way = lock(&self.under_way);
        let count = under_way.entry(token).or_default();
        if count.requests >= self.concurrency {
            return Err(limited("the token has too many requests under way", Duration::from_secs(1)));
        }
        count.requests += 1;
        drop(under_way);
        let most_streams = (self.concurrency / 2).max(1);
        Ok(Turn { token, most_streams, under_way: Arc::clone(&self.under_way) })
    }

    /// Forgets tokens that have been quiet. Called now and then.
    pub fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Turn {
    /// The hash of the token that the request came with.
    pub fn token(&self) -> &Sha256 {
        &self.token
    }

    /// The same request as a stream, which counts for as long as it is open. Streams take up half of what a token may have
    /// under way at most, so that calls still pass.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED`, with the seconds to wait.
    pub fn into_stream(self) -> Result<OpenStream, Refusal> {
        let mut under_way = lock(&self.under_way);
        let count = under_way.entry(self.token).or_default();
        if count.streams >= self.most_streams {
            drop(under_way);
            let refusal = limited("the token has too many streams open", Duration::from_secs(1));
            return Err(refusal.with_details(|details| details.limit = Some(self.most_streams as u64)));
        }
        count.streams += 1;
        drop(under_way);
        Ok(OpenStream(self))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.0.under_way).get_mut(&self.0.token) {
            count.streams -= 1;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut under_way = lock(&self.under_way);
        if let Some(count) = under_way.get_mut(&self.token) {
            count.requests -= 1;
            if count.requests == 0 {
                under_way.remove(&self.token);
            }
        }
    }
}

fn lock(under_way: &UnderWay) -> MutexGuard<'_, HashMap<Sha256, Count>> {
    // Nothing panics while it holds the lock.
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Too many requests, of which another makes sense after `wait`.
pub fn limited(message: &str, wait: Duration) -> Refusal {
    metrics::rate_limited();
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Refusal::new(Code::RateLimited, message, "Wait for the seconds that Retry-After says, then go on.")
        .with_details(|details| details.retry_after_seconds = Some(seconds.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(rate: Option<(u32, u32)>, concurrency: usize) -> Throttle {
        let quota = rate.map(|(rate, burst)| {
            Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(NonZeroU32::new(burst).unwrap())
        });
        Throttle { rate: quota.map(DefaultKeyedRateLimiter::keyed), concurrency, under_way: Arc::default() }
    }

    #[test]
    fn a_burst_is_let_through_and_then_told_to_wait() {
        let throttle = throttle(Some((1, 3)), 100);
        let (busy, quiet) = (Sha256::of(b"busy"), Sha256::of(b"quiet"));
        for _ in 0..3 {
            assert!(throttle.enter(busy).is_ok());
        }
        let refusal = throttle.enter(busy).unwrap_err();
        assert_eq!((refusal.code, refusal.details.retry_after_seconds), (Code::RateLimited, Some(1)));
        assert!(throttle.enter(quiet).is_ok(), "another token is not concerned");
    }

    #[test]
    fn requests_at_a_time_are_counted_until_they_end() {
        let throttle = throttle(None, 2);
        let token = Sha256::of(b"token");
        let first = throttle.enter(token).unwrap();
        let second = throttle.enter(token).unwrap();
        assert_eq!(throttle.enter(token).unwrap_err().code, Code::RateLimited);
        drop(first);
        assert!(throttle.enter(token).is_ok());
        drop(second);
        assert!(throttle.under_way.lock().unwrap().is_empty(), "nothing is kept of a token that is quiet");
    }

    #[test]
    fn streams_count_while_they_are_open_and_leave_half_to_calls() {
        let throttle = throttle(None, 5);
        let token = Sha256::of(b"token");
        let open = || throttle.enter(token).unwrap().into_stream();
        let (first, second) = (open().unwrap(), open().unwrap());
        let refusal = open().unwrap_err();
        assert_eq!((refusal.code, refusal.details.limit), (Code::RateLimited, Some(2)));
        let calls: Vec<_> = (0..3).map(|_| throttle.enter(token).unwrap()).collect();
        assert_eq!(throttle.enter(token).unwrap_err().code, Code::RateLimited, "streams are requests too");
        drop(first);
        let third = throttle.enter(token).unwrap().into_stream().unwrap();
        drop((calls, second, third));
        assert!(throttle.under_way.lock().unwrap().is_empty(), "nothing is kept of a token that is quiet");
    }
}
