//! Replaces the signing key while no service runs.
//!
//! The new key is on the disk before the statement that puts it in force is stored, in one commit of the database. So one of
//! the two keys is in force at any time, and its file exists.

#![expect(clippy::disallowed_types, reason = "the key is beside the runs' folders, not in them")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::clock;
use ledger::Ledger;
use model::Sha256;
use tokio::sync::watch;
use transparency::SignerKey;

use crate::checkpoints::CheckpointState;
use crate::config::{CheckpointConfig, ConfigError};
use crate::data_dir::InstanceNoteFile;
use crate::signer::key::{self, KeyInForce};
use crate::signer::{Signer, append, key_changes};
use crate::start_error::StartError;

/// The outcome of a rotation.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// The text of the public key that is in force.
    pub(crate) verifier_key: String,
    /// The file of its secret.
    pub(crate) file: PathBuf,
    /// The size of the tree after which it signs; `None` if an interrupted rotation was completed.
    pub(crate) size: Option<u64>,
}

/// Puts a new key in force: that of `new_key_file`, which is created if it does not exist, or one that replaces the key file.
/// If an earlier rotation was interrupted after its statement was stored, completes that one.
///
/// # Errors
///
/// If there is no key, a file or the database cannot be used, or they contradict each other.
pub(crate) async fn rotate(
    config: &CheckpointConfig,
    ledger: Arc<dyn Ledger>,
    instance_note: InstanceNoteFile,
    new_key_file: Option<&Path>,
) -> Result<Rotation, StartError> {
    let statements = key_changes::load(ledger.as_ref()).await?;
    let KeyInForce { key, was_interrupted } = key::in_force(config, &statements)?;
    let mut signer =
        Signer::new(config, key.clone(), ledger, instance_note, watch::Sender::new(CheckpointState::Empty));
    let tree = signer.load_with_file().await.map_err(|error| signer.start_error(error))?;
    if was_interrupted {
        let verifier_key = key.verifier_key().to_text();
        return Ok(Rotation { verifier_key, file: config.key_file.clone(), size: None });
    }
    if statements.len() >= key_changes::MAX_CHANGES {
        let message = format!("the key of this log was changed {} times: start a new log", statements.len());
        return Err(ConfigError(message).into());
    }
    let next_file = key::next_file(&config.key_file);
    let file = new_key_file.unwrap_or(&next_file);
    let new = key::read_or_create_successor(file, &key)?;
    failpoint::hit("key.created");
    let (size, root) = (tree.frontier.size(), tree.frontier.root());
    signer.tree = Some(tree);
    signer.hand_over(&new, statements.len(), (size, root)).await?;
    if new_key_file.is_none() {
        key::replace(&config.key_file)?;
    }
    let file = new_key_file.unwrap_or(&config.key_file).to_owned();
    Ok(Rotation { verifier_key: new.verifier_key().to_text(), file, size: Some(size) })
}

impl Signer {
    /// Stores the statement that `new` replaces the key, as the one after `count` others, and appends it to the file.
    async fn hand_over(
        &mut self,
        new: &SignerKey,
        count: usize,
        (size, root): (u64, Sha256),
    ) -> Result<(), StartError> {
        let statement = self.key.sign_change(new, size, root, &clock::now());
        let statement = statement.map_err(|error| ConfigError(format!("the new key: {error}")))?;
        if !key_changes::store(self.ledger.as_ref(), count, &statement).await? {
            let message = "another process has changed the key meanwhile: run the command again";
            return Err(ConfigError(message.to_owned()).into());
        }
        failpoint::hit("key.stored");
        if let Some(tree) = self.tree.take() {
            append(tree.file, vec![statement]).await.map_err(|error| self.start_error(error))?;
        }
        failpoint::hit("key.appended");
        Ok(())
    }
}
