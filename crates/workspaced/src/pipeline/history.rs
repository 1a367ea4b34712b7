//! Earlier calls that a plan needs.

use std::collections::BTreeSet;

use model::{ArtifactId, LogicalPath, Record, RunId};

use crate::CallError;
use crate::service::Service;
use crate::tools::{History, PastCall};

/// Records looked at in one go.
const PAGE: u32 = 500;

/// The mutations of `run` that `wanted` names and that have changed files, oldest first.
pub(super) async fn find(service: &Service, run: &RunId, wanted: History) -> Result<Vec<PastCall>, CallError> {
    let mut since = match &wanted {
        History::Calls(_) => 0,
        History::After(seq) => *seq,
    };
    let mut found = Vec::new();
    loop {
        let page = service.0.ledger.changes(run, since, PAGE).await?;
        if page.is_empty() {
            return Ok(found);
        }
        for stored in page {
            let record: Record =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            since = record.seq;
            if asks_for(&wanted, &record) && !record.paths_written.is_empty() {
                let diff = diff_of(service, run, &record).await?;
                found.push(PastCall { record, diff });
            }
        }
    }
}

/// Every path that `run` has written.
pub(super) async fn written(service: &Service, run: &RunId) -> Result<BTreeSet<LogicalPath>, CallError> {
    let mut written = BTreeSet::new();
    let mut since = 0;
    loop {
        let page = service.0.ledger.changes(run, since, PAGE).await?;
        if page.is_empty() {
            return Ok(written);
        }
        for stored in page {
            let record: Record =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            since = record.seq;
            written.extend(record.paths_written);
        }
    }
}

fn asks_for(wanted: &History, record: &Record) -> bool {
    match wanted {
        History::Calls(ids) => ids.contains(&record.tool_call_id),
        History::After(seq) => record.seq > *seq,
    }
}

async fn diff_of(service: &Service, run: &RunId, record: &Record) -> Result<Vec<u8>, CallError> {
    let mut diff = Vec::new();
    for uri in &record.artifact_uris {
        let id = uri.rsplit('/').next().and_then(|raw| ArtifactId::parse(raw).ok());
        if let Some(id) = id {
            diff.extend(service.0.ledger.artifact(run, &id).await?.unwrap_or_default());
        }
    }
    Ok(diff)
}
