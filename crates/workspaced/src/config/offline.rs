//! Settings of the operator's commands that need no service.

#![expect(clippy::disallowed_types, reason = "settings name places on disk")]

use std::path::PathBuf;

use model::RunId;
use transparency::VerifierKey;

use super::settings::Settings;
use super::{BadSetting, DatabaseUrl, checkpoints, data_dir, parse_run_id};

/// Where the data is.
#[derive(Debug, clap::Args)]
struct DataArgs {
    /// A TOML file of settings, as for `serve`.
    #[arg(long, env = "WORKSPACED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of everything that is kept.
    #[arg(long, env = "WORKSPACED_DATA_DIR", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// The database.
    #[arg(long, env = "WORKSPACED_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
}

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Check this run alone.
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run: Option<RunId>,
    /// The file of signed checkpoints [default: checkpoints.log in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_FILE", value_name = "FILE")]
    checkpoint_file: Option<PathBuf>,
    /// The public key of the checkpoints, as `GET /v1/checkpoint/key` tells it [default: of the key in the data folder]
    #[arg(long, env = "WORKSPACED_CHECKPOINT_VERIFIER_KEY", value_name = "KEY")]
    checkpoint_verifier_key: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Arguments of `replay`. The service must not run on the same data meanwhile.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The run.
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run: RunId,
    /// The folder to make the files in; empty, or not there yet.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

/// Arguments of `repair`. The service must not run on the same data meanwhile.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// The run; without one, the runs that need repair and the folders in lost+found are listed.
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run: Option<RunId>,
    /// Which of the two is right: `ledger` brings the files to what it says, `tree` keeps them and records that.
    #[arg(long, value_name = "WHICH", requires = "run")]
    accept: Option<Accept>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// What is right where a tree and its ledger differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accept {
    /// The files.
    Tree,
    /// The ledger.
    Ledger,
}

/// What `verify` needs.
#[derive(Debug)]
pub struct VerifyConfig {
    pub(crate) run: Option<RunId>,
    pub(crate) database_url: DatabaseUrl,
    pub(crate) data_dir: PathBuf,
    pub(crate) checkpoint_file: PathBuf,
    pub(crate) checkpoint_verifier: Option<VerifierKey>,
}

/// What `replay` needs.
#[derive(Debug)]
pub struct ReplayConfig {
    pub(crate) run: RunId,
    pub(crate) to: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) database_url: DatabaseUrl,
}

/// What `repair` needs.
#[derive(Debug)]
pub struct RepairConfig {
    pub(crate) run: Option<RunId>,
    pub(crate) accept: Option<Accept>,
    pub(crate) yes: bool,
    pub(crate) reason: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) database_url: DatabaseUrl,
}

impl VerifyArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be used.
    pub fn check(self) -> Result<VerifyConfig, BadSetting> {
        let given = Settings { checkpoint_file: self.checkpoint_file, ..Settings::default() };
        let settings = self.data.over(given)?;
        let data_dir = data_dir(settings.data_dir);
        let bad = |error| BadSetting(format!("--checkpoint-verifier-key: {error}"));
        let key = self.checkpoint_verifier_key.filter(|key| !key.is_empty());
        Ok(VerifyConfig {
            run: self.run,
            database_url: DatabaseUrl::check(settings.database_url, &data_dir)?,
            checkpoint_file: checkpoints::file(settings.checkpoint_file, &data_dir),
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
    /// The first setting that cannot be used.
    pub fn check(self) -> Result<ReplayConfig, BadSetting> {
        let (data_dir, database_url) = self.data.check()?;
        Ok(ReplayConfig { run: self.run, to: self.to, data_dir, database_url })
    }
}

impl RepairArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be used.
    pub fn check(self) -> Result<RepairConfig, BadSetting> {
        let (data_dir, database_url) = self.data.check()?;
        let Self { run, accept, yes, reason, .. } = self;
        Ok(RepairConfig { run, accept, yes, reason, data_dir, database_url })
    }
}

impl DataArgs {
    /// Settings that were `given` beside these, over those of the file.
    fn over(self, given: Settings) -> Result<Settings, BadSetting> {
        let given = Settings { data_dir: self.data_dir, database_url: self.database_url, ..given };
        Ok(match &self.config {
            Some(file) => given.over(Settings::read(file)?),
            None => given,
        })
    }

    fn check(self) -> Result<(PathBuf, DatabaseUrl), BadSetting> {
        let settings = self.over(Settings::default())?;
        let data_dir = data_dir(settings.data_dir);
        let database_url = DatabaseUrl::check(settings.database_url, &data_dir)?;
        Ok((data_dir, database_url))
    }
}

fn parse_reason(raw: &str) -> Result<String, String> {
    match raw.chars().count() {
        1..=2000 if !raw.trim().is_empty() => Ok(raw.to_owned()),
        _ => Err("a reason takes 1 to 2,000 characters".to_owned()),
    }
}
