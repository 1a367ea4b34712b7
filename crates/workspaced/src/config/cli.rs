//! The command line.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::cli::ClientCommand;
use crate::config::Config;
use crate::config::archive_command::ArchiveArgs;
use crate::config::backup::{BackupArgs, MigrateStoreArgs, RestoreArgs};
use crate::config::error::ConfigError;
use crate::config::keys::KeyArgs;
use crate::config::offline::{RepairArgs, ReplayArgs, VerifyArgs};
use crate::config::operators::OperatorArgs;
use crate::config::settings::{CommandLine, Settings};

/// The command line.
#[derive(Debug, clap::Parser)]
#[command(name = "workspaced", version, about = "Guarded, audited workspaces for coding agents over HTTP.")]
pub struct Args {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve the API.
    ///
    /// Each setting is taken from its flag, else from its environment variable, else from the file of `--config`.
    ///
    /// Secrets are taken from the environment, or for tokens from files: the same variable with `_FILE` at its end names one.
    /// `WORKSPACED_OPERATOR_TOKEN` is an operator token with the scope
    /// `orchestrate`; without it, one is generated at the first start and printed once. `WORKSPACED_AUDIT_TOKEN` is an
    /// operator token with the scope `audit`. `WORKSPACED_CHECKPOINT_KEY` signs checkpoints; without it, a key is generated
    /// in the data folder at the first start.
    Serve(Box<ServeArgs>),
    /// Print the OpenAPI document.
    Openapi(OpenApiArgs),
    /// Verify the audit chains in the database; exit code 1 if one is broken.
    Verify(VerifyArgs),
    /// Rebuild a run's files from its base and its ledger; exit code 1 if they differ from the ledger or the workspace.
    Replay(ReplayArgs),
    /// Repair a run that answers `RUN_NEEDS_REPAIR`. Without `--accept`, show the differences, with exit code 1; without
    /// `--run`, list the runs that need repair and the folders in lost+found.
    Repair(RepairArgs),
    /// Copy the database and the runs' files to a folder of backups, also while the service runs. Each backup copies only what
    /// earlier ones do not have. Exit code 1 if something could not be copied.
    Backup(BackupArgs),
    /// Restore a backup into an empty data folder and an empty database, or check it. Exit code 1 if a file of the backup was
    /// changed, or if not all of a run could be restored.
    Restore(RestoreArgs),
    /// Move the data of a service on SQLite to an empty PostgreSQL database and an object store, which several nodes can share. The
    /// service must not run on the same data. Exit code 1 if a run could not be moved, or if the
    /// command has not finished: repeat it then.
    MigrateStore(MigrateStoreArgs),
    /// List, verify or unpack the archives of runs.
    Archive(ArchiveArgs),
    /// Create, list, rotate or revoke operators.
    ///
    /// Calls a running service if one is known with its token, by `--url`, the environment or `~/.config/workspaced/client.toml`. With
    /// `--data-dir`, `--database-url` or `--config`, or without a token, works on the data of a service, which must not run.
    Operator(OperatorArgs),
    /// Make or replace the key that signs checkpoints, or write the checkpoint file again. The service must not run on the same data.
    Key(KeyArgs),
    #[expect(missing_docs, reason = "each of its variants has a description")]
    #[command(flatten)]
    Client(ClientCommand),
}

/// The settings of `serve` that most services need. `-h` shows them alone.
const MAIN_SETTINGS: [(&str, &[&str]); 5] = [
    ("Addresses", &["listen", "metrics_listen", "tls_cert", "tls_key"]),
    (
        "Data",
        &["config", "data_dir", "database_url", "database_url_file", "object_store_url", "archive_after", "archive_to"],
    ),
    ("Sources and policy", &["import_roots", "git_allow_hosts", "profiles", "sandbox"]),
    ("Limits", &["max_runs", "max_disk_bytes", "rate_limit"]),
    ("Log and shutdown", &["log", "log_format", "drain_seconds"]),
];

/// Returns the command line. The settings of `serve` are in groups.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command().mut_subcommand("serve", |serve| {
        serve
            .after_help("`workspaced serve --help` also describes the advanced settings.")
            .after_long_help("")
            .mut_args(|arg| {
                let id = arg.get_id().as_str();
                if matches!(id, "help" | "version") {
                    return arg;
                }
                match MAIN_SETTINGS.iter().find(|(_, settings)| settings.contains(&id)) {
                    Some((group, _)) => arg.help_heading(*group),
                    None => arg.help_heading("Advanced").hide_short_help(true),
                }
            })
    })
}

/// Arguments of `openapi`.
#[derive(Debug, clap::Args)]
pub struct OpenApiArgs {
    /// The version of OpenAPI. The document of 3.0 is for generators that do not read 3.1.
    #[arg(long, value_name = "VERSION", default_value = "3.1")]
    pub version: OpenApiVersion,
}

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OpenApiVersion {
    /// As it is served at `/openapi.json`.
    #[value(name = "3.1")]
    V3_1,
    /// Converted.
    #[value(name = "3.0")]
    V3_0,
}

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// TOML file of settings, with the names of the flags.
    #[arg(long, env = "WORKSPACED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: CommandLine,
}

impl ServeArgs {
    /// Checks the settings. `env` looks up the environment variables that clap does not.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let settings = self.settings.over(file, env)?;
        Config::check(settings, self.config, env)
    }
}
