//! The command line.

use config::{ArchiveArgs, BackupArgs, KeyArgs, RepairArgs, ReplayArgs, RestoreArgs, ServeArgs, VerifyArgs};

use cli::ClientCommand;

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
    #[expect(missing_docs, reason = "its description is that of its arguments")]
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
    /// List, verify or unpack the archives of runs.
    Archive(ArchiveArgs),
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
    ("Sources and policy", &["import_roots", "git_allow_hosts", "sandbox"]),
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
