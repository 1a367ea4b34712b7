//! The settings of `serve` as they are given.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::path::PathBuf;

use crate::Config;
use crate::error::ConfigError;
use crate::settings::{CommandLine, Settings};

/// Serve the API.
///
/// Each setting is taken from its flag, else from its environment variable, else from the file of `--config`.
///
/// Secrets are taken from the environment, or for tokens from files: the same variable with `_FILE` at its end names one.
/// `WORKSPACED_OPERATOR_TOKEN` is an operator token with the scope
/// `orchestrate`; without it, one is generated at the first start and printed once. `WORKSPACED_AUDIT_TOKEN` is an
/// operator token with the scope `audit`. `WORKSPACED_CHECKPOINT_KEY` signs checkpoints; without it, a key is generated
/// in the data folder at the first start.
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
