//! The record that a repair appends to the run's chain.

use std::io;

use engine::clock::{new_artifact_id, new_tool_call_id, now};
use ledger::{Appended, Artifact, Entry};
use model::{Draft, FileKind, LINK_MODE, LogicalPath, RecordFile, Sha256, Step, StepBytes, StepContent};
use workspace::{ChainPoint, ContentLocation, Drift, DriftedPath, EntryState, Snapshot};

use crate::offline_run::{OfflineRun, database};
use crate::output::print;
use config::RepairConfig;
use config::StartError;

/// The tool in the record of a repair.
pub(crate) const TOOL: &str = "run.repair";
/// The actor in the record of a repair: an operator with access to the data, without a token.
const ACTOR: &str = "operator:repair";
/// The default reason of a repair that accepts the tree.
const TREE_REASON: &str = "the tree was changed from outside; the files stay as they are";
/// The default reason of a repair that accepts the ledger.
const LEDGER_REASON: &str = "the tree was changed from outside; the files were restored from the ledger";

/// Appends the record of a repair. Returns its number and its hash.
///
/// # Errors
///
/// If the ledger fails.
pub(super) async fn append(run: &OfflineRun, entry: Entry) -> Result<ChainPoint, StartError> {
    let appended = run.ledger.append(vec![entry]).await.map_err(database)?;
    if let Appended::Recorded(records) = appended
        && let [record] = &records[..]
    {
        print(&format!("{}: recorded as {}, record {}", run.id(), record.tool_call_id, record.seq));
        return Ok(ChainPoint { seq: record.seq, hash: record.hash.unwrap_or(Sha256::ZERO) });
    }
    Err(StartError::failed("the database", &io::Error::other("the repair could not be recorded")))
}

/// Returns the entry of files that are restored from the ledger. They are paths read, not written: in the run's history
/// nothing changes, and the record leaves no content.
pub(super) fn restore_entry(run: &OfflineRun, config: &RepairConfig, expected: &Snapshot, known: &[Drift]) -> Entry {
    let kind = |path: &LogicalPath| match expected.get(path).map(|file| file.location) {
        Some(ContentLocation::Ledger { kind, .. }) => kind,
        Some(ContentLocation::Base { .. }) | None => FileKind::of_path(path),
    };
    let files = known.iter().map(|entry| RecordFile {
        new_sha256: entry.expected.sha256(),
        old_sha256: entry.found.sha256(),
        ..RecordFile::unwritten(entry.path.clone(), kind(&entry.path))
    });
    let mut draft = new_draft(run, config, "repair:acceptLedger", "ledger", LEDGER_REASON);
    draft.files = files.collect();
    draft.paths_read = known.iter().map(|entry| entry.path.clone()).collect();
    Entry::new(draft, Sha256::ZERO)
}

/// Returns the entry of files that stay as they were found.
pub(super) fn drift_entry(run: &OfflineRun, config: &RepairConfig, found: Vec<DriftedPath>) -> Entry {
    let kind = |entry: &DriftedPath| match &entry.bytes {
        Some(bytes) => FileKind::of_file(&entry.path, bytes),
        None => FileKind::of_path(&entry.path),
    };
    let file = |entry: &DriftedPath| {
        RecordFile::written(entry.path.clone(), kind(entry), entry.old.version(), entry.new.version())
    };
    let mut draft = new_draft(run, config, "repair:acceptTree", "tree", TREE_REASON);
    // The history of the files goes on with what was found, as after a mutation.
    draft.mutates = true;
    draft.files = found.iter().map(file).collect();
    draft.paths_written = found.iter().map(|entry| entry.path.clone()).collect();
    let mut artifact = None;
    if !found.is_empty() {
        let artifact_id = new_artifact_id();
        draft.artifact_uris = vec![format!("artifact://{}/{artifact_id}", run.id())];
        let diff: Vec<u8> = found.iter().flat_map(|entry| entry.diff.iter().copied()).collect();
        draft.diff_sha256 = Some(Sha256::of(&diff));
        artifact = Some(Artifact { artifact_id, diff });
    }
    Entry { steps: found.into_iter().filter_map(step_of).collect(), artifact, ..Entry::new(draft, Sha256::ZERO) }
}

fn new_draft(run: &OfflineRun, config: &RepairConfig, rule: &str, accept: &str, default_reason: &str) -> Draft {
    let reason = config.reason.as_deref().map(|reason| model::redact(reason).into_owned());
    let mut draft = Draft::new(run.id().clone(), ACTOR.to_owned(), TOOL, new_tool_call_id(), now());
    draft.input = serde_json::json!({ "accept": accept }).as_object().cloned();
    draft.reason = Some(reason.unwrap_or_else(|| default_reason.to_owned()));
    draft.reasons = vec![rule.to_owned()];
    draft
}

/// Returns the step that would have made the change, so that the ledger stores the content. Content that is too large has
/// none.
fn step_of(found: DriftedPath) -> Option<Step> {
    let after = match (found.new.sha256(), found.bytes) {
        (Some(_), None) => return None,
        (Some(sha256), Some(bytes)) => {
            let mode = match found.new {
                EntryState::Link { .. } => LINK_MODE,
                EntryState::File { executable: true, .. } => 0o755,
                EntryState::File { .. } | EntryState::Nothing | EntryState::Folder | EntryState::Other => 0o644,
            };
            Some(StepContent { sha256, mode, bytes: StepBytes::Inline(bytes) })
        }
        (None, _) => None,
    };
    Some(Step { path: found.path, before: found.old.sha256(), after })
}
