//! Credentials that git sources may name.

use workspace::{GitCredential, GitToken};

use crate::error::ConfigError;
use crate::settings::GitCredentialSetting;

/// The user of a credential without `username`. Forges accept any with a token.
const USERNAME: &str = "x-access-token";

/// Checks the credentials of the file. A token file is read at each use, so it need not exist yet.
///
/// # Errors
///
/// Fails if a member cannot be used, if a credential has not exactly one token, or if two have the same name.
pub(crate) fn check(
    settings: Vec<GitCredentialSetting>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<GitCredential>, ConfigError> {
    let mut known = Vec::<GitCredential>::with_capacity(settings.len());
    for GitCredentialSetting { name, url_prefix, username, token_file, token_env } in settings {
        let bad = |why: String| ConfigError(format!("git_credential `{}`: {why}", name.escape_debug()));
        let token = match (token_file, token_env) {
            (Some(file), None) if file.is_absolute() => GitToken::File(file),
            (Some(_), None) => return Err(bad("token_file is not an absolute path".to_owned())),
            (None, Some(variable)) => GitToken::Text(
                env(&variable).ok_or_else(|| bad(format!("the environment variable {variable} is not set")))?,
            ),
            (Some(_), Some(_)) | (None, None) => return Err(bad("expected either token_file or token_env".to_owned())),
        };
        let username = username.as_deref().unwrap_or(USERNAME);
        let credential = GitCredential::new(&name, &url_prefix, username, token).map_err(bad)?;
        if known.iter().any(|other| other.name() == credential.name()) {
            return Err(bad("there are two credentials of this name".to_owned()));
        }
        known.push(credential);
    }
    Ok(known)
}
