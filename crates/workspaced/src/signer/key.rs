//! The key that signs checkpoints: from the environment, otherwise from the key file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the key is beside the runs' folders, not in them"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use model::Sha256;
use transparency::{KeyChange, NoteError, SignerKey};

use crate::config::{CheckpointConfig, ConfigError};

/// The key that signs from now on.
#[derive(Debug)]
pub(crate) struct KeyInForce {
    pub(crate) key: SignerKey,
    /// Whether its file was put in place only now, because a rotation was interrupted.
    pub(crate) was_interrupted: bool,
}

/// Returns the key in force. Creates the key file if there is none and nothing was signed yet.
///
/// # Errors
///
/// If the key is invalid, missing, replaced, cannot be created, or cannot have the configured origin.
pub(crate) fn load_or_create(
    config: &CheckpointConfig,
    has_checkpoints: bool,
    statements: &[String],
) -> Result<KeyInForce, ConfigError> {
    let is_new = config.key.is_none() && !has_checkpoints && statements.is_empty();
    if is_new && read(&config.key_file)?.is_none() {
        let key = create(&config.key_file, config.origin.as_deref())?;
        return Ok(KeyInForce { key, was_interrupted: false });
    }
    in_force(config, statements)
}

/// Returns the configured key, otherwise that of the key file. It has to be the one that the last of `statements` names. If a
/// rotation was interrupted after its statement was stored, puts the new key in place first.
///
/// # Errors
///
/// If the key is invalid, missing, replaced, or cannot have the configured origin.
pub(crate) fn in_force(config: &CheckpointConfig, statements: &[String]) -> Result<KeyInForce, ConfigError> {
    let newest = statements.last().and_then(|last| KeyChange::verify(last).ok());
    let is_newest = |key: &SignerKey| newest.as_ref().is_none_or(|change| change.new == key.verifier_key());
    let current = match &config.key {
        Some(key) => Some(key.clone()),
        None => read(&config.key_file)?,
    };
    let current = current.map(|key| with_origin(config, key)).transpose()?;
    if let Some(key) = current.clone().filter(is_newest) {
        return Ok(KeyInForce { key, was_interrupted: false });
    }
    if config.key.is_none()
        && newest.is_some()
        && let Some(next) = read(&next_file(&config.key_file))?.map(|key| with_origin(config, key)).transpose()?
        && is_newest(&next)
    {
        replace(&config.key_file)?;
        return Ok(KeyInForce { key: next, was_interrupted: true });
    }
    let file = config.key_file.display();
    Err(ConfigError(match (current, newest) {
        (Some(_), Some(change)) => format!(
            "--checkpoint-key-file or WORKSPACED_CHECKPOINT_KEY: this key was replaced after {} leaves: put the key in force \
            there, whose public key is {}",
            change.checkpoint.size,
            change.new.to_text()
        ),
        _ => format!(
            "--checkpoint-key-file: {file} is missing, and checkpoints were signed with it: put it back, or start with a new \
            database and a new file"
        ),
    }))
}

fn with_origin(config: &CheckpointConfig, key: SignerKey) -> Result<SignerKey, ConfigError> {
    match &config.origin {
        Some(origin) => key.with_name(origin).map_err(|error| bad_origin(origin, error)),
        None => Ok(key),
    }
}

/// Returns the file of a key that is about to replace that of `key_file`.
pub(crate) fn next_file(key_file: &Path) -> PathBuf {
    key_file.with_added_extension("next")
}

/// Reads the key in `file`, the successor of `key`, or creates it there. One that exists is that of a rotation that was
/// interrupted before it was in force, or was put there by the operator.
///
/// # Errors
///
/// If the file cannot be read or written, or the key in it cannot succeed `key`.
pub(crate) fn read_or_create_successor(file: &Path, key: &SignerKey) -> Result<SignerKey, ConfigError> {
    let name = key.verifier_key().name().to_owned();
    let found = read(file)?;
    let successor = match &found {
        Some(next) => next.with_name(&name),
        None => SignerKey::from_seed(&name, &rand::random()),
    };
    let successor = successor.map_err(|error| bad_origin(&name, error))?;
    if successor.verifier_key() == key.verifier_key() {
        return Err(failed(file, &io::Error::other("it has the key that is to be replaced: remove the file")));
    }
    let is_stored = found.is_some_and(|found| found.to_text() == successor.to_text());
    // The name of a file that an interrupted process has written may not be on the disk yet.
    let stored = if is_stored { sync_folder(file) } else { write(file, &successor.to_text()) };
    stored.map_err(|error| failed(file, &error))?;
    Ok(successor)
}

/// Replaces the key file by the [`next_file`] beside it.
///
/// # Errors
///
/// If the disk fails.
pub(crate) fn replace(key_file: &Path) -> Result<(), ConfigError> {
    let renamed = std::fs::rename(next_file(key_file), key_file).and_then(|()| sync_folder(key_file));
    renamed.map_err(|error| failed(key_file, &error))
}

/// Reads the key in `file`. Returns `None` if there is none.
///
/// # Errors
///
/// If it cannot be read or parsed.
pub(crate) fn read(file: &Path) -> Result<Option<SignerKey>, ConfigError> {
    match std::fs::read_to_string(file) {
        Ok(text) => SignerKey::parse(&text).map(Some).map_err(|error| failed(file, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(file, &error)),
    }
}

fn create(file: &Path, origin: Option<&str>) -> Result<SignerKey, ConfigError> {
    let seed: [u8; 32] = rand::random();
    // The default origin is derived from the key, so that no two services share one.
    let unnamed = SignerKey::from_seed("workspaced", &seed).map_err(|error| failed(file, &error))?;
    let hash = Sha256::of(unnamed.verifier_key().to_text().as_bytes()).to_string();
    let name = origin.map_or_else(|| format!("workspaced/{}", &hash[..16]), str::to_owned);
    let key = unnamed.with_name(&name).map_err(|error| bad_origin(&name, error))?;
    write(file, &key.to_text()).map_err(|error| failed(file, &error))?;
    Ok(key)
}

/// Writes the key atomically: a partial key would keep the next start from creating one.
fn write(key_file: &Path, text: &str) -> io::Result<()> {
    let new = key_file.with_added_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(new, key_file)?;
    sync_folder(key_file)
}

fn sync_folder(key_file: &Path) -> io::Result<()> {
    // The parent of a bare file name is empty.
    let folder = key_file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn failed(file: &Path, why: &dyn std::error::Error) -> ConfigError {
    ConfigError(format!("--checkpoint-key-file: {}: {why}", file.display()))
}

fn bad_origin(origin: &str, why: NoteError) -> ConfigError {
    ConfigError(format!("--checkpoint-origin `{origin}`: {why}"))
}
