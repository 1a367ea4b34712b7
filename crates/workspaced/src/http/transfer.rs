//! Minimum rates of uploads and downloads.

use std::time::Duration;

use config::http_limits::HttpLimits;

/// Stall timeouts over which a rate is measured.
const WINDOW: u32 = 4;

/// The slowest transfer that is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRate {
    /// Maximum time without progress.
    pub(crate) stall_timeout: Duration,
    /// Minimum rate, averaged over four stall timeouts of waiting.
    pub(crate) bytes_per_second: u64,
}

impl MinRate {
    /// Returns the minimum rate of the settings.
    pub(crate) fn of(limits: &HttpLimits) -> Self {
        Self { stall_timeout: limits.body_timeout, bytes_per_second: limits.min_bytes_per_second }
    }
}

/// Measures the rate of one transfer. Counts only the time spent waiting for the peer.
#[derive(Debug)]
pub(crate) struct RateMeter {
    min_rate: MinRate,
    waited: Duration,
    bytes: u64,
}

impl RateMeter {
    /// Starts measuring.
    pub(crate) fn new(min_rate: MinRate) -> Self {
        Self { min_rate, waited: Duration::ZERO, bytes: 0 }
    }

    /// Adds `bytes` for which the peer was waited for during `waited`. Returns whether the transfer is fast enough.
    pub(crate) fn record(&mut self, waited: Duration, bytes: u64) -> bool {
        self.waited += waited;
        self.bytes += bytes;
        if self.waited < self.min_rate.stall_timeout * WINDOW {
            return true;
        }
        let min_bytes = self.waited.as_secs().saturating_mul(self.min_rate.bytes_per_second);
        let is_fast_enough = self.bytes >= min_bytes;
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        is_fast_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_checked_over_each_window_of_waiting() {
        let rate = MinRate { stall_timeout: Duration::from_secs(1), bytes_per_second: 100 };
        let mut meter = RateMeter::new(rate);
        assert!(meter.record(Duration::ZERO, 1), "a peer that is never waited for has no rate");
        for _ in 0..3 {
            assert!(meter.record(Duration::from_secs(1), 0), "the window is not over");
        }
        assert!(meter.record(Duration::from_secs(1), 399));
        for _ in 0..3 {
            assert!(meter.record(Duration::from_secs(1), 99));
        }
        assert!(!meter.record(Duration::from_secs(1), 99));
    }
}
