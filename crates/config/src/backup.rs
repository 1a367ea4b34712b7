//! Settings of `backup` and `restore`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::checkpoints;
use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::offline::DataArgs;
use crate::settings::Settings;

/// Arguments of `backup`. The service may run on the same data.
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// Folder of backups; must be empty, not exist, or have earlier backups, whose files are not copied again.
    #[arg(value_name = "FOLDER")]
    to: PathBuf,
    /// Include the secrets of the data folder: the key that signs checkpoints and the key of repeated requests' tokens.
    #[arg(long)]
    include_key: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// File of signed checkpoints [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    checkpoint_file: Option<PathBuf>,
    /// File of the key that signs checkpoints [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    checkpoint_key_file: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// A backup, or a folder of backups, of which the newest is taken.
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// Check every file of the backup and write nothing.
    #[arg(long)]
    check: bool,
    /// Revoke all tokens of runs and all operators of the database: those that were revoked after the backup are valid again.
    #[arg(long)]
    revoke_tokens: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// The checked settings of `backup`.
#[derive(Debug)]
pub struct BackupConfig {
    /// Where it is written.
    pub to: PathBuf,
    /// Whether the private key is copied too.
    pub include_key: bool,
    /// Whether JSON is printed.
    pub json: bool,
    /// The file of checkpoints.
    pub checkpoint_file: PathBuf,
    /// The file of the key that signs them.
    pub checkpoint_key_file: PathBuf,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

/// The checked settings of `restore`.
#[derive(Debug)]
pub struct RestoreConfig {
    /// Where it is read.
    pub from: PathBuf,
    /// Whether the backup is only checked.
    pub check: bool,
    /// Whether the tokens that were revoked after the backup are revoked.
    pub revoke_tokens: bool,
    /// Whether JSON is printed.
    pub json: bool,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

impl BackupArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<BackupConfig, ConfigError> {
        let Self { to, include_key, json, checkpoint_file, checkpoint_key_file, data } = self;
        let given = Settings { checkpoint_file, checkpoint_key_file, ..Settings::default() };
        let settings = data.merge(given)?;
        let data_dir = settings.data_dir();
        Ok(BackupConfig {
            to,
            include_key,
            json,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            checkpoint_file: checkpoints::file(settings.checkpoint_file, &data_dir),
            checkpoint_key_file: checkpoints::key_file(settings.checkpoint_key_file, &data_dir),
            data_dir,
        })
    }
}

impl RestoreArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<RestoreConfig, ConfigError> {
        let Self { from, check, revoke_tokens, json, data } = self;
        let settings = data.merge(Settings::default())?;
        let data_dir = settings.data_dir();
        let database_url = DatabaseUrl::check(&settings, &data_dir)?;
        Ok(RestoreConfig { from, check, revoke_tokens, json, data_dir, database_url })
    }
}
