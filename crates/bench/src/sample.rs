//! What one round measured, and what several rounds say together.

use std::time::Duration;

use serde::Serialize;

/// What one round measured.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// How long each call took, in the order that they ended.
    pub(crate) latencies: Vec<Duration>,
    /// How long the round took.
    pub(crate) elapsed: Duration,
    /// Processor time that the measured process used meanwhile, where it can be told.
    pub(crate) processor: Option<Duration>,
    /// What one call counts as: rows of a grouped commit, else 1.
    pub(crate) weight: u32,
}

impl Sample {
    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        if self.elapsed.is_zero() {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let calls = self.latencies.len() as f64;
        calls * f64::from(self.weight.max(1)) / self.elapsed.as_secs_f64()
    }

    /// The latency that `share` of the calls stay within, in milliseconds; 0 without calls.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index into a list that is far shorter than 2^52"
        )]
        let index = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(index.saturating_sub(1)).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    }

    /// Processor time for each call, in microseconds.
    pub(crate) fn processor_micros(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let calls = self.latencies.len() as f64 * f64::from(self.weight.max(1));
        self.processor.filter(|_| calls > 0.0).map(|used| used.as_secs_f64() * 1e6 / calls)
    }
}

/// The middle and the ends of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Half of the rounds are below.
    pub(crate) median: f64,
    /// The lowest round.
    pub(crate) min: f64,
    /// The highest round.
    pub(crate) max: f64,
}

impl Spread {
    /// Of `values`; `None` where there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: impl IntoIterator<Item = u64>) -> Sample {
        let latencies = millis.into_iter().map(Duration::from_millis).collect();
        Sample { latencies, elapsed: Duration::from_secs(2), processor: Some(Duration::from_secs(1)), weight: 1 }
    }

    #[test]
    fn percentiles_are_taken_from_the_sorted_calls() {
        let calls = sample((1..=100).rev());
        assert_eq!([0.5, 0.99, 1.0].map(|share| format!("{:.1}", calls.percentile(share))), ["50.0", "99.0", "100.0"]);
        assert_eq!([sample([7]), sample([])].map(|calls| format!("{:.1}", calls.percentile(0.5))), ["7.0", "0.0"]);
    }

    #[test]
    fn a_rate_counts_the_weight_of_a_call() {
        let mut calls = sample([1; 50]);
        assert_eq!(Spread::of([calls.rate()]), Spread::of([25.0]));
        assert_eq!(calls.processor_micros(), Some(20_000.0));
        calls.weight = 64;
        assert_eq!(Spread::of([calls.rate()]), Spread::of([1600.0]));
    }

    #[test]
    fn a_spread_is_the_median_between_the_ends() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
