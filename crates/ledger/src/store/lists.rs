//! Lists: of items that have positions, page by page, and the search for records, which chooses the access path and the ranges of
//! positions. Unreadable items are left out, and conditions that no index has are checked here.

use std::collections::BTreeMap;

use model::{By, DeniedEntry, LogicalPath, RecordFile};
use serde::Deserialize;

use super::Store;
use crate::backend::Backend;
use crate::entry_rows::indexed_paths;
use crate::filter::{
    self, AccessPath, Labelled, MAX_SORTED, PATH_PART_BITS, PositionRange, RecordQuery, ZONE_POSITIONS,
};
use crate::statement::{PageColumns, Param, RowReader, Select};
use crate::stored::has_labels;
use crate::{LedgerPage, PageSize, RecordFilter, Result, StoredRecord, rows};

/// An item of a list with its position, or the error if it is unreadable.
type Positioned<T> = Result<(i64, Result<T>)>;

/// Rows of a chunk that is searched for what no index has.
pub(crate) const SCANNED_ROWS: u32 = 1000;
/// Maximum number of chunks that one page reads.
pub(crate) const MAX_CHUNKS: u32 = 5;

/// A list whose items have positions.
pub(crate) struct LedgerList<T> {
    pub(crate) what: &'static str,
    pub(crate) select: &'static str,
    /// The condition, in which the cursor is `$1`, the limit `$2`, and other parameters follow. It begins with ` AND `, or is
    /// empty.
    pub(crate) condition: &'static str,
    pub(crate) more_params: Vec<Param<'static>>,
    pub(crate) read: fn(&dyn RowReader) -> Positioned<T>,
    pub(crate) columns: PageColumns,
    /// The column of the position.
    pub(crate) position: &'static str,
    /// A column of `run` that never is NULL, if the items are ordered by it before the position, which is that of a run then.
    pub(crate) text: Option<&'static str>,
    pub(crate) newest_first: bool,
    /// Whether items are checked after they are read.
    pub(crate) scans: bool,
}

impl<T> LedgerList<T> {
    fn sql(&self) -> String {
        let Self { select, condition, position, .. } = self;
        // The last text is that of no run, before the first page.
        let (after, order, first_text) = if self.newest_first { ("<", " DESC", "\u{10ffff}") } else { (">", "", "") };
        match self.text {
            None => format!("{select}WHERE {position} {after} $1{condition} ORDER BY {position}{order} LIMIT $2"),
            Some(text) => format!(
                "{select}WHERE ({text}, {position}) {after} \
                 (coalesce((SELECT c.{text} FROM run c WHERE c.run_no = $1), '{first_text}'), $1){condition} \
                 ORDER BY {text}{order}, {position}{order} LIMIT $2"
            ),
        }
    }
}

/// Returns an item, unless it is unreadable.
fn readable<T>(what: &str, (position, item): (i64, Result<T>)) -> Option<(i64, T)> {
    match item {
        Ok(item) => Some((position, item)),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(position, error, "skipped an unreadable {what} in a list");
            None
        }
    }
}

impl<B: Backend> Store<B> {
    /// Returns the page of `list` after `after`, without unreadable items and those that do not match. If the list scans, the
    /// page ends with the chunk in which it has its first items, or after [`MAX_CHUNKS`].
    pub(crate) async fn list_readable<T: Send + 'static>(
        &self,
        list: LedgerList<T>,
        after: Option<i64>,
        size: PageSize,
        matches: impl Fn(&T) -> bool + Send + Sync,
    ) -> Result<LedgerPage<(i64, T)>> {
        let mut after = after.unwrap_or(if list.newest_first { i64::MAX } else { 0 });
        let chunk_size = if list.scans { PageSize { rows: size.rows.max(SCANNED_ROWS), ..size } } else { size };
        let (sql, columns) = (list.sql(), list.columns.in_direction(list.newest_first));
        let mut chunks = 0;
        loop {
            let params = [Param::Int(after), Param::Int(chunk_size.query_limit())];
            let params = params.into_iter().chain(list.more_params.clone()).collect();
            let chunk = self.0.fetch_page(sql.as_str(), params, list.read, chunk_size, columns).await?;
            let more = chunk.more;
            after = chunk.last().map_or(after, |(position, _)| *position);
            let mut items: Vec<_> = chunk.into_iter().filter_map(|item| readable(list.what, item)).collect();
            items.retain(|(_, item)| matches(item));
            chunks += 1;
            if items.len() > size.rows as usize {
                items.truncate(size.rows as usize);
                return Ok(LedgerPage { items, more: true, resume: None });
            }
            if !items.is_empty() || !more || (list.scans && chunks == MAX_CHUNKS) {
                return Ok(LedgerPage { items, more, resume: more.then_some(after) });
            }
        }
    }
}

/// The members of a record that are checked without an index.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unindexed {
    tool: String,
    actor: String,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    paths_read: Vec<LogicalPath>,
    #[serde(default)]
    paths_written: Vec<LogicalPath>,
    #[serde(default)]
    files: Vec<RecordFile>,
    #[serde(default)]
    left: Vec<DeniedEntry>,
}

