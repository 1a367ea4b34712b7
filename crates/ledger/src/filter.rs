//! Translates record filters to queries that both databases execute by an index.
//!
//! One condition is the access path: its index returns rows in order, so that the cost of a page does not depend on the size of
//! the table. The other conditions are checked on each row. They are written as `coalesce(…, false)`, which no index serves, and
//! which PostgreSQL assumes to keep half of the rows. Of `(run_no + 0) = …` it assumed one row in 200, and chose a nested loop
//! over all pairs for a path of 20,000 records.

use std::fmt::Write as _;

use crate::backend::PathKey;
use crate::packed::record_columns;
use crate::rows;
use crate::statement::{Param, RowReader};
use crate::{RecordFilter, Result, StoredRecord};

/// Positions per zone of the zone map, the table `audit_zone`, which contains the first and last time of each zone.
pub(crate) const ZONE_POSITIONS: i64 = 4096;
/// Positions per part of the path index, as a power of two. Each part is sorted by path, so that new records are written to few
/// pages regardless of their paths. A search for a path visits each part.
pub(crate) const PATH_PART_BITS: u32 = 16;
/// Number of characters of [`PathKey::Prefix`].
pub(crate) const PATH_KEY_CHARS: usize = 512;
/// Maximum number of a path's records to collect and sort. For more records, a scan that skips other paths is cheaper.
pub(crate) const MAX_SORTED: i64 = 20_000;

/// The index that a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessPath {
    Run,
    SortedPath,
    Decision,
    Outcome,
    Tool,
    Position,
}

/// Positions from `low` to `high`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PositionRange {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

impl PositionRange {
    /// Returns the rest of the range after `position`, or before it; `None` if it is empty.
    pub(crate) fn after(self, position: i64, newest_first: bool) -> Option<Self> {
        let rest = if newest_first {
            Self { high: position - 1, ..self }
        } else {
            Self { low: position.checked_add(1)?, ..self }
        };
        (rest.low <= rest.high).then_some(rest)
    }

    /// Returns the positions in both ranges; `None` if they do not overlap.
    pub(crate) fn intersection(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }
}

/// The paths that a condition accepts.
enum PathRange<'f> {
    One(&'f str),
    /// From `start` on, without `end`.
    From {
        start: &'f str,
        end: String,
    },
}

impl<'f> PathRange<'f> {
    /// Returns the condition of `filter` that the index serves: that on the path, unless the one on the prefix implies it.
    fn of(filter: &'f RecordFilter) -> Option<Self> {
        match (filter.path.as_deref(), filter.path_prefix.as_deref()) {
            (Some(path), Some(prefix)) if is_under(prefix, path) => Some(Self::starting_with(prefix)),
            (Some(path), _) => Some(match path.strip_suffix('/') {
                None => Self::One(path),
                // `0` is the character after `/`.
                Some(folder) => Self::From { start: path, end: format!("{folder}0") },
            }),
            (None, prefix) => prefix.map(Self::starting_with),
        }
    }

    /// Returns the first path, and the last one or the end.
    fn ends(&self) -> (&str, &str) {
        match self {
            Self::One(path) => (path, path),
            Self::From { start, end } => (start, end),
        }
    }

    /// Whether the first [`PATH_KEY_CHARS`] characters of a path decide if it is in the range: a longer path differs from a shorter end
    /// within its prefix.
    fn is_decided_by_prefix(&self) -> bool {
        let is_short = |text: &str| text.chars().nth(PATH_KEY_CHARS - 1).is_none();
        let (start, end) = self.ends();
        is_short(start) && is_short(end)
    }

    /// The column sorts by bytes, so these are the paths between the prefix and the texts after it.
    fn starting_with(prefix: &'f str) -> Self {
        Self::From { start: prefix, end: format!("{prefix}\u{10ffff}") }
    }
}

/// Returns the first [`PATH_KEY_CHARS`] characters.
fn prefix(text: &str) -> &str {
    text.char_indices().nth(PATH_KEY_CHARS).map_or(text, |(end, _)| &text[..end])
}

/// Whether `folder` ends with `/` and `path` begins with it.
fn is_under(path: &str, folder: &str) -> bool {
    folder.ends_with('/') && path.starts_with(folder)
}

/// A record, and the labels of its run if the filter has labels.
pub(crate) type Labelled = (StoredRecord, Option<String>);

/// Returns the reader of the rows of [`RecordQuery::records`].
pub(crate) fn record_reader(filter: &RecordFilter) -> fn(&dyn RowReader) -> Result<Labelled> {
    // The labels follow the position and the columns of the record.
    if filter.labels.is_empty() {
        |row| Ok((rows::record(row)?, None))
    } else {
        |row| Ok((rows::record(row)?, row.maybe_text(4)?))
    }
}

