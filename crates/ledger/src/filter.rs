//! Which records to list, as SQL that both databases answer by an index.
//!
//! One condition drives: its index gives rows in order, so that a page costs what a page holds. The others are checked on
//! each row, and are written so that no planner takes their index instead.

use std::fmt::Write as _;

use crate::RecordFilter;
use crate::backend::Arg;

/// Positions in a row of `audit_zone`.
pub(crate) const ZONE: i64 = 4096;
/// Positions that lie together in the index by path, as a power of two: new records go to few of its pages, however many
/// paths there are, and a path is looked for in each such part.
pub(crate) const PART_BITS: u32 = 16;
/// Up to so many records of a path are gathered and sorted; where there are more, walking past others is cheaper.
pub(crate) const GATHERED: i64 = 20_000;

/// What the rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Run,
    GatheredPath,
    Decision,
    Outcome,
    Tool,
    Position,
}

/// Positions of interest, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

impl Range {
    /// What lies in both; `None` where nothing does.
    pub(crate) fn within(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }
}

/// A query and its values.
pub(crate) struct Query {
    pub(crate) sql: String,
    pub(crate) args: Vec<Arg>,
}

impl Query {
    /// The records of `filter` in `range`, the first `limit`.
    pub(crate) fn records(filter: &RecordFilter, driver: Driver, range: Range, limit: i64) -> Self {
        let mut query =
            Self { sql: String::from("SELECT r.position, r.body FROM audit_record r WHERE "), args: Vec::new() };
        if driver == Driver::Run {
            query.in_run(filter, range);
        } else {
            query.place(range);
            query.of_run(filter);
        }
        query.path(filter, driver, range);
        query.words(filter, driver);
        for (value, condition) in [(&filter.since, "r.timestamp >= "), (&filter.until, "r.timestamp < ")] {
            if let Some(value) = value {
                query.and(condition, value.as_str());
            }
        }
        query.sql.push_str(match driver {
            Driver::Run => " ORDER BY r.seq LIMIT ",
            _ => " ORDER BY r.position LIMIT ",
        });
        query.value(limit);
        query
    }

    /// How many records of the filter's path there are in `range`; stops counting behind [`GATHERED`].
    pub(crate) fn count_path(filter: &RecordFilter, range: Range) -> Option<Self> {
        let path = filter.path.as_deref()?;
        Some(Self::count(GATHERED, |query| query.positions_of(path, range)))
    }

    /// The numbers of the parts in which the filter's path has records in `range`.
    pub(crate) fn parts_of_path(filter: &RecordFilter, range: Range) -> Option<Self> {
        let path = filter.path.as_deref()?;
        let mut query = Self { sql: String::new(), args: Vec::new() };
        query.parts(range);
        query.sql.push_str("SELECT no FROM part WHERE EXISTS (SELECT 1 FROM record_path p WHERE ");
        query.in_part(path, range);
        query.sql.push_str(") ORDER BY no");
        Some(query)
    }

    /// How many records of the filter's tool there are in `range`, over all runs; stops counting behind `most`.
    pub(crate) fn count_tool(filter: &RecordFilter, range: Range, most: i64) -> Option<Self> {
        let tool = filter.tool.as_deref()?;
        Some(Self::count(most, |query| {
            query.sql.push_str("SELECT 1 FROM audit_record p WHERE p.tool = ");
            query.value(tool);
            query.and("p.position >= ", range.low);
            query.and("p.position <= ", range.high);
        }))
    }

    /// How many rows there are of what `rows` writes.
    fn count(most: i64, rows: impl FnOnce(&mut Self)) -> Self {
        let mut query = Self { sql: "SELECT count(*) FROM (".to_owned(), args: Vec::new() };
        rows(&mut query);
        query.sql.push_str(" LIMIT ");
        query.value(most + 1);
        query.sql.push_str(") AS found");
        query
    }

    fn place(&mut self, range: Range) {
        self.sql.push_str("r.position >= ");
        self.value(range.low);
        self.and("r.position <= ", range.high);
    }

    fn of_run(&mut self, filter: &RecordFilter) {
        let Some(run) = &filter.run else { return };
        let name = self.next(run.as_str());
        let _ = write!(self.sql, " AND (r.run_no + 0) = (SELECT run_no FROM run WHERE run_id = {name})");
    }

    /// The run's records from `range`'s lower end on, by the run's own index: it has `seq`, which grows with `position`.
    fn in_run(&mut self, filter: &RecordFilter, range: Range) {
        let run = filter.run.as_ref().map_or("", |run| run.as_str());
        let run_no = format!("(SELECT run_no FROM run WHERE run_id = {})", self.next(run));
        let _ = write!(self.sql, "r.run_no = {run_no}");
        if is_refused(filter) {
            // As its index says it, word for word.
            self.sql.push_str(" AND (r.decision <> 'ALLOW' OR r.outcome <> 'ok')");
        }
        if range.low > 0 {
            // The cursor's own record tells `seq` at once. Another run's does not: the last one before it is looked for, by
            // halves, since `seq` has no gap.
            let low = self.next(range.low);
            let _ = write!(
                self.sql,
                " AND r.seq > coalesce(\
                 (SELECT c.seq FROM audit_record c WHERE c.position = {low} - 1 AND (c.run_no + 0) = {run_no}), \
                 (WITH RECURSIVE half (before, behind) AS (\
                 SELECT CAST(0 AS bigint), head_seq + 1 FROM run_head WHERE run_no = {run_no} \
                 UNION ALL SELECT CASE WHEN c.position < {low} THEN c.seq ELSE half.before END, \
                 CASE WHEN c.position < {low} THEN half.behind ELSE c.seq END \
                 FROM half CROSS JOIN audit_record c \
                 WHERE half.behind - half.before > 1 AND c.run_no = {run_no} AND c.seq = (half.before + half.behind) / 2) \
                 SELECT max(before) FROM half), 0)"
            );
        }
    }

