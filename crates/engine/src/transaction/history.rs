//! Earlier calls that a plan needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Code, LogicalPath, Outcome, Record, Refusal, RunId, Sha256, ToolCallId, diff_modes, judge_file_count};
use serde::Deserialize;

use crate::CallError;
use crate::engine::{Engine, OpenRun};
use crate::history::content_history::{self, Version};
use crate::history::snapshot;
use crate::tools::{Earlier, EarlierFile, History, PastCall, changed_paths};

/// Records looked at in one go.
const PAGE: u32 = 500;
/// The most bytes of earlier versions that are brought into memory for one call.
const MAX_EARLIER_BYTES: usize = 64 << 20;
/// The most bytes of what is held of the calls themselves: their files, with hashes and modes.
const MAX_CALLS_BYTES: usize = 16 << 20;
/// The most bytes of diffs that are looked through for modes.
const MAX_MODES_BYTES: usize = 64 << 20;
/// What a call holds beside its files, about, and what a file holds beside its path.
const ENTRY_BYTES: usize = 256;

/// The mutations that `wanted` names and that have changed files, with what stood in those files before the first of them.
pub(super) async fn earlier(engine: &Engine, live: &Arc<OpenRun>, wanted: History) -> Result<Earlier, CallError> {
    let run = &live.run_id;
    let mut calls = match wanted {
        History::Calls(ids) => named(engine, run, &ids).await?,
        History::After(seq) => all_after(engine, run, seq).await?,
    };
    if let Some(refusal) = judge_file_count(&live.rules, &changed_paths(&calls)) {
        return Err(refusal.into());
    }
    load_modes(engine, run, &mut calls).await?;
    let mut first: BTreeMap<&LogicalPath, (u64, Option<Sha256>)> = BTreeMap::new();
    for call in &calls {
        for file in &call.files {
            first.entry(&file.path).or_insert((call.seq, file.old_sha256));
        }
    }
    let (mut files, mut room) = (Vec::new(), MAX_EARLIER_BYTES);
    for (path, (seq, sha256)) in first {
        let Some(sha256) = sha256 else { continue };
        let version = match engine.version(live, path, sha256, seq.saturating_sub(1)).await? {
            Version::Kept(bytes) if bytes.len() > room => Version::TooLarge,
            version => version,
        };
        if let Version::Kept(bytes) = &version {
            room -= bytes.len();
        }
        files.push(EarlierFile { path: path.clone(), sha256, version });
    }
    if files.iter().any(|file| !matches!(file.version, Version::Kept(_))) {
        // Step by step, the diffs may lead from what is there to what is not kept.
        load_diffs(engine, run, &mut calls, room).await?;
    }
    Ok(Earlier { calls, files })
}

/// The mutations under `ids` that have changed files, oldest first.
async fn named(engine: &Engine, run: &RunId, ids: &[ToolCallId]) -> Result<Vec<PastCall>, CallError> {
    let mut found = BTreeMap::new();
    for id in ids {
        let Some(stored) = engine.ledger.call(run, id).await? else { continue };
        let record = content_history::parse(&stored.record)?;
        if has_changed_files(&record) {
            found.insert(record.seq, past_call(record));
        }
    }
    Ok(found.into_values().collect())
}

/// The mutations behind the record `since` that have changed files, oldest first: those that are recorded by now, since
/// others may go on for ever.
async fn all_after(engine: &Engine, run: &RunId, mut since: u64) -> Result<Vec<PastCall>, CallError> {
    let until = engine.ledger.run(run).await?.map_or(0, |stored| stored.run.head_seq);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while since < until {
        let page = engine.ledger.changes(run, since, PAGE.into()).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let record = content_history::parse(&stored.text)?;
            since = record.seq;
            if since > until {
                break;
            }
            if !has_changed_files(&record) {
                continue;
            }
            let call = past_call(record);
            bytes += call.files.iter().map(|file| file.path.as_str().len() + ENTRY_BYTES).sum::<usize>() + ENTRY_BYTES;
            if bytes > MAX_CALLS_BYTES {
                return Err(too_many_calls().into());
            }
            found.push(call);
        }
    }
    Ok(found)
}

/// Whether the record is of a mutation that went well and has changed files.
fn has_changed_files(record: &Record) -> bool {
    record.outcome == Outcome::Ok && !record.paths_written.is_empty()
}

fn past_call(record: Record) -> PastCall {
    let may_change_modes = may_change_modes(&record);
    let Record { seq, tool_call_id, files, .. } = record;
    PastCall { seq, tool_call_id, files, may_change_modes, modes: Vec::new(), diff: Vec::new() }
}

/// Tells the modes that the calls' diffs name, of calls that may have changed some.
async fn load_modes(engine: &Engine, run: &RunId, calls: &mut [PastCall]) -> Result<(), CallError> {
    let ledger = engine.ledger.as_ref();
    let mut room = MAX_MODES_BYTES;
    for call in calls.iter_mut().filter(|call| call.may_change_modes) {
        let Some(stored) = ledger.record(run, call.seq).await? else { continue };
        let diff = snapshot::diff_of(ledger, run, &content_history::parse(&stored.text)?).await?;
        room = room.checked_sub(diff.len()).ok_or_else(too_many_calls)?;
        call.modes = diff_modes(&diff);
    }
    Ok(())
}

/// Whether a file has come or gone, or the tool is one that can change a mode: of all others the diff need not be read.
fn may_change_modes(record: &Record) -> bool {
    matches!(record.tool.as_str(), "apply_patch" | "revert_calls")
        || record.files.iter().any(|file| file.old_sha256.is_none() || file.new_sha256.is_none())
}

/// Gives the newest of `calls` their diffs, as many as fit into `room` bytes.
async fn load_diffs(engine: &Engine, run: &RunId, calls: &mut [PastCall], mut room: usize) -> Result<(), CallError> {
    let ledger = engine.ledger.as_ref();
    for call in calls.iter_mut().rev() {
        let Some(stored) = ledger.record(run, call.seq).await? else { continue };
        let diff = snapshot::diff_of(ledger, run, &content_history::parse(&stored.text)?).await?;
        if diff.len() > room {
            return Ok(());
        }
        room -= diff.len();
        call.diff = diff;
    }
    Ok(())
}

fn too_many_calls() -> Refusal {
    Refusal::new(
        Code::PatchBudgetExceeded,
        "the calls to undo have changed more files than can be undone at once",
        "Undo fewer calls at a time: give a later toSeq.",
    )
    .with_details(|details| details.reasons = vec!["undo:files".to_owned()])
}

/// Every path that `run` has written.
pub async fn written(engine: &Engine, run: &RunId) -> Result<BTreeSet<LogicalPath>, CallError> {
    let mut written = BTreeSet::new();
    let until = engine.ledger.run(run).await?.map_or(0, |stored| stored.run.head_seq);
    let mut since = 0;
    // What is recorded meanwhile makes itself known.
    while since < until {
        let page = engine.ledger.changes(run, since, PAGE.into()).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let record: Written =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            since = record.seq;
            written.extend(record.paths_written);
        }
    }
    Ok(written)
}

/// What of a record says which paths it has written. The rest of it is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    seq: u64,
    paths_written: Vec<LogicalPath>,
}
