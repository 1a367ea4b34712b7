//! The key that signs checkpoints: given by the environment, else kept in the data folder.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the key lies beside the runs' folders, not in them"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use model::{CheckpointInvalid, CheckpointKey, Sha256};

use crate::config::{BadSetting, CheckpointConfig};

/// The key's file in the data folder.
pub(crate) const KEY_FILE: &str = "checkpoint.key";

/// The key of the settings, else that of the data folder, which is made where there is none and nothing was signed yet.
///
/// # Errors
///
/// Where it cannot be read, made, or go by the name that the settings ask for.
pub(crate) fn load_or_make(config: &CheckpointConfig, has_checkpoints: bool) -> Result<CheckpointKey, BadSetting> {
    let key = match &config.key {
        Some(key) => key.clone(),
        None => match read(&config.data_dir)? {
            Some(key) => key,
            None if has_checkpoints => {
                let place = config.data_dir.join(KEY_FILE);
                let message = format!(
                    "--data-dir: {} is gone, and checkpoints were signed with it: put it back, or start with a new \
                    database and a new file",
                    place.display()
                );
                return Err(BadSetting(message));
            }
            None => make(&config.data_dir, config.origin.as_deref())?,
        },
    };
    match &config.origin {
        Some(origin) => key.named(origin).map_err(|error| bad_origin(origin, error)),
        None => Ok(key),
    }
}

/// The key of the data folder, where it has one.
///
/// # Errors
///
/// Where it cannot be read.
pub(crate) fn read(data_dir: &Path) -> Result<Option<CheckpointKey>, BadSetting> {
    match std::fs::read_to_string(data_dir.join(KEY_FILE)) {
        Ok(text) => CheckpointKey::parse(&text).map(Some).map_err(|error| failed(data_dir, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(data_dir, &error)),
    }
}

fn make(data_dir: &Path, origin: Option<&str>) -> Result<CheckpointKey, BadSetting> {
    let seed: [u8; 32] = rand::random();
    // The key tells its name by default: no two services share it, and none has to be thought of.
    let unnamed = CheckpointKey::from_seed("workspaced", &seed).map_err(|error| failed(data_dir, &error))?;
    let told = Sha256::of(unnamed.verifier().to_text().as_bytes()).to_string();
    let name = origin.map_or_else(|| format!("workspaced/{}", &told[..16]), str::to_owned);
    let key = unnamed.named(&name).map_err(|error| bad_origin(&name, error))?;
    write(data_dir, &key.to_text()).map_err(|error| failed(data_dir, &error))?;
    Ok(key)
}

/// Whole or not at all: half a key would keep the next start from making one.
fn write(data_dir: &Path, text: &str) -> io::Result<()> {
    let new = data_dir.join("checkpoint.key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(new, data_dir.join(KEY_FILE))?;
    File::open(data_dir)?.sync_all()
}

fn failed(data_dir: &Path, why: &dyn std::error::Error) -> BadSetting {
    BadSetting(format!("--data-dir: {}: {why}", data_dir.join(KEY_FILE).display()))
}

fn bad_origin(origin: &str, why: CheckpointInvalid) -> BadSetting {
    BadSetting(format!("--checkpoint-origin `{origin}`: {why}"))
}
