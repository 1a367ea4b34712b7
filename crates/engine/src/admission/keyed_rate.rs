//! A rate limit for each key: so much at once, and then one more in each interval.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Limits how often something happens with a key.
pub(super) struct KeyedRate<K> {
    interval: Duration,
    burst: u32,
    /// When the burst of a key is whole again.
    whole_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> KeyedRate<K> {
    /// Creates a limit of `burst` at once, and then of one in each `interval`.
    pub(super) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval: interval.max(Duration::from_nanos(1)), burst, whole_at: Mutex::default() }
    }

    /// Counts `count` of `key`. Returns how many more may follow at once.
    ///
    /// # Errors
    ///
    /// The time to wait. Nothing is counted then.
    pub(super) fn count(&self, key: K, count: u32) -> Result<u32, Duration> {
        self.count_at(Instant::now(), key, count)
    }

    fn count_at(&self, now: Instant, key: K, count: u32) -> Result<u32, Duration> {
        let mut whole_at = self.whole_at.lock();
        let before = whole_at.get(&key).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let (used, whole) = (before + self.interval * count, self.interval * self.burst);
        let left = whole.checked_sub(used).ok_or(used.saturating_sub(whole))?;
        whole_at.insert(key, now + used);
        Ok(u32::try_from(left.as_nanos() / self.interval.as_nanos()).unwrap_or(u32::MAX))
    }

    /// Removes the keys whose burst is whole. To be called periodically.
    pub(super) fn tidy(&self) {
        self.tidy_at(Instant::now());
    }

    fn tidy_at(&self, now: Instant) {
        let mut whole_at = self.whole_at.lock();
        whole_at.retain(|_, at| *at > now);
        whole_at.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_whole_again_after_as_many_intervals() {
        let (rate, start) = (KeyedRate::new(SECOND, 3), Instant::now());
        let count = |after: Duration, key, count| rate.count_at(start + after, key, count);
        assert_eq!(count(Duration::ZERO, "a", 2), Ok(1));
        assert_eq!(count(SECOND / 2, "a", 2), Err(SECOND / 2), "one has half of an interval to go");
        assert_eq!(count(SECOND / 2, "b", 3), Ok(0), "another key is not affected");
        assert_eq!(count(SECOND, "a", 2), Ok(0), "a refusal costs nothing");
        assert_eq!(count(SECOND * 3, "a", 1), Ok(1));
        assert_eq!(count(SECOND * 100, "a", 3), Ok(0), "no more than a burst is saved");
        assert_eq!(count(SECOND * 100, "a", 3), Err(SECOND * 3));
    }

    #[test]
    fn idle_keys_are_removed() {
        let (rate, start) = (KeyedRate::new(SECOND, 3), Instant::now());
        let keys = || rate.whole_at.lock().len();
        for key in 0..1000 {
            rate.count_at(start, key, 1).unwrap();
        }
        rate.count_at(start, 0, 1).unwrap();
        rate.tidy_at(start + SECOND);
        assert_eq!(keys(), 1);
        rate.tidy_at(start + SECOND * 2);
        assert_eq!(keys(), 0);
    }
}
