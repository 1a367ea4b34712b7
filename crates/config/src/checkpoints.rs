//! Settings of the signed checkpoints.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use transparency::SigningKeys;

use crate::error::ConfigError;
use crate::range::seconds;
use crate::settings::Settings;

/// When checkpoints are signed, and where they are stored.
#[derive(Clone, Debug)]
pub struct CheckpointConfig {
    /// Maximum time until a checkpoint covers a record.
    pub every: Duration,
    /// The file that signed notes are appended to.
    pub file: PathBuf,
    /// The file of the generated key.
    pub key_file: PathBuf,
    /// The keys from the environment.
    pub keys: Option<SigningKeys>,
}

impl CheckpointConfig {
    /// Checks the settings of checkpoints.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(
        settings: &Settings,
        data_dir: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let given = env("WORKSPACED_CHECKPOINT_KEY").filter(|key| !key.is_empty());
        if given.is_some() && settings.checkpoint_key_file.is_some() {
            let message = "WORKSPACED_CHECKPOINT_KEY and --checkpoint-key-file are both set: set only one of them";
            return Err(ConfigError(message.to_owned()));
        }
        let keys = given.map(|keys| SigningKeys::parse(&keys)).transpose();
        Ok(Self {
            every: seconds("checkpoint-seconds", settings.checkpoint_seconds, 5)?,
            file: file(settings.checkpoint_file.clone(), data_dir),
            key_file: key_file(settings.checkpoint_key_file.clone(), data_dir),
            // Without the value, which is a secret.
            keys: keys.map_err(|error| ConfigError(format!("WORKSPACED_CHECKPOINT_KEY: {error}")))?,
        })
    }
}

/// Returns the checkpoint file.
pub(crate) fn file(given: Option<PathBuf>, data_dir: &Path) -> PathBuf {
    given.unwrap_or_else(|| data_dir.join("checkpoints.log"))
}

/// Returns the file of the generated key.
pub(crate) fn key_file(given: Option<PathBuf>, data_dir: &Path) -> PathBuf {
    given.filter(|file| !file.as_os_str().is_empty()).unwrap_or_else(|| data_dir.join("checkpoint.key"))
}
