//! Lists whose items have positions: pages, unreadable items, and conditions that no index has.

use super::Store;
use crate::backend::Backend;
use crate::statement::{PageColumns, Param, RowReader};
use crate::{LedgerPage, PageSize, Result};

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
    pub(crate) newest_first: bool,
    /// Whether items are checked after they are read.
    pub(crate) scans: bool,
}

impl<T> LedgerList<T> {
    fn sql(&self) -> String {
        let Self { select, condition, position, .. } = self;
        let (after, order) = if self.newest_first { ("<", " DESC") } else { (">", "") };
        format!("{select}WHERE {position} {after} $1{condition} ORDER BY {position}{order} LIMIT $2")
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