impl Unindexed {
    fn has_path(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let paths = indexed_paths(&self.paths_read, &self.paths_written, &self.files, &self.left);
        paths.into_iter().any(is_wanted)
    }
}

/// Whether `path` ends with `suffix`. A suffix that begins with `/` is of whole names.
fn ends_with(path: &str, suffix: &str) -> bool {
    path.ends_with(suffix) || suffix.strip_prefix('/') == Some(path)
}

/// Whether the filter has a condition without an index.
fn scans(filter: &RecordFilter) -> bool {
    filter.actor.is_some()
        || filter.by.is_some()
        || filter.code.is_some()
        || filter.path_suffix.is_some()
        || !filter.labels.is_empty()
        || filter::unindexed_tool_prefix(filter).is_some()
        || filter::unindexed_path_prefix(filter).is_some()
}

/// Returns the records that match the conditions without an index.
fn matching(filter: &RecordFilter, records: impl IntoIterator<Item = Labelled>) -> Result<Vec<StoredRecord>> {
    let mut found = Vec::new();
    for (record, labels) in records {
        if !filter.labels.is_empty() {
            let labels: BTreeMap<String, String> = rows::json(labels.as_deref().unwrap_or("{}"), "label")?;
            if !has_labels(&labels, &filter.labels) {
                continue;
            }
        }
        // A record that direct access to the database has damaged matches nothing.
        let Ok(members) = serde_json::from_str::<Unindexed>(&record.text) else { continue };
        if filter.actor.as_ref().is_none_or(|actor| *actor == members.actor)
            && filter.by.is_none_or(|by| by == By::of_actor(&members.actor))
            && filter.code.as_ref().is_none_or(|code| members.code.as_ref() == Some(code))
            && filter::unindexed_tool_prefix(filter).is_none_or(|prefix| members.tool.starts_with(prefix))
            && filter::unindexed_path_prefix(filter)
                .is_none_or(|prefix| members.has_path(|path| path.starts_with(prefix)))
            && filter.path_suffix.as_ref().is_none_or(|suffix| members.has_path(|path| ends_with(path, suffix)))
        {
            found.push(record);
        }
    }
    Ok(found)
}

/// Selects the first zone that is not in the zone map, and the first and last zone that may contain times from `$1` to `$2`.
const ZONES: Select<(i64, Option<i64>, Option<i64>)> = Select {
    sql: "SELECT coalesce((SELECT zone + 1 FROM audit_zone ORDER BY zone DESC LIMIT 1), 0), \
    (SELECT zone FROM audit_zone WHERE max_timestamp >= $1 ORDER BY zone LIMIT 1), \
    (SELECT zone FROM audit_zone WHERE min_timestamp < $2 ORDER BY zone DESC LIMIT 1)",
    read: |row| Ok((row.int(0)?, row.maybe_int(1)?, row.maybe_int(2)?)),
};
const RUN_LENGTH: Select<i64> = Select {
    sql: "SELECT head_seq FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)",
    read: |row| row.int(0),
};

impl<B: Backend> Store<B> {
    /// See [`Ledger::records`](crate::Ledger::records).
    pub(crate) async fn search_records(
        &self,
        filter: &RecordFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        let mut page = LedgerPage { items: Vec::new(), more: false, resume: None };
        if filter::matches_nothing(filter) {
            return Ok(page);
        }
        let all = match after {
            None => Some(PositionRange { low: 0, high: i64::MAX }),
            Some(after) if filter.newest_first => Some(PositionRange { low: 0, high: after.saturating_sub(1) }),
            Some(after) => after.checked_add(1).map(|low| PositionRange { low, high: i64::MAX }),
        };
        let Some(all) = all else { return Ok(page) };
        let Some(all) = self.settled_part(filter, all).await? else { return Ok(page) };
        let access = self.access_path(filter, all).await?;
        let mut ranges = match access {
            AccessPath::Run => vec![all],
            AccessPath::SortedPath => self.ranges_of_times(filter, all).await?,
            _ => self.ranges_of_path(filter, self.ranges_of_times(filter, all).await?, all).await?,
        };
        if filter.newest_first {
            ranges.reverse();
        }
        if scans(filter) {
            return self.scan_records(filter, access, &ranges, size).await;
        }
        for range in ranges {
            self.add_records(filter, access, range, size, &mut page).await?;
            if page.more {
                break;
            }
        }
        Ok(page)
    }

    /// Returns the part of `range` that a page of `filter` may have: the caller continues after the last record of the page, and a
    /// record that appeared before it later would be missing. Records of one run appear in order. Newest first, the list goes on to
    /// older records, so that it has every record that was settled when it began.
    async fn settled_part(&self, filter: &RecordFilter, range: PositionRange) -> Result<Option<PositionRange>> {
        if filter.newest_first || filter.run.is_some() {
            return Ok(Some(range));
        }
        let high = self.0.settled_position().await?;
        Ok(range.intersection(PositionRange { low: 0, high }))
    }

