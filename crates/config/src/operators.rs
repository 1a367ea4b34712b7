//! Operators of the configuration.

pub(crate) mod reload;

use engine::operators::{OperatorIdentity, parse_name};
use model::Sha256;

use crate::error::ConfigError;
use crate::secret::Secret;
use crate::settings::OperatorSetting;

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
