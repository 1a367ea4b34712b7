//! Records that match a filter, one after another.

use std::vec;

use crate::{Ledger, RecordFilter, Result, StoredRecord};

/// Records that are read at a time.
const PAGE: u32 = 500;

/// Reads the records that match a filter in its order. Pages are read as they are needed.
pub struct RecordReader<'a> {
    ledger: &'a dyn Ledger,
    filter: RecordFilter,
    after: Option<i64>,
    page: vec::IntoIter<StoredRecord>,
    more: bool,
}

impl<'a> RecordReader<'a> {
    /// Begins with the first record that matches `filter`.
    pub fn new(ledger: &'a dyn Ledger, filter: RecordFilter) -> Self {
        Self { ledger, filter, after: None, page: Vec::new().into_iter(), more: true }
    }

    /// Returns the next record; `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn next(&mut self) -> Result<Option<StoredRecord>> {
        loop {
            if let Some(record) = self.page.next() {
                return Ok(Some(record));
            }
            if !self.more {
                return Ok(None);
            }
            let page = self.ledger.records(&self.filter, self.after, PAGE.into()).await?;
            // A page may be empty although others follow: a search stops after a bounded number of rows.
            let last = page.items.last().map(|record| record.position);
            self.after = page.resume.or(last);
            self.more = page.more && self.after.is_some();
            self.page = page.items.into_iter();
        }
    }
}
