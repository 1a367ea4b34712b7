//! The newest record of each of several actors in a run.

use std::collections::HashMap;

use ledger::{Ledger, RecordFilter, RecordReader};
use model::RunId;
use serde::Deserialize;

use crate::CallError;

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
    let (mut found, mut records) = (HashMap::new(), RecordReader::new(ledger, filter));
    let mut reached = u64::MAX;
    for _ in 0..max {
        if wanted.values().all(|down_to| reached <= *down_to) {
            break;
        }
        let Some(record) = next(&mut records).await? else { break };
        reached = record.seq;
        if wanted.remove(&record.actor).is_some() {
            found.insert(record.actor.clone(), record);
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
    let (mut found, mut records) = (HashMap::new(), RecordReader::new(ledger, filter));
    for _ in 0..max {
        let Some(record) = next(&mut records).await?.filter(|record| record.seq >= down_to) else { break };
        found.entry(record.actor).or_insert(record.seq);
    }
    Ok(found)
}

async fn next(records: &mut RecordReader<'_>) -> Result<Option<LastRecord>, CallError> {
    let Some(stored) = records.next().await? else { return Ok(None) };
    serde_json::from_str(&stored.text).map(Some).map_err(|error| CallError::Internal(Box::new(error)))
}