/// Reads a row of a query that counts or that selects parts.
pub(crate) fn read_number(row: &dyn RowReader) -> Result<i64> {
    row.int(0)
}

/// A query and its parameters.
pub(crate) struct RecordQuery {
    pub(crate) sql: String,
    pub(crate) params: Vec<Param<'static>>,
    path_key: PathKey,
}

impl RecordQuery {
    /// Selects the first `limit` records of `filter` in `range`.
    pub(crate) fn records(
        path_key: PathKey,
        filter: &RecordFilter,
        access: AccessPath,
        range: PositionRange,
        limit: i64,
    ) -> Self {
        let mut query = Self::new(path_key, concat!("SELECT r.position, ", record_columns!("r.")));
        if !filter.labels.is_empty() {
            query.sql.push_str(", (SELECT labels FROM run WHERE run.run_no = r.run_no) AS labels");
        }
        query.sql.push_str(" FROM audit_record r WHERE ");
        if access == AccessPath::Run {
            query.in_run(filter, range);
        } else {
            query.positions(range);
            query.of_run(filter);
        }
        query.path(filter, access, range);
        query.text_columns(filter, access);
        for (value, condition) in [(&filter.since, "r.timestamp >= "), (&filter.until, "r.timestamp < ")] {
            if let Some(value) = value {
                query.and(condition, value.as_str());
            }
        }
        let order = if access == AccessPath::Run { "r.seq" } else { "r.position" };
        let _ = write!(query.sql, " ORDER BY {order}{} LIMIT ", if filter.newest_first { " DESC" } else { "" });
        query.value(limit);
        query
    }

    fn new(path_key: PathKey, sql: &str) -> Self {
        Self { sql: sql.to_owned(), params: Vec::new(), path_key }
    }

    /// Counts the records of the filter's path in `range`, up to one more than [`MAX_SORTED`].
    pub(crate) fn count_path(path_key: PathKey, filter: &RecordFilter, range: PositionRange) -> Option<Self> {
        let paths = PathRange::of(filter)?;
        Some(Self::count(path_key, MAX_SORTED, |query| query.positions_of(&paths, range)))
    }

    /// Selects the numbers of the parts in which the filter's path has records in `range`.
    pub(crate) fn parts_of_path(path_key: PathKey, filter: &RecordFilter, range: PositionRange) -> Option<Self> {
        let paths = PathRange::of(filter)?;
        let mut query = Self::new(path_key, "");
        query.parts(range);
        query.sql.push_str("SELECT no FROM part WHERE EXISTS (SELECT 1 FROM record_path p WHERE ");
        query.in_part(&paths, range);
        query.sql.push_str(") ORDER BY no");
        Some(query)
    }

    /// Counts the records of the filter's tool in `range`, over all runs, up to one more than `max`.
    pub(crate) fn count_tool(filter: &RecordFilter, range: PositionRange, max: i64) -> Option<Self> {
        let tool = filter.tool.as_deref().filter(|tool| !tool.ends_with('*'))?;
        Some(Self::count(PathKey::Path, max, |query| {
            query.sql.push_str("SELECT 1 FROM audit_record p WHERE p.tool = ");
            query.value(tool);
            query.and("p.position >= ", range.low);
            query.and("p.position <= ", range.high);
        }))
    }

    /// Counts the rows of the query that `rows` writes, up to one more than `max`.
    fn count(path_key: PathKey, max: i64, rows: impl FnOnce(&mut Self)) -> Self {
        let mut query = Self::new(path_key, "SELECT count(*) FROM (");
        rows(&mut query);
        query.sql.push_str(" LIMIT ");
        query.value(max + 1);
        query.sql.push_str(") AS found");
        query
    }

    /// Adds the condition that the position is in `range`.
    fn positions(&mut self, range: PositionRange) {
        self.sql.push_str("r.position >= ");
        self.value(range.low);
        self.and("r.position <= ", range.high);
    }

    /// Adds the condition on the run, without its index.
    fn of_run(&mut self, filter: &RecordFilter) {
        let Some(run) = &filter.run else { return };
        let name = self.param(run.as_str());
        let _ = write!(self.sql, " AND coalesce(r.run_no = (SELECT run_no FROM run WHERE run_id = {name}), false)");
    }

