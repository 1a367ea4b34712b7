//! The paths that a run has written.

use std::collections::BTreeSet;

use ledger::Ledger;
use model::{LogicalPath, RunId};
use serde::Deserialize;

use crate::CallError;

/// Records that are read at a time.
const PAGE: u32 = 500;

/// Returns every path that `run` has written.
///
/// # Errors
///
/// If the ledger fails.
pub async fn touched_paths(ledger: &dyn Ledger, run: &RunId) -> Result<BTreeSet<LogicalPath>, CallError> {
    let mut paths = BTreeSet::new();
    let until = ledger.run(run).await?.map_or(0, |stored| stored.run.head_seq);
    let mut since = 0;
    // Calls that are recorded during the scan add their paths themselves.
    while since < until {
        let page = ledger.changes(run, since, PAGE.into()).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let record: WrittenPaths =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            since = record.seq;
            paths.extend(record.paths_written);
        }
    }
    Ok(paths)
}

/// The part of a record that names the written paths. The rest is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPaths {
    seq: u64,
    paths_written: Vec<LogicalPath>,
}
