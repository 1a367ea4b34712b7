//! Settings of a service that shares its database with other nodes.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use model::Sha256;
use reqwest::Url;

use crate::database_url::DatabaseUrl;
use crate::error::ConfigError;
use crate::secret;
use crate::settings::Settings;

/// Maximum length of the address of a node, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Maximum length of the name of a node, in bytes.
const MAX_ID_BYTES: usize = 64;

/// How the service shares its database with other nodes.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where other nodes reach this one. Without a path, a query or credentials.
    pub url: Url,
    /// The name of this node, if it is not generated.
    pub node_id: Option<String>,
    /// What nodes recognise each other by.
    pub secret: ClusterSecret,
}

/// The secret that all nodes have. `Debug` does not show it.
#[derive(Clone)]
pub struct ClusterSecret(Sha256);

impl NodeConfig {
    /// Checks the settings of nodes; `None` without `--node-url`.
    ///
    /// # Errors
    ///
    /// Fails if a setting cannot be used, or if one that nodes need is missing.
    pub fn check(
        settings: &Settings,
        database_url: &DatabaseUrl,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let bad = |message: &str| Err(ConfigError(message.to_owned()));
        let node_id = settings.node_id.clone().filter(|id| !id.is_empty());
        let secret_file = settings.cluster_secret_file.as_deref().filter(|file| !file.as_os_str().is_empty());
        let Some(raw) = settings.node_url.as_deref().filter(|raw| !raw.is_empty()) else {
            return match (node_id, secret_file) {
                (Some(_), _) => bad("--node-id: --node-url is missing"),
                (None, Some(_)) => bad("--cluster-secret-file: --node-url is missing"),
                (None, None) => Ok(None),
            };
        };
        let Some(url) = node_url(raw) else {
            return bad(
                "--node-url: expected `http://HOST:PORT` or `https://HOST:PORT`, without a path or credentials",
            );
        };
        if node_id.as_deref().is_some_and(|id| !is_name(id)) {
            return bad(
                "--node-id: expected a name of 1 to 64 letters, digits, `.`, `_` or `-`, other than `.` and `..`",
            );
        }
        if database_url.sqlite_file().is_some() {
            return bad("--node-url: nodes share a PostgreSQL database: set --database-url");
        }
        if settings.object_store_url.as_deref().is_none_or(str::is_empty) {
            return bad(
                "--node-url: nodes get the files of each other's runs from an object store: set --object-store-url",
            );
        }
        let has_key = env("WORKSPACED_CHECKPOINT_KEY").is_some_and(|key| !key.is_empty());
        if !has_key && settings.checkpoint_key_file.as_deref().is_none_or(|file| file.as_os_str().is_empty()) {
            return bad(
                "--node-url: nodes sign checkpoints with the same key: set WORKSPACED_CHECKPOINT_KEY or --checkpoint-key-file",
            );
        }
        let Some(file) = secret_file else {
            return bad("--node-url: --cluster-secret-file is missing");
        };
        let text = secret::read_file("--cluster-secret-file", file)?;
        let secret = ClusterSecret::of(secret::hash_of_token("--cluster-secret-file", &text)?);
        Ok(Some(Self { url, node_id, secret }))
    }

    /// Returns the address as other nodes know it: without a slash at its end.
    pub fn address(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

impl ClusterSecret {
    /// The secret whose file has this hash.
    pub fn of(hash: Sha256) -> Self {
        Self(hash)
    }

    /// Returns a message authentication code under the secret, for `purpose`.
    pub fn mac(&self, purpose: &str) -> Hmac<sha2::Sha256> {
        let Ok(mut mac) = Hmac::<sha2::Sha256>::new_from_slice(self.0.as_bytes()) else {
            unreachable!("HMAC takes a key of any length")
        };
        mac.update(purpose.as_bytes());
        mac.update(b"\n");
        mac
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// Parses the address of a node.
fn node_url(raw: &str) -> Option<Url> {
    let url = Url::parse(raw).ok().filter(|_| raw.len() <= MAX_URL_BYTES)?;
    let has_more = url.path() != "/"
        || url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some();
    (matches!(url.scheme(), "http" | "https") && url.has_host() && !has_more).then_some(url)
}

fn is_name(id: &str) -> bool {
    let byte_fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    id.len() <= MAX_ID_BYTES && id.bytes().all(byte_fits) && !matches!(id, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_node_has_a_scheme_and_a_host_alone() {
        for good in ["http://10.0.0.1:8080", "https://node-a.internal", "http://[::1]:80/"] {
            assert!(node_url(good).is_some(), "{good}");
        }
        for bad in ["", "10.0.0.1:8080", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "http://a#b"] {
            assert!(node_url(bad).is_none(), "{bad}");
        }
    }
}
