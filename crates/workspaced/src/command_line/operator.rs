//! The arguments of `operator`.

use config::{ConfigError, DataArgs, OperatorAction, OperatorConfig};
use engine::operators::{CreateOperatorRequest, RotateTokenRequest, parse_name};
use model::{OperatorName, Scope};

use cli::connection::{Connection, Env};
use cli::has_service;

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

impl OperatorArgs {
    /// Checks the settings of a command on the data of a service.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(self) -> Result<OperatorConfig, ConfigError> {
        OperatorConfig::check(self.action()?, self.action.into_data())
    }

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
    pub fn action(&self) -> Result<OperatorAction, ConfigError> {
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

fn parse_scope(raw: &str) -> Result<Scope, String> {
    let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    Scope::parse(raw).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
