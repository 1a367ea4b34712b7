//! How records are found: what drives a query, and where it has to look.

use model::{Run, RunState};

use super::Store;
use crate::backend::{Arg, Backend, Columns, PageColumns};
use crate::filter::{self, Driver, GATHERED, PART_BITS, Query, Range, ZONE};
use crate::rows::select_run;
use crate::{Page, PageSize, RecordFilter, Result, StoredRecord, rows};

const ZONES: &str = "SELECT coalesce((SELECT zone + 1 FROM audit_zone ORDER BY zone DESC LIMIT 1), 0), \
    (SELECT zone FROM audit_zone WHERE max_timestamp >= $1 ORDER BY zone LIMIT 1), \
    (SELECT zone FROM audit_zone WHERE min_timestamp < $2 ORDER BY zone DESC LIMIT 1)";
const RUN_LENGTH: &str = "SELECT head_seq FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";

/// What is on a list, with its number, as far as it can be read.
type Numbered<T> = Result<(i64, Result<T>)>;

impl<B: Backend> Store<B> {
    /// Runs in order of creation, behind `after`. One that cannot be read hides no other.
    pub(super) async fn list_runs(
        &self,
        state: Option<RunState>,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<Page<(i64, Run)>> {
        let sql = match state {
            None => select_run!("WHERE run.run_no > $1 ORDER BY run.run_no LIMIT $2"),
            Some(_) => select_run!("WHERE run.run_no > $1 AND state = $3 ORDER BY run.run_no LIMIT $2"),
        };
        let args = state.map(|state| Arg::from(state.as_str())).into_iter().collect();
        let read = |row: &dyn Columns| Ok((row.int(0)?, rows::run(row).map(|(_, stored)| stored.run)));
        self.list_readable("a run", sql, after, args, read, size, PageColumns::RUNS).await
    }

    /// The page of `sql` behind `after`, which is its `$1`, without what cannot be read: one bad row hides no other. Its `$2` is
    /// the bound of rows; `further` follow.
    #[expect(clippy::too_many_arguments, reason = "those of a page, and of what is on it")]
    pub(super) async fn list_readable<T: Send + 'static>(
        &self,
        what: &'static str,
        sql: &'static str,
        after: Option<i64>,
        further: Vec<Arg>,
        read: fn(&dyn Columns) -> Numbered<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> Result<Page<(i64, T)>> {
        let mut after = after.unwrap_or(0);
        loop {
            let args = [Arg::Int(after), Arg::Int(size.rows_to_ask())].into_iter().chain(further.clone()).collect();
            let page = self.0.fetch_page(sql, args, read, size, columns).await?;
            after = page.last().map_or(after, |(number, _)| *number);
            let readable = |(number, item): (i64, Result<T>)| match item {
                Ok(item) => Some((number, item)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(number, error, "{what} is left out of a list, since it cannot be read");
                    None
                }
            };
            let more = page.more;
            let items: Vec<_> = page.into_iter().filter_map(readable).collect();
            // A page that is empty would have no position for the next one.
            if !items.is_empty() || !more {
                return Ok(Page { items, more });
            }
        }
    }

    /// Adds the records of `range` to `page`, of which `size` are the bounds; it has `more` where they do not all fit.
    pub(super) async fn add_records(
        &self,
        filter: &RecordFilter,
        driver: Driver,
        range: Range,
        size: PageSize,
        page: &mut Page<StoredRecord>,
    ) -> Result<()> {
        let rows = size.rows.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        let bytes = page.iter().map(|record| record.text.len() as u64).sum();
        let left = PageSize { rows, bytes: size.bytes.saturating_sub(bytes) };
        let query = Query::records(filter, driver, range, left.rows_to_ask());
        let found = self.0.fetch_page(query.sql, query.args, rows::record, left, PageColumns::RECORDS).await?;
        page.more = found.more;
        page.items.extend(found);
        Ok(())
    }

    /// Where records of the filter's times can be: among the zones that are known, and behind them.
    pub(super) async fn ranges(&self, filter: &RecordFilter, all: Range) -> Result<Vec<Range>> {
        if filter.since.is_none() && filter.until.is_none() {
            return Ok(vec![all]);
        }
        let since = filter.since.clone().unwrap_or_default();
        // No time that is written in digits comes behind this one.
        let until = filter.until.clone().unwrap_or_else(|| "~".to_owned());
        let read = |row: &dyn Columns| Ok((row.int(0)?, row.maybe_int(1)?, row.maybe_int(2)?));
        let found = self.one(ZONES, vec![since.into(), until.into()], read).await?;
        let Some((open_zone, first, last)) = found else { return Ok(vec![all]) };
        let known = first.zip(last).map(|(first, last)| Range { low: first * ZONE, high: (last + 1) * ZONE - 1 });
        let open = Range { low: open_zone * ZONE, high: i64::MAX };
        Ok(known.into_iter().chain([open]).filter_map(|range| range.within(all)).collect())
    }

    /// What of `ranges` lies in parts where the filter's path has records: what walks past others need not walk where it has
    /// none for millions of them.
    pub(super) async fn where_path_is(
        &self,
        filter: &RecordFilter,
        ranges: Vec<Range>,
        all: Range,
    ) -> Result<Vec<Range>> {
        let Some(query) = Query::parts_of_path(filter, all) else { return Ok(ranges) };
        let mut parts: Vec<Range> = Vec::new();
        for no in self.0.fetch(query.sql, query.args, |row| row.int(0)).await? {
            let part = Range { low: no << PART_BITS, high: ((no + 1) << PART_BITS) - 1 };
            match parts.last_mut() {
                Some(last) if last.high + 1 == part.low => last.high = part.high,
                _ => parts.push(part),
            }
        }
        Ok(ranges.iter().flat_map(|range| parts.iter().filter_map(|part| part.within(*range))).collect())
    }

    /// What drives a query: of a path, a tool and a run that are asked for together, whichever has few records.
    pub(super) async fn driver(&self, filter: &RecordFilter, range: Range) -> Result<Driver> {
        if filter.path.is_none() && (filter.run.is_none() || filter.tool.is_none()) {
            return Ok(filter::driver(filter));
        }
        if let Some(run) = &filter.run {
            let length = self.one(RUN_LENGTH, vec![run.as_str().into()], |row| row.int(0)).await?.unwrap_or(0);
            if length <= GATHERED / 10 {
                return Ok(Driver::Run);
            }
            if filter.path.is_none() {
                // A run of many records may have none of the tool, which would all be looked at for that.
                let most = GATHERED.min(length);
                let Some(query) = Query::count_tool(filter, range, most) else { return Ok(Driver::Run) };
                let count = self.0.fetch(query.sql, query.args, |row| row.int(0)).await?;
                let is_rare = count.first().is_some_and(|count| *count <= most);
                return Ok(if is_rare { Driver::Tool } else { Driver::Run });
            }
        }
        let Some(query) = Query::count_path(filter, range) else { return Ok(filter::driver(filter)) };
        let count = self.0.fetch(query.sql, query.args, |row| row.int(0)).await?;
        if count.first().is_some_and(|count| *count <= GATHERED) {
            return Ok(Driver::GatheredPath);
        }
        Ok(filter::driver(&RecordFilter { path: None, ..filter.clone() }))
    }
}
