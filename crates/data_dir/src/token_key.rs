//! The secret in the data folder from which the tokens of keyed requests are derived. It is not in the database, so that a
//! copy of the database contains no token.

#![expect(clippy::disallowed_methods, reason = "the key is beside the runs' folders, not in them")]

use std::io::ErrorKind;
use std::path::Path;

use engine::operators::DerivationKey;
use hmac::Mac as _;
use model::Sha256;

use crate::durable_file::write_durably;
use config::{ClusterSecret, ConfigError};

/// The name of the file: 64 hexadecimal digits.
pub const KEY_FILE: &str = "token.key";

/// Reads the key of the data folder. Creates it if there is none.
///
/// # Errors
///
/// If it cannot be read, parsed or created.
pub fn load_or_create(data_dir: &Path) -> Result<DerivationKey, ConfigError> {
    let failed =
        |why: &dyn std::error::Error| ConfigError(format!("--data-dir: {}: {why}", data_dir.join(KEY_FILE).display()));
    let bytes = match std::fs::read_to_string(data_dir.join(KEY_FILE)) {
        // A hash has the form of a key.
        Ok(text) => *Sha256::parse(text.trim()).map_err(|error| failed(&error))?.as_bytes(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let bytes: [u8; 32] = rand::random();
            // A partial key would end the next start.
            write_durably(data_dir, KEY_FILE, &Sha256::from_bytes(bytes).to_string())
                .map_err(|error| failed(&error))?;
            bytes
        }
        Err(error) => return Err(failed(&error)),
    };
    Ok(DerivationKey::new(bytes))
}

/// Returns the key that all nodes derive from their secret, so that each of them returns the same token for a keyed request.
pub fn of_nodes(secret: &ClusterSecret) -> DerivationKey {
    DerivationKey::new(secret.mac("workspaced token derivation").finalize().into_bytes().into())
}
