//! The report: rows of figures, as a Markdown table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::sample::Spread;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    /// The least ratio to the baseline's rate.
    TimesTheRate(f64),
    /// The largest ratio to the baseline's time.
    TimesTheTime(f64),
    /// The largest ratio to the baseline's 99th percentile.
    TimesTheTail(f64),
    /// The largest median time in milliseconds.
    Millis(f64),
    /// The largest size in million bytes.
    Megabytes(f64),
    /// The largest size in thousand bytes.
    Kilobytes(f64),
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: String,
    /// Number of concurrent calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<usize>,
    /// The unit of the value.
    pub(crate) unit: &'static str,
    /// The value.
    pub(crate) value: Spread,
    /// The median latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<Spread>,
    /// The 99th percentile of the latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<Spread>,
    /// The server's processor time per call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_micros: Option<f64>,
    /// The target of the figure itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    /// The baselines.
    pub(crate) baselines: Vec<BaselineFigure>,
}

/// A baseline of a figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BaselineFigure {
    /// Its name.
    pub(crate) name: String,
    /// The value in the figure's unit.
    pub(crate) value: Spread,
    /// The median latency.
    pub(crate) p50_ms: f64,
    /// The processor time per call, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_micros: Option<f64>,
    /// The ratio of the figure to the baseline: of times if the target is a time, else of rates.
    pub(crate) ratio: Spread,
    /// The target of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
}

/// The result of a measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The machine.
    pub(crate) environment: String,
    /// The figures.
    pub(crate) rows: Vec<Row>,
    /// Notes on the figures.
    pub(crate) notes: Vec<String>,
}

impl Row {
    /// Creates a figure without baselines.
    pub(crate) fn value(name: impl Into<String>, unit: &'static str, value: Spread) -> Self {
        Self {
            name: name.into(),
            concurrency: None,
            unit,
            value,
            p50_ms: None,
            p99_ms: None,
            cpu_micros: None,
            target: None,
            baselines: Vec::new(),
        }
    }

    /// Sets the target.
    pub(crate) fn with_target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Returns whether the figure's own target is met, if it has one.
    fn is_met(&self) -> Option<bool> {
        match self.target? {
            Target::Millis(max) => Some(self.p50_ms.unwrap_or(self.value).median <= max),
            Target::Megabytes(max) | Target::Kilobytes(max) => Some(self.value.median <= max),
            Target::TimesTheRate(_) | Target::TimesTheTime(_) | Target::TimesTheTail(_) => None,
        }
    }

    fn write(&self, table: &mut String) {
        let millis = |spread: Option<Spread>| spread.map_or(String::new(), |spread| number(spread.median));
        let concurrency = self.concurrency.map_or(String::new(), |connections| connections.to_string());
        let processor = micros(self.cpu_micros);
        let (p50, p99) = (millis(self.p50_ms), millis(self.p99_ms));
        let head =
            format!("{} | {concurrency} | {} | {p50} | {p99} | {processor}", self.name, spread(self.value, self.unit));
        let own = self.target.map_or(String::new(), |target| target_cell(target, self.is_met()));
        if self.baselines.is_empty() || self.target.is_some() {
            let _ = writeln!(table, "| {head} | | | | {own} |");
        }
        for (index, baseline) in self.baselines.iter().enumerate() {
            let head = if index == 0 && self.target.is_none() { head.as_str() } else { " | | | | | " };
            let value = spread(baseline.value, self.unit);
            let used = baseline.cpu_micros.map_or(String::new(), |used| format!(", {} µs CPU", number(used)));
            let ratio = format!("{:.2} ({:.2}–{:.2})", baseline.ratio.median, baseline.ratio.min, baseline.ratio.max);
            let target = baseline.target.map_or(String::new(), |target| target_cell(target, baseline.is_met()));
            let _ = writeln!(table, "| {head} | {} | {value}{used} | {ratio} | {target} |", baseline.name);
        }
    }
}