    /// Adds the records of `range` to `page`, whose limits are `size`.
    async fn add_records(
        &self,
        filter: &RecordFilter,
        access: AccessPath,
        range: PositionRange,
        size: PageSize,
        page: &mut LedgerPage<StoredRecord>,
    ) -> Result<()> {
        let rows = size.rows.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        let bytes = page.iter().map(|record| record.text.len() as u64).sum();
        let remaining = PageSize { rows, bytes: size.bytes.saturating_sub(bytes) };
        let query = RecordQuery::records(B::PATH_KEY, filter, access, range, remaining.query_limit());
        let columns = PageColumns::RECORDS.in_direction(filter.newest_first);
        let found = self.0.fetch_page(query.sql, query.params, rows::record, remaining, columns).await?;
        page.more = found.more;
        page.items.extend(found);
        Ok(())
    }

    /// Reads the records of `ranges` that match the indexed conditions, and returns those that match the others. The page ends
    /// with the chunk in which it has its first records, or after [`MAX_CHUNKS`].
    async fn scan_records(
        &self,
        filter: &RecordFilter,
        access: AccessPath,
        ranges: &[PositionRange],
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        let chunk_size = PageSize { rows: size.rows.max(SCANNED_ROWS), ..size };
        let columns = PageColumns::RECORDS.in_direction(filter.newest_first);
        let mut chunks = 0;
        for (index, range) in ranges.iter().enumerate() {
            let mut rest = Some(*range);
            while let Some(range) = rest {
                let query = RecordQuery::records(B::PATH_KEY, filter, access, range, chunk_size.query_limit());
                let chunk = self
                    .0
                    .fetch_page(query.sql, query.params, filter::record_reader(filter), chunk_size, columns)
                    .await?;
                let last = chunk.last().map(|(record, _)| record.position).filter(|_| chunk.more);
                rest = last.and_then(|last| range.after(last, filter.newest_first));
                let mut items = matching(filter, chunk)?;
                let has_more_items = items.len() > size.rows as usize;
                items.truncate(size.rows as usize);
                chunks += 1;
                if !items.is_empty() || chunks == MAX_CHUNKS {
                    let next = ranges.get(index + 1);
                    let end = if filter.newest_first {
                        next.map(|next| next.high + 1)
                    } else {
                        next.map(|next| next.low - 1)
                    };
                    let resume = if has_more_items { None } else { last.or(end) };
                    return Ok(LedgerPage { items, more: has_more_items || resume.is_some(), resume });
                }
            }
        }
        Ok(LedgerPage { items: Vec::new(), more: false, resume: None })
    }

    /// Returns the ranges that may contain times of the filter: from the zone map, and the positions after its last zone.
    pub(crate) async fn ranges_of_times(
        &self,
        filter: &RecordFilter,
        all: PositionRange,
    ) -> Result<Vec<PositionRange>> {
        if filter.since.is_none() && filter.until.is_none() {
            return Ok(vec![all]);
        }
        let since = filter.since.clone().unwrap_or_default();
        // Sorts after every time.
        let until = filter.until.clone().unwrap_or_else(|| "~".to_owned());
        let found = self.one(ZONES, vec![since.into(), until.into()]).await?;
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
        let Some(query) = RecordQuery::parts_of_path(B::PATH_KEY, filter, all) else { return Ok(ranges) };
        let mut parts: Vec<PositionRange> = Vec::new();
        for no in self.0.fetch(query.sql, query.params, filter::read_number).await? {
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
        let has_path = filter.path.is_some() || filter.path_prefix.is_some();
        if !has_path && (filter.run.is_none() || filter.tool.is_none()) {
            return Ok(filter::default_access_path(filter));
        }
        if let Some(run) = &filter.run {
            let length = self.one(RUN_LENGTH, vec![run.as_str().into()]).await?.unwrap_or(0);
            if length <= MAX_SORTED / 10 {
                return Ok(AccessPath::Run);
            }
            if !has_path {
                // A long run may have no record of the tool, and a scan would read all of the run.
                let max = MAX_SORTED.min(length);
                let Some(query) = RecordQuery::count_tool(filter, range, max) else { return Ok(AccessPath::Run) };
                let count = self.0.fetch(query.sql, query.params, filter::read_number).await?;
                let is_rare = count.first().is_some_and(|count| *count <= max);
                return Ok(if is_rare { AccessPath::Tool } else { AccessPath::Run });
            }
        }
        let Some(query) = RecordQuery::count_path(B::PATH_KEY, filter, range) else {
            return Ok(filter::default_access_path(filter));
        };
        let count = self.0.fetch(query.sql, query.params, filter::read_number).await?;
        if count.first().is_some_and(|count| *count <= MAX_SORTED) {
            return Ok(AccessPath::SortedPath);
        }
        Ok(filter::default_access_path(filter))
    }
}
