//! The keys that sign checkpoints: from the environment, otherwise from the key file.

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
use transparency::{NoteError, SignerKey, SigningKeys};

use config::{CheckpointConfig, ConfigError};

/// Returns the configured keys, otherwise those of the key file. Creates it if there is none and nothing was signed yet.
///
/// # Errors
///
/// If a key is invalid or missing, or cannot be created.
pub fn load_or_create(config: &CheckpointConfig, has_checkpoints: bool) -> Result<SigningKeys, ConfigError> {
    if config.keys.is_none() && !has_checkpoints && read(&config.key_file)?.is_none() {
        return create(&config.key_file, None);
    }
    load(config)
}

/// Returns the configured keys, otherwise those of the key file.
///
/// # Errors
///
/// If a key is invalid or missing.
pub fn load(config: &CheckpointConfig) -> Result<SigningKeys, ConfigError> {
    let keys = match &config.keys {
        Some(keys) => Some(keys.clone()),
        None => read(&config.key_file)?,
    };
    keys.ok_or_else(|| {
        ConfigError(format!(
            "--checkpoint-key-file: {} is missing, and checkpoints were signed with it: put it back, or start with a new database \
             and a new file",
            config.key_file.display()
        ))
    })
}

/// Reads the keys in `file`. Returns `None` if there is no file.
///
/// # Errors
///
/// If it cannot be read or parsed.
pub fn read(file: &Path) -> Result<Option<SigningKeys>, ConfigError> {
    match std::fs::read_to_string(file) {
        Ok(text) => SigningKeys::parse(&text).map(Some).map_err(|error| failed(file, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(file, &error)),
    }
}

/// Writes the keys to `file` atomically, so that at any time it has those of before or these.
///
/// # Errors
///
/// If the disk fails.
pub fn write(file: &Path, keys: &SigningKeys) -> Result<(), ConfigError> {
    replace(file, &keys.to_text()).map_err(|error| failed(file, &error))
}

/// Returns a new key for the log of `key`.
///
/// # Errors
///
/// If its name cannot be used.
pub fn new_successor(key: &SignerKey) -> Result<SignerKey, ConfigError> {
    let public = key.verifier_key();
    SignerKey::from_seed(public.name(), &rand::random()).map_err(|error| bad_origin(public.name(), error))
}

/// Makes a key for a log named `origin`, and writes it to `file`.
///
/// # Errors
///
/// If the name cannot be used, or the disk fails.
pub(super) fn create(file: &Path, origin: Option<&str>) -> Result<SigningKeys, ConfigError> {
    let seed: [u8; 32] = rand::random();
    // The default origin is derived from the key, so that no two services share one.
    let unnamed = SignerKey::from_seed("workspaced", &seed).map_err(|error| failed(file, &error))?;
    let hash = Sha256::of(unnamed.verifier_key().to_text().as_bytes()).to_string();
    let name = origin.map_or_else(|| format!("workspaced/{}", &hash[..16]), str::to_owned);
    let key = unnamed.with_name(&name).map_err(|error| bad_origin(&name, error))?;
    let keys = SigningKeys::new(key);
    write(file, &keys)?;
    Ok(keys)
}

fn replace(key_file: &Path, text: &str) -> io::Result<()> {
    let new = key_file.with_added_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    failpoint::hit("key.written");
    std::fs::rename(new, key_file)?;
    failpoint::hit("key.replaced");
    // The parent of a bare file name is empty.
    let folder = key_file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn failed(file: &Path, why: &dyn std::error::Error) -> ConfigError {
    ConfigError(format!("--checkpoint-key-file: {}: {why}", file.display()))
}

fn bad_origin(origin: &str, why: NoteError) -> ConfigError {
    ConfigError(format!("--origin `{origin}`: {why}"))
}
