//! Earlier calls that a plan needs.

use std::collections::BTreeSet;

use ledger::RecordFilter;
use model::{ArtifactId, LogicalPath, Outcome, Record, RunId};

use crate::CallError;
use crate::service::Service;
use crate::tools::{History, PastCall};

/// Records looked at in one go.
const PAGE: u32 = 500;

/// The mutations of `run` that `wanted` names and that have changed files, oldest first.
pub(super) async fn find(service: &Service, run: &RunId, wanted: History) -> Result<Vec<PastCall>, CallError> {
    let filter = RecordFilter { run: Some(run.clone()), outcome: Some("ok".to_owned()), ..RecordFilter::default() };
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = service.0.ledger.records(&filter, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.position);
        for stored in &page {
            let record: Record =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            if asks_for(&wanted, &record) && record.outcome == Outcome::Ok && !record.paths_written.is_empty() {
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
