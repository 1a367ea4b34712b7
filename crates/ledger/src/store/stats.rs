//! Counts of records, computed by the database over all records that a filter selects.

use std::fmt::Write as _;

use model::{By, HourStats, ReasonStats, RecordStats, RunId, RunStats, StatsCounts};
use shared_pool::Parties;

use super::Store;
use crate::backend::Backend;
use crate::filter::PositionRange;
use crate::statement::{Param, RowReader, to_count};
use crate::{RecordFilter, Result, rows};

/// The most runs that counts are listed for.
const MAX_STATS_RUNS: usize = 1000;
/// The most reasons that are counted by themselves.
const MAX_STATS_REASONS: usize = 100;
/// The most hours that counts are listed for: those of 31 days.
const MAX_STATS_HOURS: usize = 744;

/// Which records are counted. A record must match every member that is set.
#[derive(Clone, Debug, Default)]
pub struct StatsFilter {
    /// The run.
    pub run: Option<RunId>,
    /// Inclusive lower bound, in the time format of the records.
    pub since: Option<String>,
    /// Exclusive upper bound.
    pub until: Option<String>,
    /// Whose records.
    pub by: Option<By>,
}

/// The columns of [`StatsCounts`], in order.
const COUNTS: &str = "count(*), \
    sum(CASE WHEN r.outcome = 'ok' AND NOT r.mutates AND r.tool <> 'run_command' AND r.tool NOT LIKE '%.%' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'ok' AND r.mutates AND r.tool NOT LIKE '%.%' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'ok' AND r.tool = 'run_command' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'ok' AND r.tool LIKE '%.%' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'refused' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'pending' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.outcome = 'failed' THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.denied THEN 1 ELSE 0 END), \
    sum(CASE WHEN r.denied AND r.reason = 'approval:denied' THEN 1 ELSE 0 END)";
/// The number of those columns.
const COUNT_COLUMNS: usize = 10;

fn counts(row: &dyn RowReader, first: usize) -> Result<StatsCounts> {
    let count = |column: usize| row.int(first + column).map(to_count);
    Ok(StatsCounts {
        records: count(0)?,
        reads: count(1)?,
        changes: count(2)?,
        commands: count(3)?,
        other: count(4)?,
        refused: count(5)?,
        pending: count(6)?,
        failed: count(7)?,
        denied: count(8)?,
        denied_by_person: count(9)?,
    })
}

impl<B: Backend> Store<B> {
    /// See [`Ledger::record_stats`](crate::Ledger::record_stats).
    pub(crate) async fn count_records(&self, filter: &StatsFilter) -> Result<RecordStats> {
        // It may read every record: as a list, it leaves connections to others.
        let _permit = self.0.page_queries().acquire(Parties::current(), 1).await;
        // Up to there nothing will be added, so that all counts are of the same records.
        let all = PositionRange { low: 0, high: self.0.settled_position().await? };
        let times =
            RecordFilter { since: filter.since.clone(), until: filter.until.clone(), ..RecordFilter::default() };
        let ranges = self.ranges_of_times(&times, all).await?;
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(RecordStats::default()) };
        let Selection { sql: from, params } = Selection::of(filter, PositionRange { low: first.low, high: last.high });
        let runs = format!(
            "SELECT (SELECT run_id FROM run WHERE run.run_no = r.run_no), {COUNTS}, count(*) OVER () {from} \
             GROUP BY r.run_no ORDER BY count(*) DESC, r.run_no LIMIT {MAX_STATS_RUNS}"
        );
        let runs = self.0.fetch(runs, params.clone(), read_run).await?;
        let reasons = format!(
            "SELECT r.outcome, r.reason, count(*), count(*) OVER () {from} AND r.reason IS NOT NULL \
             GROUP BY r.outcome, r.reason ORDER BY count(*) DESC, r.reason, r.outcome LIMIT {MAX_STATS_REASONS}"
        );
        let reasons = self.0.fetch(reasons, params.clone(), read_reason).await?;
        let hours = format!(
            "SELECT substr(r.timestamp, 1, 13), {COUNTS} {from} \
             GROUP BY substr(r.timestamp, 1, 13) ORDER BY substr(r.timestamp, 1, 13)"
        );
        let mut hours = self.0.fetch(hours, params, read_hour).await?;
        let mut total = StatsCounts::default();
        for hour in &hours {
            total.add(&hour.counts);
        }
        hours.drain(..hours.len().saturating_sub(MAX_STATS_HOURS));
        let more = |all: Option<u64>, shown: usize| all.unwrap_or(0).saturating_sub(shown as u64);
        Ok(RecordStats {
            total,
            more_runs: more(runs.first().map(|(_, all)| *all), runs.len()),
            // A run without a row was removed from the database directly. The total has its records.
            runs: runs.into_iter().filter_map(|(run, _)| run).collect(),
            more_reasons: more(reasons.first().map(|(_, all)| *all), reasons.len()),
            reasons: reasons.into_iter().map(|(reason, _)| reason).collect(),
            hours,
        })
    }
}

fn read_run(row: &dyn RowReader) -> Result<(Option<RunStats>, u64)> {
    let all = row.int(COUNT_COLUMNS + 1).map(to_count)?;
    if row.maybe_text(0)?.is_none() {
        return Ok((None, all));
    }
    Ok((Some(RunStats { run_id: rows::run_id(row, 0)?, counts: counts(row, 1)? }), all))
}

fn read_reason(row: &dyn RowReader) -> Result<(ReasonStats, u64)> {
    let reason = ReasonStats { outcome: row.text(0)?, reason: row.text(1)?, records: to_count(row.int(2)?) };
    Ok((reason, to_count(row.int(3)?)))
}

fn read_hour(row: &dyn RowReader) -> Result<HourStats> {
    Ok(HourStats { hour: format!("{}:00:00Z", row.text(0)?), counts: counts(row, 1)? })
}

/// The rows of records that a filter selects.
struct Selection {
    sql: String,
    params: Vec<Param<'static>>,
}

impl Selection {
    fn of(filter: &StatsFilter, range: PositionRange) -> Self {
        let mut selection = Self { sql: "FROM audit_record r WHERE ".to_owned(), params: Vec::new() };
        if let Some(run) = &filter.run {
            // The index of the run, not that of positions, which other runs have too.
            selection.add("r.run_no = (SELECT run_no FROM run WHERE run_id = ", run.as_str(), ")");
            selection.add(" AND coalesce(r.position <= ", range.high, ", false)");
        } else {
            selection.add("r.position >= ", range.low, "");
            selection.add(" AND r.position <= ", range.high, "");
        }
        if let Some(since) = &filter.since {
            selection.add(" AND r.timestamp >= ", since.as_str(), "");
        }
        if let Some(until) = &filter.until {
            selection.add(" AND r.timestamp < ", until.as_str(), "");
        }
        if let Some(by) = filter.by {
            selection.add(" AND r.made_by = ", by.as_str(), "");
        }
        selection
    }

    /// Adds a condition with a parameter in its middle.
    fn add(&mut self, before: &str, value: impl Into<Param<'static>>, after: &str) {
        self.params.push(value.into());
        let _ = write!(self.sql, "{before}${}{after}", self.params.len());
    }
}