    /// Adds the condition on the run by its index on `seq`, which increases with `position`, from the low end of `range` on.
    fn in_run(&mut self, filter: &RecordFilter, range: PositionRange) {
        let run = filter.run.as_ref().map_or("", |run| run.as_str());
        let run_no = format!("(SELECT run_no FROM run WHERE run_id = {})", self.param(run));
        let _ = write!(self.sql, "r.run_no = {run_no}");
        if excludes_successful(filter) {
            // Exactly the condition of the partial index.
            self.sql.push_str(" AND (r.decision <> 'ALLOW' OR r.outcome <> 'ok')");
        }
        if range.low > 0 {
            self.sql.push_str(" AND r.seq > ");
            self.last_seq_before(&run_no, range.low);
        }
        if range.high < i64::MAX {
            self.sql.push_str(" AND r.seq <= ");
            self.last_seq_before(&run_no, range.high + 1);
        }
    }

    /// Adds the `seq` of the run's last record before `position`, or 0.
    ///
    /// If the record before it belongs to the run, its `seq` is used. Otherwise a binary search finds the record, which is
    /// possible because `seq` has no gaps.
    fn last_seq_before(&mut self, run_no: &str, position: i64) {
        let end = self.param(position);
        let _ = write!(
            self.sql,
            "coalesce(\
             (SELECT c.seq FROM audit_record c WHERE c.position = {end} - 1 AND (c.run_no + 0) = {run_no}), \
             (WITH RECURSIVE half (before, after) AS (\
             SELECT CAST(0 AS bigint), head_seq + 1 FROM run_head WHERE run_no = {run_no} \
             UNION ALL SELECT CASE WHEN c.position < {end} THEN c.seq ELSE half.before END, \
             CASE WHEN c.position < {end} THEN half.after ELSE c.seq END \
             FROM half CROSS JOIN audit_record c \
             WHERE half.after - half.before > 1 AND c.run_no = {run_no} AND c.seq = (half.before + half.after) / 2) \
             SELECT max(before) FROM half), 0)"
        );
    }

    /// Adds the condition on the path.
    fn path(&mut self, filter: &RecordFilter, access: AccessPath, range: PositionRange) {
        let Some(paths) = PathRange::of(filter) else { return };
        if access == AccessPath::SortedPath {
            self.sql.push_str(" AND r.position IN (");
            self.positions_of(&paths, range);
        } else {
            self.sql.push_str(" AND EXISTS (SELECT 1 FROM record_path p WHERE p.position = r.position AND ");
            self.in_paths(&paths);
            // Otherwise a merge join of the two tables by position would start at the first or last position. Of the range,
            // only the end at which the search begins: for a bounded one the planner may collect all of its paths.
            if filter.newest_first {
                self.and("p.position <= ", range.high);
            } else {
                self.and("p.position >= ", range.low);
            }
        }
        self.sql.push(')');
    }

    /// Adds a query for the positions of the paths' records in `range`, by the parts of the index, unsorted.
    fn positions_of(&mut self, paths: &PathRange<'_>, range: PositionRange) {
        self.parts(range);
        self.sql.push_str("SELECT p.position FROM part CROSS JOIN record_path p WHERE ");
        self.in_part(paths, range);
    }

    /// Adds a `WITH` clause for the table `part (no)`: the parts of the path index that `range` overlaps.
    fn parts(&mut self, range: PositionRange) {
        let [first, last] = [range.low, range.high].map(|end| self.param(end >> PATH_PART_BITS));
        let _ = write!(
            self.sql,
            "WITH RECURSIVE part (no) AS (SELECT {first} UNION ALL SELECT no + 1 FROM part \
             WHERE no < {last} AND no < (SELECT max(position) >> {PATH_PART_BITS} FROM record_path)) "
        );
    }

    /// Adds the condition that a row of the path index is in `part`, of one of the paths and in `range`.
    fn in_part(&mut self, paths: &PathRange<'_>, range: PositionRange) {
        let _ = write!(self.sql, "(p.position >> {PATH_PART_BITS}) = part.no AND ");
        self.in_paths(paths);
        self.and("p.position >= ", range.low);
        self.and("p.position <= ", range.high);
    }

    /// Adds the condition on the path.
    fn in_paths(&mut self, paths: &PathRange<'_>) {
        if self.path_key == PathKey::Prefix {
            let column = format!("substr(p.path, 1, {PATH_KEY_CHARS})");
            if paths.is_decided_by_prefix() {
                return self.in_range(&column, paths);
            }
            // Of two texts in order, the prefixes are in the same order or equal.
            let (start, end) = paths.ends();
            let _ = write!(self.sql, "{column} >= ");
            self.value(prefix(start));
            self.and(&format!("{column} <= "), prefix(end));
            self.sql.push_str(" AND ");
        }
        self.in_range("p.path", paths);
    }

