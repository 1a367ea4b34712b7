//! Samples of a round, and statistics over several rounds.

use std::time::Duration;

use serde::Serialize;

/// The measurements of a round.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// The duration of each call, in the order of completion.
    pub(crate) latencies: Vec<Duration>,
    /// The duration of the round.
    pub(crate) elapsed: Duration,
    /// The processor time of the measured process during the round, if known.
    pub(crate) cpu_time: Option<Duration>,
    /// How often a call counts in the rate: the rows of a grouped commit, else 1.
    pub(crate) weight: u32,
}

impl Sample {
    /// Returns the calls per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.elapsed.is_zero() {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let calls = self.latencies.len() as f64;
        calls * f64::from(self.weight.max(1)) / self.elapsed.as_secs_f64()
    }

    /// Returns the latency of the percentile `share` (0 to 1) in milliseconds; 0 without calls.
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

    /// Returns the processor time per call in microseconds.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let calls = self.latencies.len() as f64 * f64::from(self.weight.max(1));
        self.cpu_time.filter(|_| calls > 0.0).map(|used| used.as_secs_f64() * 1e6 / calls)
    }
}

/// The median and the range of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The lowest value.
    pub(crate) min: f64,
    /// The highest value.
    pub(crate) max: f64,
}

impl Spread {
    /// Returns the statistics of a single value.
    pub(crate) fn single(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }

    /// Returns the statistics of `values`, or `None` without values.
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
        Sample { latencies, elapsed: Duration::from_secs(2), cpu_time: Some(Duration::from_secs(1)), weight: 1 }
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
        assert_eq!(calls.cpu_micros(), Some(20_000.0));
        calls.weight = 64;
        assert_eq!(Spread::of([calls.rate()]), Spread::of([1600.0]));
    }

    #[test]
    fn a_spread_has_the_median_and_the_range() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
