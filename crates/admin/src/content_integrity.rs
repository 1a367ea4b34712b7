//! The check of the file contents in the ledger against the hashes in its records.

use std::collections::BTreeMap;

use content::ObjectError;
use engine::audit::content_history;
use engine::tools::{APPLY_CHANGESET, INLINE_BYTES, PUT, SETTLE};
use ledger::Reply;
use model::{LogicalPath, OUTSIDE_CHANGE_TOOL, Record, Refusal, Sha256};
use serde::Deserialize;
use workspace::{ContentLocation, Snapshot, SnapshotFile};

use crate::offline_run::{OfflineRun, database};
use crate::output::print_paths;
use crate::repair;
use config::StartError;

/// Records that one query returns at most.
const PAGE: u32 = 500;

/// Why a content is not in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// It was too large to be stored.
    TooLarge,
    /// It was stored and is missing.
    Missing,
    /// The record does not say which of the two.
    Unknown,
}

impl Absence {
    /// Returns the reason as the end of a sentence.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "it was too large to be stored",
            Self::Missing => "its content is missing from the ledger",
            Self::Unknown => "its content is missing from the ledger, or was too large to be stored",
        }
    }
}

/// Groups `paths` by why the ledger does not have their newest content.
///
/// # Errors
///
/// If the ledger fails.
pub(super) async fn explain_absent(
    run: &OfflineRun,
    expected: &Snapshot,
    paths: Vec<LogicalPath>,
) -> Result<BTreeMap<Absence, Vec<LogicalPath>>, StartError> {
    let mut groups: BTreeMap<Absence, Vec<LogicalPath>> = BTreeMap::new();
    for path in paths {
        let Some(seq) = expected.get(&path).as_ref().and_then(seq_of) else { continue };
        let stored = run.ledger.record(run.id(), seq).await.map_err(database)?;
        let absence = match stored.and_then(|stored| content_history::parse(&stored.text).ok()) {
            Some(record) => absence_of(run, &record).await?,
            None => Absence::Unknown,
        };
        groups.entry(absence).or_default().push(path);
    }
    Ok(groups)
}

/// Checks that the ledger has the content that every record wrote, and prints what is missing or changed. Returns whether
/// nothing is missing or changed.
///
/// The contents of `expected` are skipped, because the rebuild has checked them. Contents that were too large to be stored
/// are not missing.
///
/// # Errors
///
/// If the ledger fails.
pub(super) async fn check_earlier(run: &OfflineRun, expected: &Snapshot) -> Result<bool, StartError> {
    let (mut changed, mut missing) = (Vec::new(), Vec::new());
    let mut since = 0;
    loop {
        let page = run.ledger.changes(run.id(), since, PAGE.into()).await.map_err(database)?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let record = content_history::parse(&stored.text);
            let record = record.map_err(|error| StartError::failed("the run's history", &error))?;
            since = record.seq;
            for (path, sha256) in written_by(&record) {
                if expected.get(path).as_ref().and_then(seq_of) == Some(record.seq) {
                    continue;
                }
                match run.ledger.content(run.id(), record.seq, &sha256).await.map_err(database)? {
                    Some(bytes) if Sha256::of(&bytes) == sha256 => {}
                    Some(_) => changed.push((record.seq, path.clone())),
                    None if is_in_object_store(run, sha256).await? => {}
                    None if absence_of(run, &record).await? == Absence::Missing => {
                        missing.push((record.seq, path.clone()));
                    }
                    None => {}
                }
            }
        }
    }
    print_by_record("the content in the ledger was changed", &changed);
    print_by_record("the content is missing from the ledger", &missing);
    Ok(changed.is_empty() && missing.is_empty())
}

/// Whether the object store, if it is given, has the content.
async fn is_in_object_store(run: &OfflineRun, sha256: Sha256) -> Result<bool, StartError> {
    let Some(objects) = &run.objects else { return Ok(false) };
    // It is compared with its hash.
    match objects.content(sha256, u64::MAX).await {
        Ok(content) => Ok(content.is_some()),
        Err(ObjectError::Differs(_)) => Ok(false),
        Err(error) => Err(StartError::failed("the object store", &error)),
    }
}

fn print_by_record(problem: &str, found: &[(u64, LogicalPath)]) {
    let mut by_record: BTreeMap<u64, Vec<LogicalPath>> = BTreeMap::new();
    for (seq, path) in found {
        by_record.entry(*seq).or_default().push(path.clone());
    }
    for (seq, paths) in by_record {
        print_paths(&format!("record {seq}: {problem}"), &paths);
    }
}

/// Returns the record that wrote the file. A file of the base has none.
fn seq_of(file: &SnapshotFile) -> Option<u64> {
    match file.location {
        ContentLocation::Ledger { seq, .. } => Some(seq),
        ContentLocation::Base { .. } => None,
    }
}

/// Returns the contents that the record wrote. A dry run has hashes but no written path.
fn written_by(record: &Record) -> impl Iterator<Item = (&LogicalPath, Sha256)> {
    let files = if record.paths_written.is_empty() { &[][..] } else { &record.files };
    files.iter().filter_map(|file| Some((&file.path, file.new_sha256?)))
}

/// Returns why the ledger has no content of `record`.
///
/// Only uploads, moves, change sets, the creation of forks, and records of changes from outside can leave contents that are too large to be
/// stored. The response to an upload has the size; for the others it is unknown.
async fn absence_of(run: &OfflineRun, record: &Record) -> Result<Absence, StartError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Uploaded {
        size_bytes: u64,
    }

    let sizes_unknown =
        ["run.create", repair::TOOL, SETTLE.name, OUTSIDE_CHANGE_TOOL, APPLY_CHANGESET.name, "move_file"];
    if sizes_unknown.contains(&record.tool.as_str()) {
        return Ok(Absence::Unknown);
    }
    if record.tool != PUT.name {
        return Ok(Absence::Missing);
    }
    let call = run.ledger.call(run.id(), &record.tool_call_id).await.map_err(database)?;
    let Some(call) = call else { return Ok(Absence::Missing) };
    if call.seq != record.seq {
        // It waited for approval, and has another record for its response.
        let was_too_large = match call.reply {
            Some(reply) => has_waited_staged(run, &reply).await?,
            None => false,
        };
        return Ok(if was_too_large { Absence::TooLarge } else { Absence::Missing });
    }
    let uploaded = call.reply.and_then(|reply| serde_json::from_str::<Uploaded>(&reply.body).ok());
    Ok(match uploaded {
        Some(uploaded) if uploaded.size_bytes > INLINE_BYTES as u64 => Absence::TooLarge,
        Some(_) => Absence::Missing,
        None => Absence::Unknown,
    })
}

/// Whether the content of the upload that waited for the approval that `reply` names was staged when it was received.
async fn has_waited_staged(run: &OfflineRun, reply: &Reply) -> Result<bool, StartError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Waited {
        content_sha256: Option<Sha256>,
    }

    let refusal = serde_json::from_str::<Refusal>(&reply.body).ok();
    let Some(approval) = refusal.and_then(|refusal| refusal.details.approval_id.clone()) else { return Ok(false) };
    let input = run.ledger.approval_input(&approval).await.map_err(database)?;
    let waited = input.and_then(|input| serde_json::from_str::<Waited>(&input).ok());
    Ok(waited.is_some_and(|waited| waited.content_sha256.is_some()))
}
