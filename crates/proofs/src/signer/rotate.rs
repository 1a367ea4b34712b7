//! Replaces the signing key while no service runs: first by two keys that both sign, later by the new one alone.
//!
//! All of it is in the key file, which is replaced atomically, so that the service can sign after a kill at any moment.

#![expect(clippy::disallowed_types, reason = "the key is beside the runs' folders, not in them")]

use async_recursion::async_recursion as boxed;
use std::path::{Path, PathBuf};

use ledger::Ledger;
use transparency::SigningKeys;

use crate::signer::{SignError, key, key_changes, load_history};
use config::StartError;
use config::{CheckpointConfig, ConfigError, KeyStep};

/// The outcome of a step of a replacement.
#[derive(Debug)]
pub struct KeysWritten {
    /// The text of the new public key.
    pub verifier_key: String,
    /// The file of the secrets.
    pub file: PathBuf,
}

/// Takes a step of the replacement of the key. Writes the keys to `new_key_file` if there is one, otherwise to the key file.
///
/// # Errors
///
/// If there is no key, the step is not the next one, or a file or the database cannot be used.
#[boxed]
pub async fn rotate(
    config: &CheckpointConfig,
    ledger: &dyn Ledger,
    step: KeyStep,
    new_key_file: Option<&Path>,
) -> Result<KeysWritten, StartError> {
    let keys = key::load(config)?;
    let latest = ledger.latest_checkpoint().await.map_err(|error| StartError::failed("the database", &error))?;
    let (history, statements) =
        load_history(ledger, &keys, latest.as_ref()).await.map_err(|error| error.of_start(config))?;
    if let Some(latest) = &latest {
        history.verify(&latest.note).map_err(|error| SignError::by_other_key(error).of_start(config))?;
    }
    let newest = history.newest();
    let new = match (step, keys.successor()) {
        (KeyStep::Rotate, Some(_)) => {
            return Err(refused("the key is being replaced already: end that with `workspaced key retire` first"));
        }
        (KeyStep::Rotate, None) if *newest != keys.key().verifier_key() => return Err(replaced(&history)),
        (KeyStep::Rotate, None) if statements.len() >= key_changes::MAX_CHANGES => {
            let message = format!("the key of this log was changed {} times: start a new log", statements.len());
            return Err(refused(&message));
        }
        (KeyStep::Rotate, None) => {
            let successor = key::new_successor(keys.key())?;
            let both = SigningKeys::with_successor(keys.key().clone(), successor);
            both.map_err(|error| ConfigError(format!("the new key: {error}")))?
        }
        (KeyStep::Retire, None) => {
            return Err(refused("no key is being replaced: begin with `workspaced key rotate`"));
        }
        (KeyStep::Retire, Some(successor)) if *newest != successor.verifier_key() => {
            return Err(refused(
                "no checkpoint is signed by both keys yet, so that nothing would lead verifiers from the old key to the new one: \
                 start the service, and retire the old key once `GET /v1/checkpoint/key` has the new one",
            ));
        }
        (KeyStep::Retire, Some(successor)) => SigningKeys::new(successor.clone()),
    };
    let file = new_key_file.unwrap_or(&config.key_file);
    if new_key_file.is_some() {
        check_unused("--new-key-file", file)?;
    }
    key::write(file, &new)?;
    let verifier_key = new.successor().unwrap_or(new.key()).verifier_key().to_text();
    Ok(KeysWritten { verifier_key, file: file.to_owned() })
}

/// Makes the first key of a log named `origin`, in `new_key_file` if there is one, otherwise in the key file.
///
/// # Errors
///
/// If the file has keys, the name cannot be used, or the disk fails.
pub fn create(
    config: &CheckpointConfig,
    origin: Option<&str>,
    new_key_file: Option<&Path>,
) -> Result<KeysWritten, StartError> {
    let (setting, file) = match new_key_file {
        Some(file) => ("--new-key-file", file),
        None => ("--checkpoint-key-file", &*config.key_file),
    };
    check_unused(setting, file)?;
    let keys = key::create(file, origin)?;
    Ok(KeysWritten { verifier_key: keys.key().verifier_key().to_text(), file: file.to_owned() })
}

/// Fails if `file`, which `setting` names, has keys.
fn check_unused(setting: &str, file: &Path) -> Result<(), StartError> {
    if key::read(file)?.is_none() {
        return Ok(());
    }
    Err(refused(&format!("{setting}: {} has keys already: remove it, or name another", file.display())))
}

/// The refusal of a key that is no longer in force.
pub(super) fn replaced(history: &transparency::KeyHistory) -> StartError {
    let size = history.changes().last().map_or(0, |last| last.checkpoint.size);
    refused(&format!(
        "--checkpoint-key-file or WORKSPACED_CHECKPOINT_KEY: this key was replaced from {size} leaves on: put the key in force \
         there, whose public key is {}",
        history.newest().to_text()
    ))
}

fn refused(message: &str) -> StartError {
    ConfigError(message.to_owned()).into()
}
