//! The statements about changes of the signing key: of each change one checkpoint that both keys have signed, which the database
//! keeps as a setting. Each is set once, so that no key gets a second successor.

use async_recursion::async_recursion as boxed;
use ledger::{Ledger, StoredCheckpoint};
use transparency::{KeyChange, KeyHistory};

/// How many times the key of one log may be changed, so that the statements fit in one answer. Each has at most 2 KiB.
pub const MAX_CHANGES: usize = 256;

/// Returns the name of the setting with statement `number`, from 1.
fn setting(number: usize) -> String {
    format!("checkpoint_key_change_{number}")
}

/// Returns the statements in their order, with the newest checkpoint if it is the first one by its two keys, and not
/// [stored](store) yet because a process was killed in between.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn load(ledger: &dyn Ledger, newest: Option<&StoredCheckpoint>) -> ledger::Result<Vec<String>> {
    let mut statements = Vec::new();
    while statements.len() < MAX_CHANGES
        && let Some(statement) = ledger.setting(&setting(statements.len() + 1)).await?
    {
        statements.push(statement);
    }
    let successor = |note: &String| KeyChange::verify(note).ok().map(|change| change.new);
    if let Some(note) = newest.map(|newest| &newest.note)
        && let Some(found) = successor(note)
        && statements.last().and_then(successor) != Some(found)
        && statements.len() < MAX_CHANGES
    {
        statements.push(note.clone());
    }
    Ok(statements)
}

/// Stores the last of the statements. The signer calls this before it signs a second checkpoint with the two keys. Returns false if
/// another one was stored there before.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn store(ledger: &dyn Ledger, statements: &[String]) -> ledger::Result<bool> {
    match statements.last() {
        Some(last) => Ok(ledger.set_setting_once(&setting(statements.len()), last).await? == *last),
        None => Ok(true),
    }
}

/// Returns why the checkpoints in the database contradict the statements; `None` if they do not. The checkpoint of each statement is
/// compared, and the first one verified, whose key is not in force then if the statements from it on were removed.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn contradiction(
    ledger: &dyn Ledger,
    keys: &KeyHistory,
    statements: &[String],
) -> ledger::Result<Option<String>> {
    if let Some(first) = ledger.checkpoints(0, 1).await?.first()
        && let Err(error) = keys.verify(&first.note)
    {
        let size = first.size;
        let why = format!("the checkpoint over {size} leaves does not follow from the changes of the key: {error}");
        return Ok(Some(why));
    }
    for (change, statement) in keys.changes().iter().zip(statements) {
        let size = change.checkpoint.size;
        let stored = ledger.checkpoints(size.saturating_sub(1), 1).await?;
        if stored.first().is_none_or(|stored| stored.note != *statement) {
            return Ok(Some(format!(
                "the database lacks the checkpoint over {size} leaves that both keys have signed"
            )));
        }
    }
    Ok(None)
}
