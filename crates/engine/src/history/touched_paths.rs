//! The paths that a run has written.

use std::collections::BTreeSet;

use ledger::Ledger;
use model::{LogicalPath, RunId};
use serde::Deserialize;

use crate::CallError;
use crate::run::changes::{ChangeRecord, Changes};

/// Returns every path that `run` has written.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn touched_paths(ledger: &dyn Ledger, run: &RunId) -> Result<BTreeSet<LogicalPath>, CallError> {
    // Calls that are recorded during the scan add their paths themselves.
    written_until(ledger, run, u64::MAX).await
}

/// Returns every path that `run` has written up to its record `seq`.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn written_until(
    ledger: &dyn Ledger,
    run: &RunId,
    seq: u64,
) -> Result<BTreeSet<LogicalPath>, CallError> {
    let mut paths = BTreeSet::new();
    let mut changes = Changes::after(ledger, run, 0);
    while let Some(record) = changes.next::<WrittenPaths>().await?.filter(|record| record.seq <= seq) {
        paths.extend(record.paths_written);
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

impl ChangeRecord for WrittenPaths {
    fn seq(&self) -> u64 {
        self.seq
    }
}
