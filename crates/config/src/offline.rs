//! Settings of the offline commands.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use model::{IdInvalid, RunId};
use transparency::VerifierKey;

use crate::checkpoints;
use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::settings::Settings;
use crate::stores::ObjectStoreConfig;

/// The data to work on.
#[derive(Debug, clap::Args)]
pub struct DataArgs {
    /// TOML file of settings, as for `serve`.
    #[arg(long, env = "WORKSPACED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder.
    #[arg(long, env = "WORKSPACED_DATA_DIR", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Database.
    #[arg(long, env = "WORKSPACED_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    /// File with the address of the database.
    #[arg(long, env = "WORKSPACED_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Verify only this run, or with `_service` only the chain of the service, which records changes of operators.
    #[arg(long, value_name = "ID", value_parser = RunId::parse_recorded)]
    run: Option<RunId>,
    /// File of signed checkpoints [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    checkpoint_file: Option<PathBuf>,
    /// File of the key that signs checkpoints [default: checkpoint.key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_KEY_FILE", value_name = "FILE")]
    checkpoint_key_file: Option<PathBuf>,
    /// Public key of the checkpoints, as returned by `GET /v1/checkpoint/key` [default: that of the key file]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_VERIFIER_KEY", value_name = "KEY")]
    checkpoint_verifier_key: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Arguments of `replay`. The service must not run on the same data.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Run to rebuild.
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run: RunId,
    /// Folder to write the files to; must be empty or not exist.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Object store of the service, which has the large contents [default: none]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_URL", value_name = "URL")]
    object_store_url: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Arguments of `repair`. The service must not run on the same data.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// Run to repair; without it, list the runs that need repair and the folders in lost+found.
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run: Option<RunId>,
    /// Which side is right: `ledger` restores the recorded files, `tree` keeps the files and records them.
    #[arg(long, value_name = "WHICH", requires = "run")]
    accept: Option<AcceptedSide>,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    /// Reason for the audit.
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Object store of the service, which has the large contents [default: none]
    #[arg(long, env = "WORKSPACED_OBJECT_STORE_URL", value_name = "URL")]
    object_store_url: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Which side is right if a tree and its ledger differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AcceptedSide {
    /// The tree.
    Tree,
    /// The ledger.
    Ledger,
}

/// The checked settings of `verify`.
#[derive(Debug)]
pub struct VerifyConfig {
    /// The run; `None` for all.
    pub run: Option<RunId>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
    /// The file of checkpoints.
    pub checkpoint_file: PathBuf,
    /// The file of the key that signs them.
    pub checkpoint_key_file: PathBuf,
    /// The public key that signatures are checked with, if it is given.
    pub checkpoint_verifier: Option<VerifierKey>,
}

/// The checked settings of `replay`.
#[derive(Debug)]
pub struct ReplayConfig {
    /// The run.
    pub run: RunId,
    /// Where it is written.
    pub to: PathBuf,
    /// Where bases and large contents are; `None` if they are in the data folder.
    pub object_store: Option<ObjectStoreConfig>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

/// The checked settings of `repair`.
#[derive(Debug)]
pub struct RepairConfig {
    /// The run; `None` for all.
    pub run: Option<RunId>,
    /// Which side is taken; `None` to show the differences.
    pub accept: Option<AcceptedSide>,
    /// Whether nothing is asked.
    pub yes: bool,
    /// Why, for the record.
    pub reason: Option<String>,
    /// Where bases and large contents are; `None` if they are in the data folder.
    pub object_store: Option<ObjectStoreConfig>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

impl VerifyArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<VerifyConfig, ConfigError> {
        let Self { checkpoint_file, checkpoint_key_file, .. } = self;
        let given = Settings { checkpoint_file, checkpoint_key_file, ..Settings::default() };
        let settings = self.data.merge(given)?;
        let data_dir = settings.data_dir();
        let bad = |error| ConfigError(format!("--checkpoint-verifier-key: {error}"));
        let key = self.checkpoint_verifier_key.filter(|key| !key.is_empty());
        Ok(VerifyConfig {
            run: self.run,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            checkpoint_file: checkpoints::file(settings.checkpoint_file, &data_dir),
            checkpoint_key_file: checkpoints::key_file(settings.checkpoint_key_file, &data_dir),
            checkpoint_verifier: key.map(|key| VerifierKey::parse(&key)).transpose().map_err(bad)?,
            data_dir,
        })
    }
}

impl ReplayArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<ReplayConfig, ConfigError> {
        let given = Settings { object_store_url: self.object_store_url, ..Settings::default() };
        let settings = self.data.merge(given)?;
        let data_dir = settings.data_dir();
        Ok(ReplayConfig {
            run: self.run,
            to: self.to,
            object_store: ObjectStoreConfig::check(&settings)?,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            data_dir,
        })
    }
}

impl RepairArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<RepairConfig, ConfigError> {
        let Self { run, accept, yes, reason, object_store_url, data } = self;
        let settings = data.merge(Settings { object_store_url, ..Settings::default() })?;
        let data_dir = settings.data_dir();
        let database_url = DatabaseUrl::check(&settings, &data_dir)?;
        let object_store = ObjectStoreConfig::check(&settings)?;
        Ok(RepairConfig { run, accept, yes, reason, object_store, data_dir, database_url })
    }
}

impl DataArgs {
    /// Returns these settings and those `given` otherwise, completed by the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a setting of it cannot be used.
    pub fn merge(self, given: Settings) -> Result<Settings, ConfigError> {
        let Self { config, data_dir, database_url, database_url_file } = self;
        let file = config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        Ok(Settings {
            data_dir: data_dir.or(file.data_dir),
            database_url: database_url.or(file.database_url),
            database_url_file: database_url_file.or(file.database_url_file),
            checkpoint_file: given.checkpoint_file.or(file.checkpoint_file),
            checkpoint_key_file: given.checkpoint_key_file.or(file.checkpoint_key_file),
            object_store_url: given.object_store_url.or(file.object_store_url),
            ..file
        })
    }
}

pub(crate) fn parse_run_id(raw: &str) -> Result<RunId, IdInvalid> {
    RunId::parse(raw)
}

fn parse_reason(raw: &str) -> Result<String, String> {
    match raw.chars().count() {
        1..=2000 if !raw.trim().is_empty() => Ok(raw.to_owned()),
        _ => Err("expected 1 to 2,000 characters".to_owned()),
    }
}
