//! Operators of the configuration, and the settings of `operator`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

pub(crate) mod reload;

use std::path::PathBuf;

use engine::admission::operators::{OperatorIdentity, parse_name};
use engine::operators::manage::CreateOperatorRequest;
use engine::operators::rotate::RotateTokenRequest;
use model::{OperatorName, Scope, Sha256};

use crate::cli::connection::{Connection, Env};
use crate::cli::has_service;
use crate::config::database_url::DatabaseUrl;
use crate::config::error::ConfigError;
use crate::config::offline::DataArgs;
use crate::config::secret::Secret;
use crate::config::settings::{OperatorSetting, Settings};

/// Arguments of `operator`.
#[derive(Debug, clap::Args)]
pub struct OperatorArgs {
    #[command(subcommand)]
    action: OperatorActionArgs,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum OperatorActionArgs {
    /// Create an operator and print its token once.
    Add {
        /// Name: a letter or digit, then up to 63 letters, digits, `.`, `_`, `@`, `+` or `-`.
        name: String,
        /// What the operator may do: orchestrate, approve, audit or metrics; may be repeated.
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = parse_scope)]
        scopes: Vec<Scope>,
        /// When the token expires, RFC 3339 [default: never]
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// List operators.
    List {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Give an operator another token, and print it once. The present one stays valid for a while.
    Rotate {
        /// Name.
        name: String,
        /// Seconds for which the present token stays valid, at most 604800; 0 ends it and every earlier one at once [default: 3600]
        #[arg(long, value_name = "N")]
        overlap_seconds: Option<u64>,
        /// When the new token expires, RFC 3339 [default: as the present one, if that has not expired]
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Revoke an operator.
    Revoke {
        /// Name.
        name: String,
        #[command(flatten)]
        data: DataArgs,
    },
}

/// What `operator` does.
#[derive(Debug)]
pub enum OperatorAction {
    /// Creates an operator.
    Add(CreateOperatorRequest),
    /// Lists operators.
    List,
    /// Gives an operator another token.
    Rotate(OperatorName, RotateTokenRequest),
    /// Revokes an operator.
    Revoke(OperatorName),
}

/// The checked settings of `operator`.
#[derive(Debug)]
pub struct OperatorConfig {
    pub(crate) action: OperatorAction,
    /// The operators of the configuration.
    pub(crate) configured: Vec<OperatorIdentity>,
    pub(crate) data_dir: PathBuf,
    pub(crate) database_url: DatabaseUrl,
}

impl OperatorArgs {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<OperatorConfig, ConfigError> {
        let (action, data) = (self.action()?, self.action.into_data());
        let settings = data.merge(Settings::default())?;
        let data_dir = settings.data_dir();
        Ok(OperatorConfig {
            action,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            configured: check(settings.operator.unwrap_or_default(), &[])?,
            data_dir,
        })
    }
}

impl OperatorArgs {
    /// Whether the command calls a running service: not if its data is named, and if a service and a token are known.
    pub fn is_for_service(&self, env: &Env<'_>) -> bool {
        !self.action.data().is_given()
            && (self.connection.address.url.is_some() || has_service(&self.connection.address, env))
    }

    /// Returns what is to be done.
    ///
    /// # Errors
    ///
    /// If a name cannot be used.
    pub(crate) fn action(&self) -> Result<OperatorAction, ConfigError> {
        let invalid = |refusal: model::Refusal| ConfigError(refusal.message);
        Ok(match &self.action {
            OperatorActionArgs::Add { name, scopes, expires_at, .. } => {
                parse_name(name).map_err(invalid)?;
                let (name, scopes, expires_at) = (name.clone(), scopes.clone(), expires_at.clone());
                OperatorAction::Add(CreateOperatorRequest { name, scopes, expires_at })
            }
            OperatorActionArgs::List { .. } => OperatorAction::List,
            OperatorActionArgs::Rotate { name, overlap_seconds, expires_at, .. } => {
                let (overlap_seconds, expires_at) = (*overlap_seconds, expires_at.clone());
                OperatorAction::Rotate(existing(name)?, RotateTokenRequest { overlap_seconds, expires_at })
            }
            OperatorActionArgs::Revoke { name, .. } => OperatorAction::Revoke(existing(name)?),
        })
    }
}

impl OperatorActionArgs {
    fn data(&self) -> &DataArgs {
        let (Self::Add { data, .. } | Self::List { data } | Self::Rotate { data, .. } | Self::Revoke { data, .. }) =
            self;
        data
    }

    fn into_data(self) -> DataArgs {
        let (Self::Add { data, .. } | Self::List { data } | Self::Rotate { data, .. } | Self::Revoke { data, .. }) =
            self;
        data
    }
}

fn existing(name: &str) -> Result<OperatorName, ConfigError> {
    OperatorName::parse(name).map_err(|error| ConfigError(format!("`{name}`: {error}")))
}

/// Checks the operators of the file. `others` are the tokens of the environment.
///
/// # Errors
///
/// Fails if a name, a hash or a list of scopes cannot be used, or if two operators have the same name or token.
pub(crate) fn check(
    settings: Vec<OperatorSetting>,
    others: &[&Option<Secret>],
) -> Result<Vec<OperatorIdentity>, ConfigError> {
    let mut known: Vec<OperatorIdentity> = Vec::with_capacity(settings.len());
    for OperatorSetting { name, token_sha256, scopes } in settings {
        let bad = |why: String| ConfigError(format!("operator `{}`: {why}", name.escape_debug()));
        let parsed = parse_name(&name).map_err(|refusal| bad(refusal.message))?;
        let hashes = token_sha256.iter().map(|hash| Sha256::parse(hash)).collect::<Result<Vec<_>, _>>();
        let hashes =
            hashes.map_err(|_| bad("token_sha256 is not a SHA-256 in 64 lower-case hexadecimal digits".to_owned()))?;
        if !(1..=2).contains(&hashes.len()) {
            return Err(bad("token_sha256 has to be one SHA-256, or a list of at most two".to_owned()));
        }
        if scopes.is_empty() {
            return Err(bad("scopes is empty".to_owned()));
        }
        if known.iter().any(|other| other.name.is_same(&parsed)) {
            return Err(bad("there are two operators of this name".to_owned()));
        }
        for hash in hashes {
            let is_taken = others.iter().filter_map(|other| other.as_ref()).any(|other| other.has(hash))
                || known.iter().any(|other| other.secret_sha256 == hash);
            if is_taken {
                return Err(bad("another operator has the same token, or the list has it twice".to_owned()));
            }
            known.push(OperatorIdentity::configured(parsed.clone(), scopes.iter().copied(), hash));
        }
    }
    Ok(known)
}

fn parse_scope(raw: &str) -> Result<Scope, String> {
    let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    Scope::parse(raw).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
