//! Pages of lists, limited by rows and by bytes.

use std::ops::Deref;

/// The default limit of a page in bytes.
const DEFAULT_BYTES: u64 = 4 << 20;

/// The limits of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Maximum number of rows.
    pub rows: u32,
    /// The page ends with the row at which its stored texts reach this many bytes. It has at least one row, regardless of the
    /// size of that row.
    pub bytes: u64,
}

impl PageSize {
    /// No limits.
    pub(crate) const UNLIMITED: Self = Self { rows: u32::MAX, bytes: u64::MAX };

    /// Returns a size of at most `rows` rows and 4 MiB.
    pub fn rows(rows: u32) -> Self {
        Self { rows, bytes: DEFAULT_BYTES }
    }

    /// Returns the same size with another limit in bytes.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the `LIMIT` to query with: one row more than the page may have, which shows whether another page follows.
    pub(crate) fn query_limit(self) -> i64 {
        i64::from(self.rows) + 1
    }
}

impl From<u32> for PageSize {
    fn from(rows: u32) -> Self {
        Self::rows(rows)
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Whether another page follows.
    pub more: bool,
    /// The position after which the next page continues, if it is not that of the last item: a search stops after a bounded
    /// number of rows, whether they match or not.
    pub resume: Option<i64>,
}

impl<T> LedgerPage<T> {
    /// Returns the page with each item converted.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> LedgerPage<U> {
        LedgerPage { items: self.items.into_iter().map(convert).collect(), more: self.more, resume: self.resume }
    }
}

impl<T> LedgerPage<(i64, T)> {
    /// Returns the position after which the next page begins; `None` if this is the last one.
    pub fn next(&self) -> Option<i64> {
        let last = self.items.last().map(|(position, _)| *position);
        self.resume.or(last).filter(|_| self.more)
    }
}

impl<T> Deref for LedgerPage<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for LedgerPage<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}
