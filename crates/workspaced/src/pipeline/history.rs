//! Earlier calls that a plan needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Code, LogicalPath, Record, Refusal, RunId, Sha256, diff_modes, judge_count};
use serde::Deserialize;

use crate::CallError;
use crate::past;
use crate::service::{LiveRun, Service};
use crate::tools::{Earlier, EarlierFile, History, PastCall, changed_paths};
use crate::versions::{self, Version};

/// Records looked at in one go.
const PAGE: u32 = 500;
/// The most bytes of earlier versions that are brought into memory for one call.
const MAX_EARLIER_BYTES: usize = 64 << 20;
/// The most bytes of what is held of the calls themselves: their files, with hashes and modes.
const MAX_CALLS_BYTES: usize = 64 << 20;
/// What an entry for a path holds beside the path, about.
const ENTRY_BYTES: usize = 128;

/// The mutations that `wanted` names and that have changed files, with what stood in those files before the first of them.
pub(super) async fn earlier(service: &Service, live: &Arc<LiveRun>, wanted: History) -> Result<Earlier, CallError> {
    let mut calls = find(service, &live.run_id, wanted).await?;
    if let Some(refusal) = judge_count(&live.rules, &changed_paths(&calls)) {
        return Err(refusal.into());
    }
    let mut first: BTreeMap<&LogicalPath, (u64, Option<Sha256>)> = BTreeMap::new();
    for call in &calls {
        for file in &call.files {
            first.entry(&file.path).or_insert((call.seq, file.old_sha256));
        }
    }
    let (mut files, mut room) = (Vec::new(), MAX_EARLIER_BYTES);
    for (path, (seq, sha256)) in first {
        let Some(sha256) = sha256 else { continue };
        let version = match service.version(live, path, sha256, seq.saturating_sub(1)).await? {
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
        load_diffs(service, &live.run_id, &mut calls, room).await?;
    }
    Ok(Earlier { calls, files })
}

/// The mutations of `run` that `wanted` names and that have changed files, oldest first.
async fn find(service: &Service, run: &RunId, wanted: History) -> Result<Vec<PastCall>, CallError> {
    let mut since = match &wanted {
        History::Calls(_) => 0,
        History::After(seq) => *seq,
    };
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        let page = service.0.ledger.changes(run, since, PAGE.into()).await?;
        if page.is_empty() {
            return Ok(found);
        }
        for stored in page {
            let record = versions::parse(&stored.text)?;
            since = record.seq;
            if !asks_for(&wanted, &record) || record.paths_written.is_empty() {
                continue;
            }
            let modes = diff_modes(&past::diff_of(service.0.ledger.as_ref(), run, &record).await?);
            let Record { seq, tool_call_id, files, .. } = record;
            let paths =
                files.iter().map(|file| &file.path).chain(modes.iter().flat_map(|mode| [&mode.path, &mode.from]));
            bytes += paths.map(|path| path.as_str().len() + ENTRY_BYTES).sum::<usize>();
            if bytes > MAX_CALLS_BYTES {
                return Err(too_many_calls().into());
            }
            found.push(PastCall { seq, tool_call_id, files, modes, diff: Vec::new() });
        }
    }
}

/// Gives the newest of `calls` their diffs, as many as fit into `room` bytes.
async fn load_diffs(service: &Service, run: &RunId, calls: &mut [PastCall], mut room: usize) -> Result<(), CallError> {
    let ledger = service.0.ledger.as_ref();
    for call in calls.iter_mut().rev() {
        let Some(stored) = ledger.record(run, call.seq).await? else { continue };
        let diff = past::diff_of(ledger, run, &versions::parse(&stored.text)?).await?;
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
    .about(|about| about.reasons = vec!["undo:files".to_owned()])
}

/// Every path that `run` has written.
pub(crate) async fn written(service: &Service, run: &RunId) -> Result<BTreeSet<LogicalPath>, CallError> {
    let mut written = BTreeSet::new();
    let mut since = 0;
    loop {
        let page = service.0.ledger.changes(run, since, PAGE.into()).await?;
        if page.is_empty() {
            return Ok(written);
        }
        for stored in page {
            let record: Written =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            since = record.seq;
            written.extend(record.paths_written);
        }
    }
}

/// What of a record says which paths it has written. The rest of it is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    seq: u64,
    paths_written: Vec<LogicalPath>,
}

fn asks_for(wanted: &History, record: &Record) -> bool {
    match wanted {
        History::Calls(ids) => ids.contains(&record.tool_call_id),
        History::After(seq) => record.seq > *seq,
    }
}
