//! The newest record of each of several actors in a run.

use std::collections::HashMap;

use ledger::{Ledger, PageSize, RecordFilter};
use model::RunId;
use serde::Deserialize;

use crate::CallError;

/// Records that are read at a time.
const PAGE: u32 = 500;

/// The members of a record that matter here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct LastRecord {
    /// Its number in the run.
    pub(crate) seq: u64,
    /// Whose record it is.
    actor: String,
    /// When it was made, RFC 3339 UTC.
    pub(crate) timestamp: String,
}

/// Returns the newest record of each actor of `wanted` in `run`, by the actor. With each actor comes the number of the record down to
/// which it matters. Only the newest `max` records are searched: an actor that has none among them is missing.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn last_records(
    ledger: &dyn Ledger,
    run: &RunId,
    mut wanted: HashMap<String, u64>,
    max: usize,
) -> Result<HashMap<String, LastRecord>, CallError> {
    let filter = RecordFilter { run: Some(run.clone()), newest_first: true, ..RecordFilter::default() };
    let (mut found, mut after, mut searched) = (HashMap::new(), None, 0);
    while !wanted.is_empty() && searched < max {
        let page = ledger.records(&filter, after, PageSize::rows(PAGE)).await?;
        let Some(last) = page.last() else { break };
        after = Some(page.resume.unwrap_or(last.position));
        let (more, mut reached) = (page.more, 0);
        searched += page.len();
        for stored in page {
            let record: LastRecord =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            reached = record.seq;
            if wanted.remove(&record.actor).is_some() {
                found.insert(record.actor.clone(), record);
            }
        }
        wanted.retain(|_, down_to| reached > *down_to);
        if !more {
            break;
        }
    }
    Ok(found)
}

/// Returns the number of the newest record of every actor in `run` that has one from `down_to` on, among the newest `max` records.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn last_of_all(
    ledger: &dyn Ledger,
    run: &RunId,
    down_to: u64,
    max: usize,
) -> Result<HashMap<String, u64>, CallError> {
    let filter = RecordFilter { run: Some(run.clone()), newest_first: true, ..RecordFilter::default() };
    let (mut found, mut after, mut searched) = (HashMap::new(), None, 0);
    while searched < max {
        let page = ledger.records(&filter, after, PageSize::rows(PAGE)).await?;
        let Some(last) = page.last() else { break };
        after = Some(page.resume.unwrap_or(last.position));
        let (more, mut reached) = (page.more, u64::MAX);
        searched += page.len();
        for stored in page {
            let record: LastRecord =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            reached = record.seq;
            found.entry(record.actor).or_insert(record.seq);
        }
        if !more || reached <= down_to {
            break;
        }
    }
    Ok(found)
}
