//! Operators of the configuration, and the checked settings of `operator`.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

pub(crate) mod reload;

use std::path::PathBuf;

use engine::operators::{CreateOperatorRequest, OperatorIdentity, RotateTokenRequest, parse_name};
use model::{OperatorName, Sha256};

use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::offline::DataArgs;
use crate::secret::Secret;
use crate::settings::{OperatorSetting, Settings};

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
    /// What is done.
    pub action: OperatorAction,
    /// The operators of the configuration.
    pub configured: Vec<OperatorIdentity>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The database.
    pub database_url: DatabaseUrl,
}

impl OperatorConfig {
    /// Checks the settings of a command on the data of a service.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(action: OperatorAction, data: DataArgs) -> Result<Self, ConfigError> {
        let settings = data.merge(Settings::default())?;
        let data_dir = settings.data_dir();
        Ok(Self {
            action,
            database_url: DatabaseUrl::check(&settings, &data_dir)?,
            configured: check(settings.operator.unwrap_or_default(), &[])?,
            data_dir,
        })
    }
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
