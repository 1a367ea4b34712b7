//! The search for records: chooses the access path and the ranges of positions.

use super::Store;
use crate::backend::{Backend, PageColumns, RowReader};
use crate::filter::{self, AccessPath, MAX_SORTED, PATH_PART_BITS, PositionRange, Query, ZONE_POSITIONS};
use crate::{Page, PageSize, RecordFilter, Result, StoredRecord, rows};

/// Selects the first zone that is not in the zone map, and the first and last zone that may contain times from `$1` to `$2`.
const ZONES: &str = "SELECT coalesce((SELECT zone + 1 FROM audit_zone ORDER BY zone DESC LIMIT 1), 0), \
    (SELECT zone FROM audit_zone WHERE max_timestamp >= $1 ORDER BY zone LIMIT 1), \
    (SELECT zone FROM audit_zone WHERE min_timestamp < $2 ORDER BY zone DESC LIMIT 1)";
const RUN_LENGTH: &str = "SELECT head_seq FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";

impl<B: Backend> Store<B> {
    /// See [`Ledger::records`](crate::Ledger::records).
    pub(crate) async fn search_records(
        &self,
        filter: &RecordFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<Page<StoredRecord>> {
        let mut page = Page { items: Vec::new(), more: false };
        if filter::matches_nothing(filter) {
            return Ok(page);
        }
        let all = PositionRange { low: after.map_or(0, |after| after.saturating_add(1)), high: i64::MAX };
        let access = self.access_path(filter, all).await?;
        let ranges = match access {
            AccessPath::Run => vec![all],
            AccessPath::SortedPath => self.ranges_of_times(filter, all).await?,
            _ => self.ranges_of_path(filter, self.ranges_of_times(filter, all).await?, all).await?,
        };
        for range in ranges {
            self.add_records(filter, access, range, size, &mut page).await?;
            if page.more {
                break;
            }
        }
        Ok(page)
    }

    /// Adds the records of `range` to `page`, whose limits are `size`.
    async fn add_records(
        &self,
        filter: &RecordFilter,
        access: AccessPath,
        range: PositionRange,
        size: PageSize,
        page: &mut Page<StoredRecord>,
    ) -> Result<()> {
        let rows = size.rows.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        let bytes = page.iter().map(|record| record.text.len() as u64).sum();
        let remaining = PageSize { rows, bytes: size.bytes.saturating_sub(bytes) };
        let query = Query::records(filter, access, range, remaining.query_limit());
        let found = self.0.fetch_page(query.sql, query.params, rows::record, remaining, PageColumns::RECORDS).await?;
        page.more = found.more;
        page.items.extend(found);
        Ok(())
    }

    /// Returns the ranges that may contain times of the filter: from the zone map, and the positions after its last zone.
    async fn ranges_of_times(&self, filter: &RecordFilter, all: PositionRange) -> Result<Vec<PositionRange>> {
        if filter.since.is_none() && filter.until.is_none() {
            return Ok(vec![all]);
        }
        let since = filter.since.clone().unwrap_or_default();
        // Sorts after every time.
        let until = filter.until.clone().unwrap_or_else(|| "~".to_owned());
        let read = |row: &dyn RowReader| Ok((row.int(0)?, row.maybe_int(1)?, row.maybe_int(2)?));
        let found = self.one(ZONES, vec![since.into(), until.into()], read).await?;
        let Some((unsealed, first, last)) = found else { return Ok(vec![all]) };
        let sealed = first
            .zip(last)
            .map(|(first, last)| PositionRange { low: first * ZONE_POSITIONS, high: (last + 1) * ZONE_POSITIONS - 1 });
        let unmapped = PositionRange { low: unsealed * ZONE_POSITIONS, high: i64::MAX };
        Ok(sealed.into_iter().chain([unmapped]).filter_map(|range| range.intersection(all)).collect())
    }

    /// Restricts `ranges` to the parts of the path index in which the filter's path has records, so that a scan skips the other
    /// parts.
    async fn ranges_of_path(
        &self,
        filter: &RecordFilter,
        ranges: Vec<PositionRange>,
        all: PositionRange,
    ) -> Result<Vec<PositionRange>> {
        let Some(query) = Query::parts_of_path(filter, all) else { return Ok(ranges) };
        let mut parts: Vec<PositionRange> = Vec::new();
        for no in self.0.fetch(query.sql, query.params, |row| row.int(0)).await? {
            let part = PositionRange { low: no << PATH_PART_BITS, high: ((no + 1) << PATH_PART_BITS) - 1 };
            match parts.last_mut() {
                Some(last) if last.high + 1 == part.low => last.high = part.high,
                _ => parts.push(part),
            }
        }
        Ok(ranges.iter().flat_map(|range| parts.iter().filter_map(|part| part.intersection(*range))).collect())
    }

    /// Chooses the access path. If the filter has several of a path, a tool and a run, takes one with few records.
    async fn access_path(&self, filter: &RecordFilter, range: PositionRange) -> Result<AccessPath> {
        if filter.path.is_none() && (filter.run.is_none() || filter.tool.is_none()) {
            return Ok(filter::default_access_path(filter));
        }
        if let Some(run) = &filter.run {
            let length = self.one(RUN_LENGTH, vec![run.as_str().into()], |row| row.int(0)).await?.unwrap_or(0);
            if length <= MAX_SORTED / 10 {
                return Ok(AccessPath::Run);
            }
            if filter.path.is_none() {
                // A long run may have no record of the tool, and a scan would read all of the run.
                let max = MAX_SORTED.min(length);
                let Some(query) = Query::count_tool(filter, range, max) else { return Ok(AccessPath::Run) };
                let count = self.0.fetch(query.sql, query.params, |row| row.int(0)).await?;
                let is_rare = count.first().is_some_and(|count| *count <= max);
                return Ok(if is_rare { AccessPath::Tool } else { AccessPath::Run });
            }
        }
        let Some(query) = Query::count_path(filter, range) else { return Ok(filter::default_access_path(filter)) };
        let count = self.0.fetch(query.sql, query.params, |row| row.int(0)).await?;
        if count.first().is_some_and(|count| *count <= MAX_SORTED) {
            return Ok(AccessPath::SortedPath);
        }
        Ok(filter::default_access_path(&RecordFilter { path: None, ..filter.clone() }))
    }
}
