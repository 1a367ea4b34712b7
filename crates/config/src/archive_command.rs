//! Arguments of `archive`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use model::{RunId, Sha256};
use transparency::VerifierKey;

use crate::error::ConfigError;
use crate::offline::parse_run_id;
use crate::stores::StoreTarget;

/// Arguments of `archive`. Neither a service nor its database is needed.
#[derive(Debug, clap::Args)]
pub struct ArchiveArgs {
    #[command(subcommand)]
    action: ArchiveActionArgs,
}

#[derive(Debug, clap::Subcommand)]
enum ArchiveActionArgs {
    /// List the archives of a store with their sizes.
    List {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Verify an archive, or all: every byte, the chain of its records, and the checkpoint over it; exit code 1 if one is
    /// invalid, 3 if no key
    /// was given and so no checkpoint was verified.
    Verify {
        /// Verify only this run.
        #[arg(value_name = "RUN", value_parser = parse_run_id)]
        run: Option<RunId>,
        #[command(flatten)]
        hash: HashArgs,
        #[command(flatten)]
        key: LogKeyArgs,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Verify the archive of a run, and unpack it if a folder is given.
    Read {
        /// The run.
        #[arg(value_name = "RUN", value_parser = parse_run_id)]
        run: RunId,
        /// Folder to unpack to; must be empty or not exist. Symbolic links are listed, not created.
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
        #[command(flatten)]
        hash: HashArgs,
        #[command(flatten)]
        key: LogKeyArgs,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(Debug, clap::Args)]
struct StoreArgs {
    /// Store of the archives: a folder, or `s3://BUCKET/PREFIX`.
    #[arg(long, env = "WORKSPACED_ARCHIVE_TO", value_name = "FOLDER or URL")]
    from: String,
}

#[derive(Debug, clap::Args)]
struct HashArgs {
    /// Use only the archive with this hash, which the record `run.archive` has; without it, another archive of the run with the
    /// same records is taken for valid.
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    sha256: Option<Sha256>,
}

fn parse_hash(raw: &str) -> Result<Sha256, String> {
    Sha256::parse(raw).map_err(|error| error.to_string())
}

#[derive(Debug, clap::Args)]
struct LogKeyArgs {
    /// Public key of the checkpoints, as returned by `GET /v1/checkpoint/key`, or an earlier one of the log. Without it, their
    /// signatures are not verified.
    #[arg(long, env = "WORKSPACED_CHECKPOINT_VERIFIER_KEY", value_name = "KEY")]
    checkpoint_verifier_key: Option<String>,
}

/// What `archive` does.
#[derive(Debug)]
pub enum ArchiveAction {
    /// Lists the archives.
    List,
    /// Verifies the archives of a run, or all.
    Verify(Option<RunId>),
    /// Verifies the archive of a run, and unpacks it to a folder.
    Read(RunId, Option<PathBuf>),
}

/// The checked settings of `archive`.
#[derive(Debug)]
pub struct ArchiveCommandConfig {
    /// What is done.
    pub action: ArchiveAction,
    /// Where it is read.
    pub from: StoreTarget,
    /// The public key that signatures are checked with; `None` to check hashes alone.
    pub key: Option<VerifierKey>,
    /// The hash of the only archive to use.
    pub sha256: Option<Sha256>,
}

impl ArchiveArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<ArchiveCommandConfig, ConfigError> {
        let (action, key, sha256, store) = match self.action {
            ArchiveActionArgs::List { store } => (ArchiveAction::List, None, None, store),
            ArchiveActionArgs::Verify { run, hash, key, store } => {
                (ArchiveAction::Verify(run), key.checkpoint_verifier_key, hash.sha256, store)
            }
            ArchiveActionArgs::Read { run, to, hash, key, store } => {
                (ArchiveAction::Read(run, to), key.checkpoint_verifier_key, hash.sha256, store)
            }
        };
        let bad_key = |error| ConfigError(format!("--checkpoint-verifier-key: {error}"));
        let key = key.filter(|key| !key.is_empty()).map(|key| VerifierKey::parse(&key)).transpose().map_err(bad_key)?;
        let from = StoreTarget::parse(&store.from).map_err(|why| ConfigError(format!("--from: {why}")))?;
        Ok(ArchiveCommandConfig { action, from, key, sha256 })
    }
}
