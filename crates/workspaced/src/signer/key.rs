//! The key that signs checkpoints: from the environment, otherwise from the key file.

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

/// Returns the configured key, otherwise that of the key file. Creates the file if there is none and nothing was signed yet.
///
/// # Errors
///
/// If the key is invalid, missing, cannot be created, or cannot have the configured origin.
pub(crate) fn load_or_create(config: &CheckpointConfig, has_checkpoints: bool) -> Result<SignerKey, ConfigError> {
    let key = match &config.key {
        Some(key) => key.clone(),
        None => match read(&config.key_file)? {
            Some(key) => key,
            None if has_checkpoints => {
                let message = format!(
                    "--checkpoint-key-file: {} is missing, and checkpoints were signed with it: put it back, or start with a new \
                    database and a new file",
                    config.key_file.display()
                );
                return Err(ConfigError(message));
            }
            None => create(&config.key_file, config.origin.as_deref())?,
        },
    };
    match &config.origin {
        Some(origin) => key.with_name(origin).map_err(|error| bad_origin(origin, error)),
        None => Ok(key),
    }
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
