//! Settings of `key`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::config::checkpoints::CheckpointConfig;
use crate::config::database_url::DatabaseUrl;
use crate::config::error::ConfigError;
use crate::config::offline::DataArgs;
use crate::config::settings::Settings;

/// Arguments of `key`. The service must not run on the same data.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    action: KeyActionArgs,
}

#[derive(Debug, clap::Subcommand)]
enum KeyActionArgs {
    /// Put a new key in force, by a statement that the old and the new key sign.
    ///
    /// The key in force is that of `WORKSPACED_CHECKPOINT_KEY`, or of the key file. The new one replaces the key file, or is
    /// written to `--new-key-file`.
    Rotate {
        /// File for the new key, if it should not replace the key file; an existing one has the new key already.
        #[arg(long, value_name = "FILE")]
        new_key_file: Option<PathBuf>,
        /// File of signed checkpoints [default: checkpoints.log in the data folder]
        #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
        checkpoint_file: Option<PathBuf>,
        /// File of the key that signs checkpoints [default: checkpoint.key in the data folder]
        #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
        checkpoint_key_file: Option<PathBuf>,
        /// Name of the log in its checkpoints [default: that of the key]
        #[arg(long, env = "WORKSPACED_CHECKPOINT_ORIGIN", value_name = "NAME")]
        checkpoint_origin: Option<String>,
        #[command(flatten)]
        data: DataArgs,
    },
}

/// The checked settings of `key`.
#[derive(Debug)]
pub struct KeyConfig {
    pub(crate) new_key_file: Option<PathBuf>,
    pub(crate) checkpoints: CheckpointConfig,
    pub(crate) data_dir: PathBuf,
    pub(crate) database_url: DatabaseUrl,
}

impl KeyArgs {
    /// Checks the settings. `env` looks up the environment variables that clap does not.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self, env: &dyn Fn(&str) -> Option<String>) -> Result<KeyConfig, ConfigError> {
        let KeyActionArgs::Rotate { new_key_file, checkpoint_file, checkpoint_key_file, checkpoint_origin, data } =
            self.action;
        let given = Settings { checkpoint_file, checkpoint_key_file, checkpoint_origin, ..Settings::default() };
        let settings = data.merge(given)?;
        let data_dir = settings.data_dir();
        let checkpoints = CheckpointConfig::check(&settings, &data_dir, env)?;
        if checkpoints.key.is_some() && new_key_file.is_none() {
            let message = "--new-key-file is missing: the key comes from WORKSPACED_CHECKPOINT_KEY, and no file of it can be \
                           replaced";
            return Err(ConfigError(message.to_owned()));
        }
        Ok(KeyConfig { new_key_file, checkpoints, database_url: DatabaseUrl::check(&settings, &data_dir)?, data_dir })
    }
}
