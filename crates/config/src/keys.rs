//! Settings of `key`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::checkpoints::CheckpointConfig;
use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::offline::DataArgs;
use crate::settings::Settings;

/// Arguments of `key`. The service must not run on the same data.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    action: KeyActionArgs,
}

#[derive(Debug, clap::Subcommand)]
enum KeyActionArgs {
    /// Begin to replace the key: from the next start on, checkpoints are signed by the present key and by a new one.
    ///
    /// The present key is that of `WORKSPACED_CHECKPOINT_KEY`, or of the key file. Both keys go into the key file, or into
    /// `--new-key-file`. A kill leaves the file as it was, or complete.
    Rotate(KeyFileArgs),
    /// End it: from the next start on, the new key signs alone.
    ///
    /// Refused while no checkpoint is signed by both keys.
    Retire(KeyFileArgs),
    /// Make the first key, for a log whose name you choose.
    ///
    /// Otherwise the service makes one at its first start, for a log with a generated name.
    Create(CreateKeyArgs),
    /// Write the checkpoints that the checkpoint file has lost to it again, from the database.
    ///
    /// Without it, the service does not start: whoever changed the database may have removed them from the file too.
    RenewFile(RenewFileArgs),
}

#[derive(Debug, clap::Args)]
struct CreateKeyArgs {
    /// Name of the log in its checkpoints [default: generated]
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Debug, clap::Args)]
struct RenewFileArgs {
    /// File of signed checkpoints [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    checkpoint_file: Option<PathBuf>,
    /// File of the key that signs checkpoints [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    checkpoint_key_file: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct KeyFileArgs {
    /// New file for the keys, if the key file should not be replaced.
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// File of the key that signs checkpoints [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    checkpoint_key_file: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

/// What `key` does.
#[derive(Debug)]
pub enum KeyAction {
    /// Makes the first key, of a log with this name.
    Create {
        /// The name of the log that the key signs; `None` for a generated one.
        origin: Option<String>,
    },
    /// Takes a step of the replacement of the key.
    Replace(KeyStep),
    /// Completes the checkpoint file.
    RenewFile,
}

/// A step of the replacement of the key.
#[derive(Clone, Copy, Debug)]
pub enum KeyStep {
    /// Both keys sign.
    Rotate,
    /// The new one signs alone.
    Retire,
}

/// The checked settings of `key`.
#[derive(Debug)]
pub struct KeyConfig {
    /// What is done.
    pub action: KeyAction,
    /// Where the keys are written, if not to the key file.
    pub new_key_file: Option<PathBuf>,
    /// The key and the file of checkpoints.
    pub checkpoints: CheckpointConfig,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

impl KeyArgs {
    /// Checks the settings. `env` looks up the environment variables that clap does not.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self, env: &dyn Fn(&str) -> Option<String>) -> Result<KeyConfig, ConfigError> {
        let (action, args, checkpoint_file) = match self.action {
            KeyActionArgs::Rotate(args) => (KeyAction::Replace(KeyStep::Rotate), args, None),
            KeyActionArgs::Retire(args) => (KeyAction::Replace(KeyStep::Retire), args, None),
            KeyActionArgs::Create(CreateKeyArgs { origin, file }) => (KeyAction::Create { origin }, file, None),
            KeyActionArgs::RenewFile(RenewFileArgs { checkpoint_file, checkpoint_key_file, data }) => {
                let args = KeyFileArgs { new_key_file: None, checkpoint_key_file, data };
                (KeyAction::RenewFile, args, checkpoint_file)
            }
        };
        let KeyFileArgs { new_key_file, checkpoint_key_file, data } = args;
        let settings = data.merge(Settings { checkpoint_file, checkpoint_key_file, ..Settings::default() })?;
        let data_dir = settings.data_dir();
        let checkpoints = CheckpointConfig::check(&settings, &data_dir, env)?;
        let writes_keys = !matches!(action, KeyAction::RenewFile);
        if writes_keys && checkpoints.keys.is_some() && new_key_file.is_none() {
            let message = "--new-key-file is missing: the key comes from WORKSPACED_CHECKPOINT_KEY, and no file of it can be \
                           replaced";
            return Err(ConfigError(message.to_owned()));
        }
        Ok(KeyConfig {
            action,
            new_key_file,
            checkpoints,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            data_dir,
        })
    }
}