impl BaselineFigure {
    fn is_met(&self) -> Option<bool> {
        match self.target? {
            Target::TimesTheRate(min) => Some(self.ratio.median >= min),
            Target::TimesTheTime(max) | Target::TimesTheTail(max) => Some(self.ratio.median <= max),
            Target::Millis(_) | Target::Megabytes(_) | Target::Kilobytes(_) => None,
        }
    }
}

impl Report {
    /// Returns the report as a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.environment);
        text.push_str(
            "| figure | concurrency | value (min–max of the rounds) | p50 ms | p99 ms | CPU µs | baseline | baseline's value | ratio (min–max) | target |\n\
             |---|---:|---:|---:|---:|---:|---|---:|---:|---|\n",
        );
        for row in &self.rows {
            row.write(&mut text);
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }
}

fn spread(spread: Spread, unit: &str) -> String {
    if (spread.min - spread.max).abs() < f64::EPSILON {
        return format!("{}{unit}", number(spread.median));
    }
    format!("{}{unit} ({}–{})", number(spread.median), number(spread.min), number(spread.max))
}

fn micros(value: Option<f64>) -> String {
    value.map_or(String::new(), number)
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn target_cell(target: Target, met: Option<bool>) -> String {
    let mark = match met {
        Some(true) => " ✓",
        Some(false) => " ✗",
        None => "",
    };
    match target {
        Target::TimesTheRate(min) => format!("≥ {min} × the rate{mark}"),
        Target::TimesTheTime(max) => format!("≤ {max} × the time{mark}"),
        Target::TimesTheTail(max) => format!("≤ {max} × the p99{mark}"),
        Target::Millis(max) => format!("≤ {max} ms{mark}"),
        Target::Megabytes(max) => format!("≤ {max} MB{mark}"),
        Target::Kilobytes(max) => format!("≤ {max} kB{mark}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(name: &str, ratio: f64, target: Target) -> BaselineFigure {
        BaselineFigure {
            name: name.to_owned(),
            value: Spread::single(200.0),
            p50_ms: 1.0,
            cpu_micros: Some(12.5),
            ratio: Spread { median: ratio, min: 0.4, max: 0.9 },
            target: Some(target),
        }
    }

    #[test]
    fn every_baseline_has_a_line_with_its_ratio_and_whether_the_target_is_met() {
        let mut row = Row::value("reads", "/s", Spread { median: 150.0, min: 90.0, max: 180.0 });
        row.concurrency = Some(64);
        row.baselines = vec![
            baseline("plain", 0.75, Target::TimesTheRate(0.7)),
            baseline("plain, inline", 0.5, Target::TimesTheRate(0.7)),
            baseline("bare", 1.7, Target::TimesTheTime(1.6)),
        ];
        let table = Report { rows: vec![row], ..Report::default() }.markdown();
        let lines: Vec<&str> = table.lines().skip(4).collect();
        assert_eq!(
            lines[0],
            "| reads | 64 | 150/s (90.0–180) |  |  |  | plain | 200/s, 12.5 µs CPU | 0.75 (0.40–0.90) | ≥ 0.7 × the rate ✓ |"
        );
        assert!(lines[1].starts_with("|  | | | | |  | plain, inline |") && lines[1].ends_with("≥ 0.7 × the rate ✗ |"));
        assert!(lines[2].ends_with("≤ 1.6 × the time ✗ |"), "{}", lines[2]);
    }

    #[test]
    fn a_figure_with_its_own_target_has_its_own_line() {
        let row = Row::value("memory", " MB", Spread::single(12.0)).with_target(Target::Megabytes(20.0));
        let table = Report { rows: vec![row], ..Report::default() }.markdown();
        assert!(table.ends_with("| memory |  | 12.0 MB |  |  |  | | | | ≤ 20 MB ✓ |\n"), "{table}");
    }
}