    fn in_range(&mut self, column: &str, paths: &PathRange<'_>) {
        match paths {
            PathRange::One(path) => {
                let _ = write!(self.sql, "{column} = ");
                self.value(*path);
            }
            PathRange::From { start, end } => {
                let _ = write!(self.sql, "{column} >= ");
                self.value(*start);
                self.and(&format!("{column} < "), end.as_str());
            }
        }
    }

    /// Adds the conditions on `decision`, `outcome` and `tool`.
    fn text_columns(&mut self, filter: &RecordFilter, access: AccessPath) {
        let columns = [
            (&filter.decision, "r.decision", AccessPath::Decision, " AND r.decision <> 'ALLOW'"),
            (&filter.outcome, "r.outcome", AccessPath::Outcome, " AND r.outcome <> 'ok'"),
            (&filter.tool, "r.tool", AccessPath::Tool, ""),
        ];
        for (value, column, index, partial) in columns {
            let Some(value) = value else { continue };
            if index == AccessPath::Tool && unindexed_tool_prefix(filter).is_some() {
                continue;
            }
            if let Some(prefix) = (index == AccessPath::Tool).then(|| value.strip_suffix('*')).flatten() {
                // The column sorts by bytes, so these are the tools between the prefix and the texts after it.
                self.and(&format!("({column} || '') >= "), prefix);
                self.and(&format!("({column} || '') < "), format!("{prefix}\u{10ffff}"));
                continue;
            }
            if index == access {
                self.sql.push_str(partial);
                self.and(&format!("{column} = "), value.as_str());
            } else {
                self.and(&format!("coalesce({column} = "), value.as_str());
                self.sql.push_str(", false)");
            }
        }
    }

    /// Adds a further condition, which ends with `value`.
    fn and(&mut self, condition: &str, value: impl Into<Param<'static>>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.value(value);
    }

    /// Adds a value, as a parameter.
    fn value(&mut self, value: impl Into<Param<'static>>) {
        let name = self.param(value);
        self.sql.push_str(&name);
    }

    /// Appends a parameter and returns its name.
    fn param(&mut self, value: impl Into<Param<'static>>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }
}

/// Returns the start of the tools' names that the filter asks for over all runs. No index has it, and a query for a start that no
/// name has would read every record. Within a run, its index bounds the query.
pub(crate) fn unindexed_tool_prefix(filter: &RecordFilter) -> Option<&str> {
    if filter.run.is_some() {
        return None;
    }
    filter.tool.as_deref()?.strip_suffix('*')
}

/// Returns the start of a path that the filter asks for beside another path, of which a record may have both. The index serves
/// one of two conditions: a query for two frequent ones that no record has would read every record of the one.
pub(crate) fn unindexed_path_prefix(filter: &RecordFilter) -> Option<&str> {
    let (path, prefix) = (filter.path.as_deref()?, filter.path_prefix.as_deref()?);
    // One implies the other.
    (!path.starts_with(prefix) && !is_under(prefix, path)).then_some(prefix)
}

/// Returns whether the filter excludes the records of allowed and successful calls, which have no code.
fn excludes_successful(filter: &RecordFilter) -> bool {
    filter.code.is_some()
        || filter.decision.as_ref().is_some_and(|decision| decision != "ALLOW")
        || filter.outcome.as_ref().is_some_and(|outcome| outcome != "ok")
}

/// Returns the access path of a filter, without counting the records of its path and tool.
pub(crate) fn default_access_path(filter: &RecordFilter) -> AccessPath {
    if filter.run.is_some() {
        AccessPath::Run
    } else if filter.decision.as_ref().is_some_and(|decision| decision != "ALLOW") {
        AccessPath::Decision
    } else if filter.outcome.as_ref().is_some_and(|outcome| outcome != "ok") {
        AccessPath::Outcome
    } else if filter.tool.as_ref().is_some_and(|tool| !tool.ends_with('*')) {
        AccessPath::Tool
    } else {
        AccessPath::Position
    }
}

/// Returns whether the filter contains a NUL, which no indexed text contains and PostgreSQL rejects.
pub(crate) fn matches_nothing(filter: &RecordFilter) -> bool {
    let RecordFilter { tool, decision, outcome, path, since, until, path_prefix, .. } = filter;
    [tool, decision, outcome, path, since, until, path_prefix]
        .into_iter()
        .any(|value| value.as_ref().is_some_and(|text| text.contains('\0')))
}
