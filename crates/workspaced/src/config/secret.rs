//! Operator tokens from the environment.

use std::fmt;

use model::Sha256;

use crate::config::error::ConfigError;

/// Minimum length of an operator token.
const MIN_CHARS: usize = 24;
/// Minimum entropy of an operator token, estimated from the frequencies of its characters. A random token in hexadecimal or
/// a larger alphabet has more.
const MIN_BITS: f64 = 64.0;

/// The hash of an operator token from the environment. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Secret(Sha256);

impl Secret {
    /// Reads the token in the environment variable `name`. An empty value counts as unset: that is what compose files pass
    /// for unset variables.
    ///
    /// # Errors
    ///
    /// Fails if the token is not printable ASCII, or easy to guess.
    pub(crate) fn from_env(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let Some(secret) = env(name).filter(|secret| !secret.is_empty()) else { return Ok(None) };
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError(format!("{name}: expected printable ASCII without spaces")));
        }
        if secret.len() < MIN_CHARS || entropy_bits(&secret) < MIN_BITS {
            return Err(ConfigError(format!(
                "{name}: too easy to guess: use at least {MIN_CHARS} random characters, such as 64 hexadecimal digits"
            )));
        }
        Ok(Some(Self(Sha256::of(secret.as_bytes()))))
    }

    /// Returns the hash, which is what is stored and compared.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns the entropy of a text whose characters are drawn independently with the frequencies that they have in it.
fn entropy_bits(text: &str) -> f64 {
    let mut counts = [0_u16; 128];
    for byte in text.bytes().take(usize::from(u16::MAX)) {
        counts[usize::from(byte & 0x7f)] += 1;
    }
    let length = f64::from(counts.iter().sum::<u16>());
    let bits = |count: &u16| f64::from(*count) * (length / f64::from(*count)).log2();
    counts.iter().filter(|count| **count > 0).map(bits).sum()
}