    fn path(&mut self, filter: &RecordFilter, driver: Driver, range: Range) {
        let Some(path) = filter.path.as_deref() else { return };
        if driver == Driver::GatheredPath {
            self.sql.push_str(" AND r.position IN (");
            self.positions_of(path, range);
        } else {
            self.sql.push_str(" AND EXISTS (SELECT 1 FROM record_path p WHERE p.position = r.position AND ");
            self.beneath(path);
            // A planner that joins the two by their order would begin at the very first.
            self.and("p.position >= ", range.low);
        }
        self.sql.push(')');
    }

    /// The positions of `path`'s records in `range`, part by part of the index; in no order.
    fn positions_of(&mut self, path: &str, range: Range) {
        self.parts(range);
        self.sql.push_str("SELECT p.position FROM part CROSS JOIN record_path p WHERE ");
        self.in_part(path, range);
    }

    /// The parts of the index by path that `range` touches, as a table `part (no)`.
    fn parts(&mut self, range: Range) {
        let [first, last] = [range.low, range.high].map(|end| self.next(end >> PART_BITS));
        let _ = write!(
            self.sql,
            "WITH RECURSIVE part (no) AS (SELECT {first} UNION ALL SELECT no + 1 FROM part \
             WHERE no < {last} AND no < (SELECT max(position) >> {PART_BITS} FROM record_path)) "
        );
    }

    fn in_part(&mut self, path: &str, range: Range) {
        let _ = write!(self.sql, "(p.position >> {PART_BITS}) = part.no AND ");
        self.beneath(path);
        self.and("p.position >= ", range.low);
        self.and("p.position <= ", range.high);
    }

    /// `path` itself, or all beneath it where it ends with `/`.
    fn beneath(&mut self, path: &str) {
        match path.strip_suffix('/') {
            None => {
                self.sql.push_str("p.path = ");
                self.value(path);
            }
            Some(folder) => {
                self.sql.push_str("p.path >= ");
                self.value(path);
                self.sql.push_str(" AND p.path < ");
                // `0` is the character behind `/`.
                self.value(format!("{folder}0"));
            }
        }
    }

    fn words(&mut self, filter: &RecordFilter, driver: Driver) {
        let words = [
            (&filter.decision, "r.decision", Driver::Decision, " AND r.decision <> 'ALLOW'"),
            (&filter.outcome, "r.outcome", Driver::Outcome, " AND r.outcome <> 'ok'"),
            (&filter.tool, "r.tool", Driver::Tool, ""),
        ];
        for (value, column, drives, partial) in words {
            let Some(value) = value else { continue };
            if drives == driver {
                self.sql.push_str(partial);
                self.and(&format!("{column} = "), value.as_str());
            } else {
                self.and(&format!("({column} || '') = "), value.as_str());
            }
        }
    }

    fn and(&mut self, condition: &str, value: impl Into<Arg>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.value(value);
    }

    fn value(&mut self, value: impl Into<Arg>) {
        let name = self.next(value);
        self.sql.push_str(&name);
    }

    /// Takes a value; the answer is its name.
    fn next(&mut self, value: impl Into<Arg>) -> String {
        self.args.push(value.into());
        name(self.args.len())
    }
}

fn name(number: usize) -> String {
    format!("${number}")
}

/// Whether only records are asked for that were refused, or that wait or failed.
fn is_refused(filter: &RecordFilter) -> bool {
    filter.decision.as_ref().is_some_and(|word| word != "ALLOW")
        || filter.outcome.as_ref().is_some_and(|word| word != "ok")
}

/// What drives where neither a path nor a tool has been counted.
pub(crate) fn driver(filter: &RecordFilter) -> Driver {
    if filter.run.is_some() {
        Driver::Run
    } else if filter.decision.as_ref().is_some_and(|word| word != "ALLOW") {
        Driver::Decision
    } else if filter.outcome.as_ref().is_some_and(|word| word != "ok") {
        Driver::Outcome
    } else if filter.tool.is_some() {
        Driver::Tool
    } else {
        Driver::Position
    }
}

/// Whether the filter holds what no record has: text that not every database can even compare with.
pub(crate) fn is_empty(filter: &RecordFilter) -> bool {
    [&filter.tool, &filter.decision, &filter.outcome, &filter.path, &filter.since, &filter.until]
        .into_iter()
        .any(|value| value.as_ref().is_some_and(|text| text.contains('\0')))
}
