//! Pages of lists: bounded by their rows and by their bytes.

use std::ops::Deref;

/// The bytes of a page where its caller names no other bound.
pub const PAGE_BYTES: u64 = 4 << 20;

/// The bounds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// The most rows.
    pub rows: u32,
    /// The page ends with the row with which its stored texts have this many bytes or more. It has at least one row, however
    /// large that is.
    pub bytes: u64,
}

impl PageSize {
    /// At most `rows` rows, and [`PAGE_BYTES`].
    pub fn rows(rows: u32) -> Self {
        Self { rows, bytes: PAGE_BYTES }
    }

    /// The same rows with another bound of bytes.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// One row more than the page may have: whether that is there says whether there is another page.
    pub(crate) fn rows_to_ask(self) -> i64 {
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
pub struct Page<T> {
    /// What is on it, in order.
    pub items: Vec<T>,
    /// Whether more follows.
    pub more: bool,
}

impl<T> Page<T> {
    /// The same page with other items.
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(each).collect(), more: self.more }
    }
}

impl<T> Deref for Page<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for Page<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}
