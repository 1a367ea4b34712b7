//! The records of a run's changes, one after another.

use std::vec;

use ledger::{Ledger, StoredRecord};
use model::{Record, RunId};
use serde::de::DeserializeOwned;

use crate::CallError;

/// Records that are read at a time.
const PAGE: u32 = 500;

/// Reads the successful mutations of a run in order, dry runs included. Pages are read as they are needed.
pub(crate) struct Changes<'a> {
    ledger: &'a dyn Ledger,
    run: &'a RunId,
    since: u64,
    page: vec::IntoIter<StoredRecord>,
    more: bool,
}

/// A record, or the members of it that matter. The others are not parsed.
pub(crate) trait ChangeRecord: DeserializeOwned {
    /// Its number in the run.
    fn seq(&self) -> u64;
}

impl ChangeRecord for Record {
    fn seq(&self) -> u64 {
        self.seq
    }
}

impl<'a> Changes<'a> {
    /// Begins after the record `since`.
    pub(crate) fn after(ledger: &'a dyn Ledger, run: &'a RunId, since: u64) -> Self {
        Self { ledger, run, since, page: Vec::new().into_iter(), more: true }
    }

    /// Returns the next record; `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the ledger fails, or a record cannot be read.
    pub(crate) async fn next<T: ChangeRecord>(&mut self) -> Result<Option<T>, CallError> {
        if self.page.len() == 0 && self.more {
            let page = self.ledger.changes(self.run, self.since, PAGE.into()).await?;
            self.more = page.more;
            self.page = page.into_iter();
        }
        let Some(stored) = self.page.next() else { return Ok(None) };
        let record: T = serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
        self.since = record.seq();
        Ok(Some(record))
    }

    /// Returns the number of the last record that was read.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }
}
