//! The key that signs checkpoints: from the environment, otherwise from the data folder.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the key is beside the runs' folders, not in them"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use model::Sha256;
use transparency::{NoteError, SignerKey};

use crate::config::{CheckpointConfig, ConfigError};

/// The name of the key file in the data folder.
pub(crate) const KEY_FILE: &str = "checkpoint.key";

/// Returns the configured key, otherwise that of the data folder. Creates it if there is none and nothing was signed yet.
///
/// # Errors
///
/// If the key is invalid, missing, cannot be created, or cannot have the configured origin.
pub(crate) fn load_or_create(config: &CheckpointConfig, has_checkpoints: bool) -> Result<SignerKey, ConfigError> {
    let key = match &config.key {
        Some(key) => key.clone(),
        None => match read(&config.data_dir)? {
            Some(key) => key,
            None if has_checkpoints => {
                let message = format!(
                    "--data-dir: {} is missing, and checkpoints were signed with it: put it back, or start with a new \
                    database and a new file",
                    config.data_dir.join(KEY_FILE).display()
                );
                return Err(ConfigError(message));
            }
            None => create(&config.data_dir, config.origin.as_deref())?,
        },
    };
    match &config.origin {
        Some(origin) => key.with_name(origin).map_err(|error| bad_origin(origin, error)),
        None => Ok(key),
    }
}

/// Reads the key of the data folder. Returns `None` if there is none.
///
/// # Errors
///
/// If it cannot be read or parsed.
pub(crate) fn read(data_dir: &Path) -> Result<Option<SignerKey>, ConfigError> {
    match std::fs::read_to_string(data_dir.join(KEY_FILE)) {
        Ok(text) => SignerKey::parse(&text).map(Some).map_err(|error| failed(data_dir, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(data_dir, &error)),
    }
}

fn create(data_dir: &Path, origin: Option<&str>) -> Result<SignerKey, ConfigError> {
    let seed: [u8; 32] = rand::random();
    // The default origin is derived from the key, so that no two services share one.
    let unnamed = SignerKey::from_seed("workspaced", &seed).map_err(|error| failed(data_dir, &error))?;
    let hash = Sha256::of(unnamed.verifier_key().to_text().as_bytes()).to_string();
    let name = origin.map_or_else(|| format!("workspaced/{}", &hash[..16]), str::to_owned);
    let key = unnamed.with_name(&name).map_err(|error| bad_origin(&name, error))?;
    write(data_dir, &key.to_text()).map_err(|error| failed(data_dir, &error))?;
    Ok(key)
}

/// Writes the key atomically: a partial key would keep the next start from creating one.
fn write(data_dir: &Path, text: &str) -> io::Result<()> {
    let new = data_dir.join("checkpoint.key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(new, data_dir.join(KEY_FILE))?;
    File::open(data_dir)?.sync_all()
}

fn failed(data_dir: &Path, why: &dyn std::error::Error) -> ConfigError {
    ConfigError(format!("--data-dir: {}: {why}", data_dir.join(KEY_FILE).display()))
}

fn bad_origin(origin: &str, why: NoteError) -> ConfigError {
    ConfigError(format!("--checkpoint-origin `{origin}`: {why}"))
}
