//! The least rate of what comes in and goes out.

use std::time::Duration;

use engine::limits::Limits;

/// Body timeouts over which a rate is taken.
const WINDOW: u32 = 4;

/// How long a transfer may stand still, and how many bytes of it have to pass in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRate {
    /// The longest standstill.
    pub(crate) stall: Duration,
    /// The least rate.
    pub(crate) bytes_a_second: u64,
}

impl MinRate {
    /// The bounds of the settings.
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { stall: limits.body_timeout, bytes_a_second: limits.min_bytes_per_second }
    }
}

/// One transfer, measured. Only the time counts in which the other side was waited for.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: MinRate,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// A transfer that begins.
    pub(crate) fn new(rate: MinRate) -> Self {
        Self { rate, waited: Duration::ZERO, bytes: 0 }
    }

    /// Counts `bytes` for which the other side was waited for so long. False where the transfer is too slow.
    pub(crate) fn keeps_up(&mut self, waited: Duration, bytes: u64) -> bool {
        self.waited += waited;
        self.bytes += bytes;
        if self.waited < self.rate.stall * WINDOW {
            return true;
        }
        let least = self.waited.as_secs().saturating_mul(self.rate.bytes_a_second);
        let keeps_up = self.bytes >= least;
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        keeps_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_keeps_up_over_each_window_of_waiting() {
        let rate = MinRate { stall: Duration::from_secs(1), bytes_a_second: 100 };
        let mut pace = Pace::new(rate);
        assert!(pace.keeps_up(Duration::ZERO, 1), "who need not be waited for has no rate");
        for _ in 0..3 {
            assert!(pace.keeps_up(Duration::from_secs(1), 0), "a window is not over");
        }
        assert!(pace.keeps_up(Duration::from_secs(1), 399));
        for _ in 0..3 {
            assert!(pace.keeps_up(Duration::from_secs(1), 99));
        }
        assert!(!pace.keeps_up(Duration::from_secs(1), 99));
    }
}
