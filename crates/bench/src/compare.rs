//! Measures a subject and its baselines in alternating rounds.

use std::time::Duration;

use crate::report::{BaselineFigure, Row, Target};
use crate::sample::{Sample, Spread};

/// Something that can be measured repeatedly.
pub(crate) trait Subject {
    /// Returns its name in the report.
    fn name(&self) -> &str;

    /// Calls for `time`, with `concurrency` concurrent calls.
    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample>;
}

/// A baseline and the target of the ratio to it, if any.
pub(crate) type Baseline<'a> = (&'a mut dyn Subject, Option<Target>);

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// Duration of a round.
    pub(crate) time: Duration,
    /// Number of concurrent calls.
    pub(crate) concurrency: usize,
    /// Whether the baselines are left out.
    pub(crate) alone: bool,
    /// The target of the subject itself.
    pub(crate) target: Option<Target>,
}

/// Measures `subject` and each of `baselines` once per round.
///
/// # Errors
///
/// The first error of a call.
pub(crate) fn compare(plan: Plan, subject: &mut dyn Subject, baselines: &mut [Baseline<'_>]) -> anyhow::Result<Row> {
    let baselines = if plan.alone { &mut [] } else { baselines };
    let (mut own, mut others) = (Vec::new(), vec![Vec::new(); baselines.len()]);
    for _ in 0..plan.rounds.max(1) {
        own.push(Figures::of(&subject.round(plan.concurrency, plan.time)?));
        for ((baseline, _), figures) in baselines.iter_mut().zip(&mut others) {
            figures.push(Figures::of(&baseline.round(plan.concurrency, plan.time)?));
        }
    }
    let figures = baselines.iter().zip(&others).filter_map(|((baseline, target), figures)| {
        Some(BaselineFigure {
            name: baseline.name().to_owned(),
            value: Spread::of(figures.iter().map(|figures| figures.rate))?,
            p50_ms: Spread::of(figures.iter().map(|figures| figures.p50))?.median,
            cpu_micros: Spread::of(figures.iter().filter_map(|figures| figures.cpu_micros)).map(|all| all.median),
            ratio: Spread::of(
                own.iter().zip(figures).map(|(own, other)| ratio(*target, plan.concurrency, own, other)),
            )?,
            target: *target,
        })
    });
    let figures = figures.collect();
    let of = |figure: fn(&Figures) -> f64| Spread::of(own.iter().map(figure));
    Ok(Row {
        name: subject.name().to_owned(),
        concurrency: Some(plan.concurrency),
        unit: "/s",
        value: of(|figures| figures.rate).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 }),
        p50_ms: of(|figures| figures.p50),
        p99_ms: of(|figures| figures.p99),
        cpu_micros: Spread::of(own.iter().filter_map(|figures| figures.cpu_micros)).map(|all| all.median),
        target: plan.target,
        baselines: figures,
    })
}

/// The figures of a round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    cpu_micros: Option<f64>,
}

impl Figures {
    fn of(sample: &Sample) -> Self {
        Self {
            rate: sample.rate(),
            p50: sample.percentile(0.5),
            p99: sample.percentile(0.99),
            cpu_micros: sample.cpu_micros(),
        }
    }
}

/// Returns the ratio of the subject to a baseline: of the rates, or of the times if the target is a time. Times are medians for
/// sequential calls, means for concurrent ones, and 99th percentiles for tail targets.
fn ratio(target: Option<Target>, concurrency: usize, own: &Figures, baseline: &Figures) -> f64 {
    match target {
        Some(Target::TimesTheTime(_)) if concurrency == 1 => own.p50 / baseline.p50,
        Some(Target::TimesTheTime(_)) => baseline.rate / own.rate,
        Some(Target::TimesTheTail(_)) => own.p99 / baseline.p99,
        Some(Target::TimesTheRate(_) | Target::Millis(_) | Target::Megabytes(_) | Target::Kilobytes(_)) | None => {
            own.rate / baseline.rate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Constant(&'static str, Duration);

    impl Subject for Constant {
        fn name(&self) -> &str {
            self.0
        }

        fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
            let calls = time.as_micros() / self.1.as_micros() * concurrency as u128;
            let latencies = vec![self.1; usize::try_from(calls)?];
            Ok(Sample { latencies, elapsed: time, cpu_time: None, weight: 1 })
        }
    }

    fn row(concurrency: usize, target: Target) -> Row {
        let mut slow = Constant("slow", Duration::from_millis(4));
        let mut quick = Constant("quick", Duration::from_millis(2));
        let plan = Plan { rounds: 3, time: Duration::from_secs(1), concurrency, alone: false, target: None };
        compare(plan, &mut slow, &mut [(&mut quick, Some(target))]).unwrap()
    }

    #[test]
    fn a_ratio_of_rates_divides_by_the_baseline() {
        let row = row(16, Target::TimesTheRate(0.7));
        assert_eq!(
            (row.value.median, row.baselines[0].value.median, row.baselines[0].ratio.median),
            (4000.0, 8000.0, 0.5)
        );
    }

    #[test]
    fn a_ratio_of_times_is_above_one_if_the_subject_is_slower() {
        for concurrency in [1, 16] {
            let ratio = row(concurrency, Target::TimesTheTime(1.5)).baselines[0].ratio;
            assert_eq!(ratio, Spread { median: 2.0, min: 2.0, max: 2.0 });
        }
    }
}
