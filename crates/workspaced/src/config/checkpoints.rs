//! Settings of the signed checkpoints.

#![expect(clippy::disallowed_types, reason = "settings name places on disk")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use transparency::SignerKey;

use super::settings::Settings;
use super::{BadSetting, seconds, within};

/// How checkpoints are made, and where they are kept.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointConfig {
    /// How long a record waits for its checkpoint at most.
    pub(crate) every: Duration,
    /// How many records wait at most.
    pub(crate) records: i64,
    /// Where signed notes go.
    pub(crate) file: PathBuf,
    /// Where the key lies, unless it is given.
    pub(crate) data_dir: PathBuf,
    /// The key, where the environment gives one.
    pub(crate) key: Option<SignerKey>,
    /// The log's name, where it is not the key's.
    pub(crate) origin: Option<String>,
    /// Whether the file is given what it has lost.
    pub(crate) renew_file: bool,
}

impl CheckpointConfig {
    pub(super) fn check(
        settings: &Settings,
        data_dir: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, BadSetting> {
        let given = env("WORKSPACED_CHECKPOINT_KEY").filter(|key| !key.is_empty());
        let key = given.map(|key| SignerKey::parse(&key)).transpose();
        let records = within("checkpoint-records", settings.checkpoint_records, 1000, 1_000_000)?;
        Ok(Self {
            every: seconds("checkpoint-seconds", settings.checkpoint_seconds, 5)?,
            records: i64::try_from(records).unwrap_or(i64::MAX),
            file: file(settings.checkpoint_file.clone(), data_dir),
            data_dir: data_dir.to_owned(),
            // The value is a secret, and not told.
            key: key.map_err(|error| BadSetting(format!("WORKSPACED_CHECKPOINT_KEY: {error}")))?,
            origin: settings.checkpoint_origin.clone().filter(|origin| !origin.is_empty()),
            renew_file: settings.renew_checkpoint_file.unwrap_or(false),
        })
    }
}

/// The file of checkpoints.
pub(super) fn file(given: Option<PathBuf>, data_dir: &Path) -> PathBuf {
    given.unwrap_or_else(|| data_dir.join("checkpoints.log"))
}
