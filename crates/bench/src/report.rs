//! The report: rows of figures, as a Markdown table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::sample::Spread;

/// What a figure is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    /// At least so many times the limit's rate.
    TimesTheRate(f64),
    /// At most so many times the limit's time.
    TimesTheTime(f64),
    /// At most so many times the limit's time, for what 99 of 100 calls stay within.
    TimesTheTail(f64),
    /// At most so many milliseconds for the middle call.
    Millis(f64),
    /// At most so many million bytes.
    Megabytes(f64),
    /// At most so many thousand bytes.
    Kilobytes(f64),
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// How many calls at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<usize>,
    /// What the value counts.
    pub(crate) unit: &'static str,
    /// The figure.
    pub(crate) value: Spread,
    /// What half of the calls stay within.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<Spread>,
    /// What 99 of 100 calls stay within.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<Spread>,
    /// Processor time that the server used for each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processor_micros: Option<f64>,
    /// What the figure itself is aimed at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    /// The limits.
    pub(crate) beside: Vec<Beside>,
}

/// A limit of a figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Beside {
    /// What was measured.
    pub(crate) name: String,
    /// In the figure's unit.
    pub(crate) value: Spread,
    /// What half of its calls stay within.
    pub(crate) p50_ms: f64,
    /// Processor time for each call, where it can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processor_micros: Option<f64>,
    /// The figure by the limit; of times where the target is one of time.
    pub(crate) ratio: Spread,
    /// What the ratio is aimed at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
}

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The machine.
    pub(crate) environment: String,
    /// The figures.
    pub(crate) rows: Vec<Row>,
    /// What has to be known to read them.
    pub(crate) notes: Vec<String>,
}

impl Row {
    /// A figure that is no rate and has no limit.
    pub(crate) fn plain(name: impl Into<String>, unit: &'static str, value: Spread) -> Self {
        Self {
            name: name.into(),
            concurrency: None,
            unit,
            value,
            p50_ms: None,
            p99_ms: None,
            processor_micros: None,
            target: None,
            beside: Vec::new(),
        }
    }

    /// The same, aimed at `target`.
    pub(crate) fn aimed(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Whether the figure's own target is met, if it has one.
    fn met(&self) -> Option<bool> {
        match self.target? {
            Target::Millis(most) => Some(self.p50_ms.unwrap_or(self.value).median <= most),
            Target::Megabytes(most) | Target::Kilobytes(most) => Some(self.value.median <= most),
            Target::TimesTheRate(_) | Target::TimesTheTime(_) | Target::TimesTheTail(_) => None,
        }
    }

    fn write(&self, table: &mut String) {
        let millis = |spread: Option<Spread>| spread.map_or(String::new(), |spread| number(spread.median));
        let concurrency = self.concurrency.map_or(String::new(), |connections| connections.to_string());
        let processor = micros(self.processor_micros);
        let (p50, p99) = (millis(self.p50_ms), millis(self.p99_ms));
        let head =
            format!("{} | {concurrency} | {} | {p50} | {p99} | {processor}", self.name, spread(self.value, self.unit));
        let own = self.target.map_or(String::new(), |target| aim(target, self.met()));
        if self.beside.is_empty() || self.target.is_some() {
            let _ = writeln!(table, "| {head} | | | | {own} |");
        }
        for (index, limit) in self.beside.iter().enumerate() {
            let head = if index == 0 && self.target.is_none() { head.as_str() } else { " | | | | | " };
            let value = spread(limit.value, self.unit);
            let used = limit.processor_micros.map_or(String::new(), |used| format!(", {} µs CPU", number(used)));
            let ratio = format!("{:.2} ({:.2}–{:.2})", limit.ratio.median, limit.ratio.min, limit.ratio.max);
            let target = limit.target.map_or(String::new(), |target| aim(target, limit.met()));
            let _ = writeln!(table, "| {head} | {} | {value}{used} | {ratio} | {target} |", limit.name);
        }
    }
}

impl Beside {
    fn met(&self) -> Option<bool> {
        match self.target? {
            Target::TimesTheRate(least) => Some(self.ratio.median >= least),
            Target::TimesTheTime(most) | Target::TimesTheTail(most) => Some(self.ratio.median <= most),
            Target::Millis(_) | Target::Megabytes(_) | Target::Kilobytes(_) => None,
        }
    }
}

impl Report {
    /// The report for people.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.environment);
        text.push_str(
            "| figure | at a time | value (min–max of the rounds) | p50 ms | p99 ms | CPU µs | limit | limit's value | ratio (min–max) | target |\n\
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

/// Three digits that say something, and no more.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn aim(target: Target, met: Option<bool>) -> String {
    let mark = match met {
        Some(true) => " ✓",
        Some(false) => " ✗",
        None => "",
    };
    match target {
        Target::TimesTheRate(least) => format!("≥ {least} × the rate{mark}"),
        Target::TimesTheTime(most) => format!("≤ {most} × the time{mark}"),
        Target::TimesTheTail(most) => format!("≤ {most} × the p99{mark}"),
        Target::Millis(most) => format!("≤ {most} ms{mark}"),
        Target::Megabytes(most) => format!("≤ {most} MB{mark}"),
        Target::Kilobytes(most) => format!("≤ {most} kB{mark}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(value: f64) -> Spread {
        Spread { median: value, min: value, max: value }
    }

    fn limit(name: &str, ratio: f64, target: Target) -> Beside {
        Beside {
            name: name.to_owned(),
            value: steady(200.0),
            p50_ms: 1.0,
            processor_micros: Some(12.5),
            ratio: Spread { median: ratio, min: 0.4, max: 0.9 },
            target: Some(target),
        }
    }

    #[test]
    fn every_limit_has_a_line_with_its_ratio_and_whether_the_target_is_met() {
        let mut row = Row::plain("reads", "/s", Spread { median: 150.0, min: 90.0, max: 180.0 });
        row.concurrency = Some(64);
        row.beside = vec![
            limit("plain", 0.75, Target::TimesTheRate(0.7)),
            limit("plain, inline", 0.5, Target::TimesTheRate(0.7)),
            limit("bare", 1.7, Target::TimesTheTime(1.6)),
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
    fn a_figure_with_a_target_of_its_own_has_a_line_of_its_own() {
        let row = Row::plain("memory", " MB", steady(12.0)).aimed(Target::Megabytes(20.0));
        let table = Report { rows: vec![row], ..Report::default() }.markdown();
        assert!(table.ends_with("| memory |  | 12.0 MB |  |  |  | | | | ≤ 20 MB ✓ |\n"), "{table}");
    }
}
