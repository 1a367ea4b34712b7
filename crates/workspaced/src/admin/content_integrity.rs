//! What the ledger keeps of files, compared with what its records say that they left.

use std::collections::BTreeMap;

use model::{LogicalPath, Record, Sha256};
use serde::Deserialize;
use workspace::{ContentLocation, Snapshot};

use crate::admin::offline::Offline;
use crate::admin::output::print_paths;
use crate::admin::repair;
use crate::bootstrap::error::StartError;
use crate::tools::files::PUT;
use crate::versions;
use engine::tools::files::INLINE_BYTES;

/// Records looked at in one go.
const PAGE: u32 = 500;

/// Why the ledger does not have a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// It never had: there were too many bytes.
    TooLarge,
    /// It had.
    Missing,
    /// The record does not tell.
    Unknown,
}

impl Absence {
    /// The end of a line that tells it.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::TooLarge => "it was too large to be kept",
            Self::Missing => "its content is missing from the ledger",
            Self::Unknown => "its content is not in the ledger: it is missing, or was too large to be kept",
        }
    }
}

/// Why the ledger does not have the newest content of each of `paths`.
pub(super) async fn why_not(
    offline: &Offline,
    expected: &Snapshot,
    paths: Vec<LogicalPath>,
) -> Result<BTreeMap<Absence, Vec<LogicalPath>>, StartError> {
    let mut all: BTreeMap<Absence, Vec<LogicalPath>> = BTreeMap::new();
    for path in paths {
        let Some(seq) = expected.files().get(&path).and_then(seq_of) else { continue };
        let stored = offline.ledger.record(offline.run(), seq).await;
        let stored = stored.map_err(|error| StartError::failed("the database", &error))?;
        let absence = match stored.and_then(|stored| versions::parse(&stored.text).ok()) {
            Some(record) => absence_of(offline, &record).await?,
            None => Absence::Unknown,
        };
        all.entry(absence).or_default().push(path);
    }
    Ok(all)
}

/// Whether the ledger has what every record left, but for what was too large and for what `expected` still holds: that is
/// told of already. Tells what it has not, or has with other bytes.
pub(super) async fn earlier_are_sound(offline: &Offline, expected: &Snapshot) -> Result<bool, StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    let (mut changed, mut missing) = (Vec::new(), Vec::new());
    let mut since = 0;
    loop {
        let page = offline.ledger.changes(offline.run(), since, PAGE.into()).await.map_err(database)?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let record = versions::parse(&stored.text);
            let record = record.map_err(|error| StartError::failed("the run's history", &error))?;
            since = record.seq;
            for (path, sha256) in left_by(&record) {
                if expected.files().get(path).and_then(seq_of) == Some(record.seq) {
                    continue;
                }
                let kept = offline.ledger.content(offline.run(), record.seq, &sha256).await.map_err(database)?;
                match kept {
                    Some(bytes) if Sha256::of(&bytes) == sha256 => {}
                    Some(_) => changed.push((record.seq, path.clone())),
                    None if absence_of(offline, &record).await? == Absence::Missing => {
                        missing.push((record.seq, path.clone()));
                    }
                    None => {}
                }
            }
        }
    }
    tell("the ledger keeps other bytes than it left", &changed);
    tell("what it left is missing from the ledger", &missing);
    Ok(changed.is_empty() && missing.is_empty())
}

fn tell(what: &str, found: &[(u64, LogicalPath)]) {
    let mut by_record: BTreeMap<u64, Vec<LogicalPath>> = BTreeMap::new();
    for (seq, path) in found {
        by_record.entry(*seq).or_default().push(path.clone());
    }
    for (seq, paths) in by_record {
        print_paths(&format!("record {seq}: {what}"), &paths);
    }
}

/// The record that left the file; none for one of the base.
fn seq_of(file: &workspace::SnapshotFile) -> Option<u64> {
    match file.location {
        ContentLocation::Ledger { seq, .. } => Some(seq),
        ContentLocation::Base { .. } => None,
    }
}

/// What the record left in files. One that has written no path (a dry run) tells hashes too, but left nothing.
fn left_by(record: &Record) -> impl Iterator<Item = (&LogicalPath, Sha256)> {
    let files = if record.paths_written.is_empty() { &[][..] } else { &record.files };
    files.iter().filter_map(|file| Some((&file.path, file.new_sha256?)))
}

/// Why the ledger has nothing of what `record` left. Only the files plane takes files that are not kept, and its answer
/// tells how large they were; a repair takes them as they are.
async fn absence_of(offline: &Offline, record: &Record) -> Result<Absence, StartError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Stored {
        size_bytes: u64,
    }

    if record.tool == repair::TOOL {
        return Ok(Absence::Unknown);
    }
    if record.tool != PUT.name {
        return Ok(Absence::Missing);
    }
    let call = offline.ledger.call(offline.run(), &record.tool_call_id).await;
    let call = call.map_err(|error| StartError::failed("the database", &error))?;
    // One that waited for approval was answered that by another record, and was small enough to be kept for that.
    let Some(call) = call.filter(|call| call.seq == record.seq) else { return Ok(Absence::Missing) };
    let stored = call.reply.and_then(|reply| serde_json::from_str::<Stored>(&reply.body).ok());
    Ok(match stored {
        Some(stored) if stored.size_bytes > INLINE_BYTES as u64 => Absence::TooLarge,
        Some(_) => Absence::Missing,
        None => Absence::Unknown,
    })
}
