//! How much one token may: requests a second, and requests at a time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};
use model::{Code, Refusal, Sha256};

use crate::config::Limits;
use crate::telemetry;

/// Counts every token's requests.
pub(crate) struct Throttle {
    rate: Option<DefaultKeyedRateLimiter<Sha256>>,
    concurrency: usize,
    under_way: Arc<Mutex<HashMap<Sha256, usize>>>,
}

/// A request under way; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    token: Sha256,
    under_way: Arc<Mutex<HashMap<Sha256, usize>>>,
}

impl Throttle {
    /// With the bounds of the settings.
    pub(crate) fn new(limits: &Limits) -> Self {
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
    pub(crate) fn enter(&self, token: Sha256) -> Result<Turn, Refusal> {
        if let Some(rate) = &self.rate
            && let Err(refused) = rate.check_key(&token)
        {
            return Err(limited(
                "the token makes too many requests",
                refused.wait_time_from(DefaultClock::default().now()),
            ));
        }
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let count = under_way.entry(token).or_default();
        if *count >= self.concurrency {
            return Err(limited("the token has too many requests under way", Duration::from_secs(1)));
        }
        *count += 1;
        drop(under_way);
        Ok(Turn { token, under_way: Arc::clone(&self.under_way) })
    }

    /// Forgets tokens that have been quiet. Called now and then.
    pub(crate) fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = under_way.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.token);
            }
        }
    }
}

fn limited(message: &str, wait: Duration) -> Refusal {
    telemetry::rate_limited();
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Refusal::new(Code::RateLimited, message, "Wait for the seconds that Retry-After says, then go on.")
        .about(|about| about.retry_after_seconds = Some(seconds.max(1)))
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
        assert_eq!((refusal.code, refusal.about.retry_after_seconds), (Code::RateLimited, Some(1)));
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
}
