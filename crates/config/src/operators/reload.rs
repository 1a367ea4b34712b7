//! What the service reads again while it runs: the operators' tokens and the policy profiles that are in files.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are opened by the readers of settings")]

use std::path::{Path, PathBuf};

use engine::operators::{AUDIT, ConfiguredTokens, OPERATOR, OperatorIdentity};
use model::{OperatorName, Profiles, Scope};

use crate::error::ConfigError;
use crate::operators;
use crate::secret::Secret;
use crate::settings::{OperatorSetting, Settings};

const OPERATOR_TOKEN: &str = "WORKSPACED_OPERATOR_TOKEN";
const AUDIT_TOKEN: &str = "WORKSPACED_AUDIT_TOKEN";

/// Where the tokens of operators and the profiles come from.
#[derive(Clone, Debug)]
pub struct Sources {
    operator_token: TokenSource,
    audit_token: TokenSource,
    /// The file of `--config`, which may have operators and profiles.
    config: Option<PathBuf>,
}

/// Where a token comes from.
#[derive(Clone, Debug)]
enum TokenSource {
    /// A file, which the variable with `_FILE` names.
    File(&'static str, PathBuf),
    /// The environment, which does not change; `None` if it has none.
    Given(Option<Secret>),
}

/// What the sources have.
#[derive(Clone, Debug)]
pub struct LoadedOperators {
    pub tokens: ConfiguredTokens,
    pub profiles: Profiles,
}

impl Sources {
    /// Finds the sources.
    ///
    /// # Errors
    ///
    /// Fails if a token in the environment cannot be used.
    pub fn find(config: Option<PathBuf>, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let (operator_token, audit_token) =
            (TokenSource::find(OPERATOR_TOKEN, env)?, TokenSource::find(AUDIT_TOKEN, env)?);
        Ok(Self { operator_token, audit_token, config })
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let tokens = [&self.operator_token, &self.audit_token].into_iter().filter_map(|source| match source {
            TokenSource::File(_, file) => Some(file),
            TokenSource::Given(_) => None,
        });
        tokens.chain(&self.config).map(PathBuf::as_path)
    }

    /// Reads the sources. `operators` and `profiles` are those of the file of `--config`.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be read or used.
    pub fn load(
        &self,
        operators: Option<Vec<OperatorSetting>>,
        profiles: Option<Profiles>,
    ) -> Result<LoadedOperators, ConfigError> {
        let (operator, audit) = (self.operator_token.read()?, self.audit_token.read()?);
        if let (Some(operator), Some(audit)) = (&operator, &audit)
            && (operator.has(audit.sha256()) || audit.second_sha256().is_some_and(|second| operator.has(second)))
        {
            return Err(ConfigError(format!("{OPERATOR_TOKEN} and {AUDIT_TOKEN} must differ")));
        }
        let mut operators = operators::check(operators.unwrap_or_default(), &[&operator, &audit])?;
        for (secret, name, scope) in [(&operator, OPERATOR, Scope::Orchestrate), (&audit, AUDIT, Scope::Audit)] {
            let second = secret.as_ref().and_then(Secret::second_sha256).zip(OperatorName::parse(name).ok());
            operators.extend(second.map(|(hash, name)| OperatorIdentity::configured(name, [scope], hash)));
        }
        let (operator, audit) = (operator.map(|secret| secret.sha256()), audit.map(|secret| secret.sha256()));
        let tokens = ConfiguredTokens { operator, audit, operators };
        Ok(LoadedOperators { tokens, profiles: profiles.unwrap_or_else(Profiles::built_in) })
    }

    /// Reads the sources again, with the file of `--config`.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be read or used.
    pub fn load_again(&self) -> Result<LoadedOperators, ConfigError> {
        let settings = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        self.load(settings.operator, settings.profiles)
    }
}

impl TokenSource {
    fn find(name: &'static str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let given = Secret::from_env(name, env)?;
        let file = env(&format!("{name}_FILE")).filter(|file| !file.is_empty());
        Ok(file.map_or(Self::Given(given), |file| Self::File(name, PathBuf::from(file))))
    }

    fn read(&self) -> Result<Option<Secret>, ConfigError> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::File(name, file) => {
                let variable = format!("{name}_FILE");
                Secret::from_env(name, &|asked| (asked == variable).then(|| file.display().to_string()))
            }
        }
    }
}
