//! Sign-in of people to the dashboard, at the issuer of access tokens.

use std::collections::BTreeMap;
use std::fmt;

use model::Scope;

use crate::error::ConfigError;
use crate::secret;
use crate::settings::SignInSetting;

/// Maximum length of the ID of the client, of its secret, and of the names of the claim and of groups, in bytes.
const MAX_BYTES: usize = 1024;
/// Maximum number of groups.
const MAX_GROUPS: usize = 1000;
/// The claim that names a person's groups, if the setting does not.
const GROUPS: &str = "groups";

/// How people sign in. `Debug` does not show the secret.
#[derive(Clone)]
pub struct SignInConfig {
    /// The ID of this service as a client of the issuer.
    pub client_id: String,
    /// Its secret; `None` for a public client.
    pub client_secret: Option<String>,
    /// The claim of an ID token that names a person's groups.
    pub groups_claim: String,
    /// The groups that have each scope.
    pub scopes: BTreeMap<Scope, Vec<String>>,
}

impl fmt::Debug for SignInConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInConfig").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl SignInConfig {
    /// Checks the setting, and reads the secret.
    ///
    /// # Errors
    ///
    /// Fails if a member cannot be used.
    pub(crate) fn check(setting: SignInSetting, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let bad = |why: &str| ConfigError(format!("sign_in: {why}"));
        let client_secret = match (&setting.client_secret_file, &setting.client_secret_env) {
            (Some(file), None) => Some(secret::read_file("sign_in: client_secret_file", file)?),
            (None, Some(variable)) => {
                Some(env(variable).ok_or_else(|| bad(&format!("the environment variable {variable} is not set")))?)
            }
            (None, None) => None,
            (Some(_), Some(_)) => return Err(bad("expected either client_secret_file or client_secret_env")),
        };
        let is_text = |text: &str| (1..=MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
        let groups_claim = setting.groups_claim.unwrap_or_else(|| GROUPS.to_owned());
        if ![Some(&setting.client_id), client_secret.as_ref(), Some(&groups_claim)]
            .into_iter()
            .flatten()
            .all(|text| is_text(text))
        {
            return Err(bad("client_id, the secret and groups_claim take 1 to 1024 bytes without control characters"));
        }
        let groups = || setting.scopes.values().flatten();
        if groups().count() == 0 || groups().count() > MAX_GROUPS || !groups().all(|group| is_text(group)) {
            return Err(bad("scopes names no group, more than 1000, or one that is empty or has control characters"));
        }
        Ok(Self { client_id: setting.client_id, client_secret, groups_claim, scopes: setting.scopes })
    }
}
