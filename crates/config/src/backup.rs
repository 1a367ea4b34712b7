//! Settings of `backup`, `restore` and `migrate-store`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::checkpoints;
use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::offline::DataArgs;
use crate::settings::Settings;
use crate::stores::ObjectStoreConfig;

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

/// Arguments of `migrate-store`. The database is the one to move to. The service must not run on the data folder.
#[derive(Debug, clap::Args)]
pub struct MigrateStoreArgs {
    /// SQLite file to move [default: workspaced.db in the data folder]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Object store to put the files of the runs into.
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_URL", value_name = "URL")]
    object_store_url: Option<String>,
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

/// The checked settings of `migrate-store`.
#[derive(Debug)]
pub struct MigrateStoreConfig {
    /// Whether JSON is printed.
    pub json: bool,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The SQLite database to move.
    pub source: DatabaseUrl,
    /// The database that the data is moved to.
    pub target: DatabaseUrl,
    /// The store of bases and large contents.
    pub object_store: ObjectStoreConfig,
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

impl MigrateStoreArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<MigrateStoreConfig, ConfigError> {
        let Self { from, object_store_url, json, data } = self;
        let settings = data.merge(Settings { object_store_url, ..Settings::default() })?;
        let data_dir = settings.data_dir();
        let target = DatabaseUrl::check(&settings, &data_dir)?;
        if target.sqlite_file().is_some() {
            let message = "--database-url: give the database to move to, an empty one: postgres://…";
            return Err(ConfigError(message.to_owned()));
        }
        let object_store = ObjectStoreConfig::check(&settings)?.ok_or_else(|| {
            ConfigError("--object-store-url is missing: nodes get the files of runs from an object store".to_owned())
        })?;
        let from = from.unwrap_or_else(|| data_dir.join("workspaced.db"));
        let source = DatabaseUrl { url: format!("sqlite://{}", from.display()), file: None };
        Ok(MigrateStoreConfig { json, data_dir, source, target, object_store })
    }
}
