//! The statements about changes of the signing key, as the database stores them: one setting each, which is set once, so that
//! no key gets a second successor.

use std::collections::{BTreeMap, VecDeque};

use ledger::{Ledger, StoredCheckpoint};
use transparency::{KeyChange, KeyChangeError, KeyHistory};

/// How many times the key of one log may be changed, so that the statements fit in one answer. Each has at most 2 KiB.
pub(crate) const MAX_CHANGES: usize = 256;

/// Returns the name of the setting with statement `number`, from 1.
fn setting(number: usize) -> String {
    format!("checkpoint_key_change_{number}")
}

/// Returns the statements in their order.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn load(ledger: &dyn Ledger) -> ledger::Result<Vec<String>> {
    let mut statements = Vec::new();
    while statements.len() < MAX_CHANGES
        && let Some(statement) = ledger.setting(&setting(statements.len() + 1)).await?
    {
        statements.push(statement);
    }
    Ok(statements)
}

/// Returns the statements among the settings of a copied database, in their order.
pub(crate) fn of_settings(settings: &BTreeMap<String, String>) -> Vec<&str> {
    (1..=MAX_CHANGES).map_while(|number| settings.get(&setting(number)).map(String::as_str)).collect()
}

/// Stores a statement after `count` others. Returns false if another one was stored there before.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn store(ledger: &dyn Ledger, count: usize, statement: &str) -> ledger::Result<bool> {
    Ok(ledger.set_setting_once(&setting(count + 1), statement).await? == statement)
}

/// Returns why the checkpoints in the database contradict the statements; `None` if they do not. The checkpoints at both sides
/// of each change are verified, and the first one, whose key is not in force then if the statements from it on were removed.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn contradiction(ledger: &dyn Ledger, keys: &KeyHistory) -> ledger::Result<Option<String>> {
    let sizes = keys.changes().iter().map(|change| change.checkpoint.size);
    for size in std::iter::once(0).chain(sizes) {
        for stored in ledger.checkpoints(size.saturating_sub(1), 2).await? {
            if let Err(error) = keys.verify(&stored.note) {
                let size = stored.size;
                let why =
                    format!("the checkpoint over {size} leaves does not follow from the changes of the key: {error}");
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

/// The statements of the database that a reader of the checkpoint file has not met yet. The file has the same ones, each after the
/// checkpoint of its size.
#[derive(Debug)]
pub(crate) struct ExpectedStatements {
    /// With the size of the tree after which each has to be.
    left: VecDeque<(String, u64)>,
}

impl ExpectedStatements {
    /// Expects `statements`, which lead to `keys`.
    pub(crate) fn new(statements: Vec<String>, keys: &KeyHistory) -> Self {
        let sizes = keys.changes().iter().map(|change| change.checkpoint.size);
        Self { left: statements.into_iter().zip(sizes).collect() }
    }

    /// Takes the next statement, if it belongs after the checkpoint over `leaves` leaves or before it.
    pub(crate) fn take_until(&mut self, leaves: u64) -> Option<String> {
        self.left.pop_front_if(|(_, size)| *size <= leaves).map(|(statement, _)| statement)
    }

    /// Takes the statement `note` that the file has after `leaves` leaves.
    ///
    /// # Errors
    ///
    /// Why the file contradicts the database.
    pub(crate) fn meet(&mut self, note: &str, leaves: u64) -> Result<(), String> {
        match self.left.pop_front() {
            Some((stored, size)) if stored == note && size == leaves => Ok(()),
            Some(_) => {
                Err(format!("the file and the database have different changes of the key after {leaves} leaves"))
            }
            None => Err(format!("the database lacks the change of the key after {leaves} leaves")),
        }
    }

    /// Checks that no statement is missing in the file before its checkpoint over `size` leaves.
    ///
    /// # Errors
    ///
    /// Why the file contradicts the database.
    pub(crate) fn meet_checkpoint(&self, size: u64) -> Result<(), String> {
        match self.left.front() {
            Some((_, before)) if *before < size => {
                Err(format!("the file lacks the change of the key after {before} leaves"))
            }
            _ => Ok(()),
        }
    }
}

/// A part of the checkpoint file, in which each statement follows the checkpoint of its size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilePosition {
    /// The size of the last checkpoint.
    pub(crate) size: u64,
    /// The number of statements.
    pub(crate) statements: usize,
}

impl FilePosition {
    /// Returns the next notes of the file: some of `checkpoints`, which are over more leaves, or a statement. Advances past
    /// them. Returns none at the end.
    pub(crate) fn next_notes(
        &mut self,
        checkpoints: Vec<StoredCheckpoint>,
        statements: &[String],
    ) -> Result<Vec<String>, KeyChangeError> {
        let statement = statements.get(self.statements);
        let until = statement.map(|note| KeyChange::verify(note)).transpose()?.map(|change| change.checkpoint.size);
        let before: Vec<_> =
            checkpoints.into_iter().take_while(|next| until.is_none_or(|size| next.size <= size)).collect();
        if let Some(last) = before.last() {
            self.size = last.size;
            return Ok(before.into_iter().map(|checkpoint| checkpoint.note).collect());
        }
        self.statements += usize::from(statement.is_some());
        Ok(statement.cloned().into_iter().collect())
    }
}
