//! Secrets from the environment, or from files that it names.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use model::Sha256;

use crate::error::ConfigError;

/// Maximum size of a file with a secret, in bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024;
/// Minimum length of an operator token.
const MIN_CHARS: usize = 24;
/// Minimum entropy of an operator token, estimated from the frequencies of its characters. A random token in hexadecimal or
/// a larger alphabet has more.
const MIN_BITS: f64 = 64.0;

/// Returns the secret in the environment variable `name`, or in the file that `{name}_FILE` names. An empty value counts as
/// unset: that is what compose files pass for unset variables.
///
/// # Errors
///
/// Fails if both variables are set, or if the file cannot be read.
pub(crate) fn read(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, ConfigError> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let file_name = format!("{name}_FILE");
    match (set(name), set(&file_name)) {
        (Some(_), Some(_)) => Err(ConfigError(format!("{name} and {file_name} are both set: set only one of them"))),
        (Some(secret), None) => Ok(Some(secret)),
        (None, Some(file)) => read_file(&file_name, Path::new(&file)).map(Some),
        (None, None) => Ok(None),
    }
}

/// Returns the secret in `file`, which `setting` names, without line endings at its end.
///
/// # Errors
///
/// Fails if the file cannot be read, is empty, is not UTF-8 or has more than 16 KiB.
pub(crate) fn read_file(setting: &str, file: &Path) -> Result<String, ConfigError> {
    let bad = |why: &dyn fmt::Display| ConfigError(format!("{setting} `{}`: {why}", file.display()));
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| bad(&error))?;
    let size = opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| bad(&error))?;
    if size as u64 > MAX_FILE_BYTES {
        return Err(bad(&format!("larger than {MAX_FILE_BYTES} bytes: expected a file with one secret")));
    }
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(bad(&"the file is empty: write the secret to it")),
        secret => Ok(secret.to_owned()),
    }
}

/// The hashes of an operator's tokens from the environment: one, or two while it is replaced. `Debug` does not show them.
#[derive(Clone)]
pub(crate) struct Secret {
    first: Sha256,
    second: Option<Sha256>,
}

impl Secret {
    /// Reads the token `name` as [`read`] does. A second line has a second token.
    ///
    /// # Errors
    ///
    /// Fails if the tokens cannot be read, are more than two or equal, are not printable ASCII, or are easy to guess.
    pub(crate) fn from_env(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let Some(secret) = read(name, env)? else { return Ok(None) };
        let hashes = secret.lines().map(|line| hash_of_token(name, line)).collect::<Result<Vec<_>, _>>()?;
        match hashes.as_slice() {
            [first] => Ok(Some(Self { first: *first, second: None })),
            [first, second] if first != second => Ok(Some(Self { first: *first, second: Some(*second) })),
            _ => Err(ConfigError(format!("{name}: expected one token, or two different ones on a line each"))),
        }
    }

    /// Returns the hash of the first token, which is what is stored and compared.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.first
    }

    /// Returns the hash of the second token.
    pub(crate) fn second_sha256(&self) -> Option<Sha256> {
        self.second
    }

    /// Returns whether one of the tokens has this hash.
    pub(crate) fn has(&self, hash: Sha256) -> bool {
        self.first == hash || self.second == Some(hash)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns the hash of a secret that is hard to guess.
///
/// # Errors
///
/// Fails if it is not printable ASCII, or is easy to guess.
pub(crate) fn hash_of_token(name: &str, token: &str) -> Result<Sha256, ConfigError> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError(format!("{name}: expected printable ASCII without spaces")));
    }
    if token.len() < MIN_CHARS || entropy_bits(token) < MIN_BITS {
        return Err(ConfigError(format!(
            "{name}: too easy to guess: use at least {MIN_CHARS} random characters, such as 64 hexadecimal digits"
        )));
    }
    Ok(Sha256::of(token.as_bytes()))
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
