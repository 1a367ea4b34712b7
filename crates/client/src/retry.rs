//! When and how often a request is repeated.

use std::time::Duration;

/// When a request is repeated: after exponentially growing delays with jitter, or after the time that the service asks for.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// How often a request is sent at most; 1 never repeats.
    pub max_attempts: u32,
    /// The delay before the first repetition. It doubles with each further one.
    pub base_delay: Duration,
    /// The longest delay. A service that asks for more gets no repetition.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts within about ten seconds, or half a minute each if the service asks for it.
    fn default() -> Self {
        Self { max_attempts: 5, base_delay: Duration::from_millis(250), max_delay: Duration::from_secs(30) }
    }
}

impl RetryPolicy {
    /// Never repeats a request.
    pub const NEVER: Self = Self { max_attempts: 1, base_delay: Duration::ZERO, max_delay: Duration::ZERO };

    /// Returns the delay before the attempt after `attempts` failed ones; `None` if the service asks for a longer one than allowed.
    pub(crate) fn delay(&self, attempts: u32, asked: Option<Duration>) -> Option<Duration> {
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX));
        // Between half and all of it, so that clients that failed together do not return together.
        let jittered = doubled.min(self.max_delay).mul_f64(0.5 + 0.5 * rand::random::<f64>());
        match asked {
            Some(asked) => (asked <= self.max_delay).then(|| asked.max(jittered)),
            None => Some(jittered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_longest_and_follow_the_service() {
        let policy = RetryPolicy::default();
        for (attempts, longest) in [(1, 250), (2, 500), (3, 1000), (9, 30_000), (60, 30_000)] {
            let delay = policy.delay(attempts, None).unwrap();
            let longest = Duration::from_millis(longest);
            assert!(delay <= longest && delay >= longest / 2, "{attempts}: {delay:?}");
        }
        assert!(policy.delay(1, Some(Duration::from_secs(7))).unwrap() >= Duration::from_secs(7));
        assert_eq!(policy.delay(1, Some(Duration::from_secs(31))), None);
    }
}
