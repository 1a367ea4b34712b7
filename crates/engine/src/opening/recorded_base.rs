//! What a run started from, according to its records.

use async_recursion::async_recursion as boxed;
use ledger::{Ledger, RecordFilter};
use model::{MIGRATE_TOOL, Record, Run, Sha256};
use serde_json::{Map, Value};
use workspace::RecordedBase;

use crate::CallError;
use crate::history::content_history;

/// Records of a tool that are looked at.
const PAGE: u32 = 100;

/// Returns what `run` started from: by the record of its migration to an object store, if it has one, and else by that of its creation or
/// of its import. `None` if no record says it.
///
/// # Errors
///
/// If the ledger fails, or a record cannot be read.
#[boxed]
pub async fn recorded_base(ledger: &dyn Ledger, run: &Run) -> Result<Option<RecordedBase>, CallError> {
    let Some(commit) = &run.base_commit else { return Ok(None) };
    let migrated = named_by(ledger, run, MIGRATE_TOOL, commit).await?;
    if migrated.is_some() {
        return Ok(migrated);
    }
    let created = ledger.record(&run.run_id, 1).await?;
    let created = created.map(|stored| content_history::parse(&stored.text)).transpose()?;
    match created.and_then(|record| base_of(record, commit)) {
        None => named_by(ledger, run, "run.import", commit).await,
        created => Ok(created),
    }
}

/// Returns the base that the newest record of `tool` names which names that of `commit`.
async fn named_by(ledger: &dyn Ledger, run: &Run, tool: &str, commit: &str) -> Result<Option<RecordedBase>, CallError> {
    let filter = RecordFilter {
        run: Some(run.run_id.clone()),
        tool: Some(tool.to_owned()),
        outcome: Some("ok".to_owned()),
        newest_first: true,
        ..RecordFilter::default()
    };
    for stored in ledger.records(&filter, None, PAGE.into()).await?.iter() {
        let named = base_of(content_history::parse(&stored.text)?, commit);
        if named.is_some() {
            return Ok(named);
        }
    }
    Ok(None)
}

/// Returns the base that a record names, if it is the one of `commit`.
fn base_of(record: Record, commit: &str) -> Option<RecordedBase> {
    let input = record.input?;
    let hash = |input: &Map<String, Value>, name: &str| Sha256::parse(input.get(name)?.as_str()?).ok();
    let is_base = input.get("baseCommit").and_then(Value::as_str) == Some(commit);
    let manifest_sha256 = hash(&input, "manifestSha256").filter(|_| is_base)?;
    let untracked_sha256 = hash(&input, "untrackedSha256");
    Some(RecordedBase { commit: commit.to_owned(), manifest_sha256, untracked_sha256 })
}
