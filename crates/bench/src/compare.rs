//! What is measured beside what, in turn.

use std::time::Duration;

use crate::report::{Beside, Row, Target};
use crate::sample::{Sample, Spread};

/// Something that can be measured again and again.
pub(crate) trait Subject {
    /// What it is called in the table.
    fn name(&self) -> &str;

    /// Makes calls for `time`, `concurrency` at a time.
    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample>;
}

/// A limit, and the ratio to it that is aimed at, if any.
pub(crate) type Limit<'a> = (&'a mut dyn Subject, Option<Target>);

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How many rounds.
    pub(crate) rounds: usize,
    /// How long each takes.
    pub(crate) time: Duration,
    /// How many calls at a time.
    pub(crate) concurrency: usize,
    /// Whether the limits are left out.
    pub(crate) alone: bool,
    /// What of one call's time is aimed at, beside the limits' targets.
    pub(crate) target: Option<Target>,
}

/// Measures `subject` and each of `limits` in turn, and once more in turn for each further round.
///
/// # Errors
///
/// The first call that failed.
pub(crate) fn compare(plan: Plan, subject: &mut dyn Subject, limits: &mut [Limit<'_>]) -> anyhow::Result<Row> {
    let limits = if plan.alone { &mut [] } else { limits };
    let (mut own, mut others) = (Vec::new(), vec![Vec::new(); limits.len()]);
    for _ in 0..plan.rounds.max(1) {
        own.push(Figures::of(&subject.round(plan.concurrency, plan.time)?));
        for ((limit, _), figures) in limits.iter_mut().zip(&mut others) {
            figures.push(Figures::of(&limit.round(plan.concurrency, plan.time)?));
        }
    }
    let beside = limits.iter().zip(&others).filter_map(|((limit, target), figures)| {
        Some(Beside {
            name: limit.name().to_owned(),
            value: Spread::of(figures.iter().map(|figures| figures.rate))?,
            p50_ms: Spread::of(figures.iter().map(|figures| figures.p50))?.median,
            processor_micros: Spread::of(figures.iter().filter_map(|figures| figures.processor)).map(|all| all.median),
            ratio: Spread::of(
                own.iter().zip(figures).map(|(own, limit)| ratio(*target, plan.concurrency, own, limit)),
            )?,
            target: *target,
        })
    });
    let beside = beside.collect();
    let of = |figure: fn(&Figures) -> f64| Spread::of(own.iter().map(figure));
    Ok(Row {
        name: subject.name().to_owned(),
        concurrency: Some(plan.concurrency),
        unit: "/s",
        value: of(|figures| figures.rate).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 }),
        p50_ms: of(|figures| figures.p50),
        p99_ms: of(|figures| figures.p99),
        processor_micros: Spread::of(own.iter().filter_map(|figures| figures.processor)).map(|all| all.median),
        target: plan.target,
        beside,
    })
}

/// What is kept of a round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    processor: Option<f64>,
}

impl Figures {
    fn of(sample: &Sample) -> Self {
        Self {
            rate: sample.rate(),
            p50: sample.percentile(0.5),
            p99: sample.percentile(0.99),
            processor: sample.processor_micros(),
        }
    }
}

/// Of rates; or where the target is one of time, of times: of the medians for one call at a time, of the mean times for more,
/// or of what 99 of 100 calls stay within.
fn ratio(target: Option<Target>, concurrency: usize, own: &Figures, limit: &Figures) -> f64 {
    match target {
        Some(Target::TimesTheTime(_)) if concurrency == 1 => own.p50 / limit.p50,
        Some(Target::TimesTheTime(_)) => limit.rate / own.rate,
        Some(Target::TimesTheTail(_)) => own.p99 / limit.p99,
        Some(Target::TimesTheRate(_) | Target::Millis(_) | Target::Megabytes(_) | Target::Kilobytes(_)) | None => {
            own.rate / limit.rate
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
            Ok(Sample { latencies, elapsed: time, processor: None, weight: 1 })
        }
    }

    fn row(concurrency: usize, target: Target) -> Row {
        let mut slow = Constant("slow", Duration::from_millis(4));
        let mut quick = Constant("quick", Duration::from_millis(2));
        let plan = Plan { rounds: 3, time: Duration::from_secs(1), concurrency, alone: false, target: None };
        compare(plan, &mut slow, &mut [(&mut quick, Some(target))]).unwrap()
    }

    #[test]
    fn a_ratio_of_rates_is_the_measured_by_the_limit() {
        let row = row(16, Target::TimesTheRate(0.7));
        assert_eq!((row.value.median, row.beside[0].value.median, row.beside[0].ratio.median), (4000.0, 8000.0, 0.5));
    }

    #[test]
    fn a_ratio_of_times_is_above_one_for_what_is_slower() {
        for concurrency in [1, 16] {
            let ratio = row(concurrency, Target::TimesTheTime(1.5)).beside[0].ratio;
            assert_eq!(ratio, Spread { median: 2.0, min: 2.0, max: 2.0 });
        }
    }
}
