//! Runs that were deleted or archived while the backup was made. Their files are in no backup.

use engine::clock::{new_tool_call_id, now};
use ledger::{Entry, Ledger, RunTransition, StoredRun};
use model::{ARCHIVE_TOOL, Draft, RunId, RunState, Sha256};
use serde_json::{Value, json};

use crate::backup::ArchivedRun;
use crate::offline_run::database;
use config::StartError;

/// The actor in the records of a restore: an operator with access to the data, without a token.
pub(crate) const ACTOR: &str = "operator:restore";

/// Deletes a run that was deleted while the backup was made.
///
/// # Errors
///
/// If the database fails.
pub(crate) async fn delete(ledger: &dyn Ledger, run: &RunId) -> Result<(), StartError> {
    let at = now();
    let change = RunTransition::Delete { at: at.clone() };
    let reason = "the run was deleted while the backup was made";
    append(ledger, run, at, ("run.delete", &json!({ "cause": "backup" }), reason), change).await
}

/// Marks a run that was archived while the backup was made as archived. If its records in the backup are not those of the archive,
/// or no checkpoint in the backup covers them, deletes it with a record that names the archive.
///
/// # Errors
///
/// If the database fails.
pub(crate) async fn archive(ledger: &dyn Ledger, archived: &ArchivedRun) -> Result<(), StartError> {
    let ArchivedRun { run_id, archived_at, archive_uri: uri, sha256, head_seq, head_hash } = archived;
    let Some(stored) = ledger.run(run_id).await.map_err(database)? else { return Ok(()) };
    if is_archived_head(ledger, &stored, archived).await? {
        let input = json!({ "uri": uri, "sha256": sha256, "headSeq": head_seq, "headHash": head_hash });
        let (at, uri, head_seq, head_hash) = (archived_at.clone(), uri.clone(), *head_seq, *head_hash);
        let change = RunTransition::Archive { at, uri, head_seq, head_hash };
        let reason = "the run was archived while the backup was made";
        return append(ledger, run_id, now(), (ARCHIVE_TOOL, &input, reason), change).await;
    }
    let at = now();
    let change = RunTransition::Delete { at: at.clone() };
    let input = json!({ "cause": "archive", "archiveUri": uri, "archiveSha256": sha256 });
    let reason =
        "the run was archived while the backup was made, which lacks its last records or the checkpoint over them";
    append(ledger, run_id, at, ("run.delete", &input, reason), change).await
}

/// Returns whether the run ends with the last archived record, and a checkpoint covers it.
async fn is_archived_head(ledger: &dyn Ledger, stored: &StoredRun, archived: &ArchivedRun) -> Result<bool, StartError> {
    let run = &stored.run;
    let head = (archived.head_seq, archived.head_hash);
    if run.state != RunState::Closed || (run.head_seq, run.head_hash) != head {
        return Ok(false);
    }
    let leaf = ledger.covering_leaf(&run.run_id, head.0, i64::MAX as u64).await.map_err(database)?;
    Ok(leaf.is_some_and(|leaf| (leaf.head_seq, leaf.head_hash) == head))
}

/// Appends a record of the tool, the input and the reason in `call`.
async fn append(
    ledger: &dyn Ledger,
    run: &RunId,
    at: String,
    call: (&'static str, &Value, &str),
    change: RunTransition,
) -> Result<(), StartError> {
    let (tool, input, reason) = call;
    let mut draft = Draft::new(run.clone(), ACTOR.to_owned(), tool, new_tool_call_id(), at);
    draft.input = input.as_object().cloned();
    draft.reason = Some(reason.to_owned());
    let mut entry = Entry::new(draft, Sha256::ZERO);
    entry.run_change = Some(change);
    // If an interrupted restore has done it already, nothing is recorded.
    ledger.append(vec![entry]).await.map(drop).map_err(database)
}
