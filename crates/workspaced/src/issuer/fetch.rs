//! Fetches the keys of an issuer: its metadata, which names their address, and then the set of keys.

use model::json;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;

use crate::issuer::keys::{self, IssuerKey};
use config::http_client::is_loopback;
use config::{IssuerConfig, SignInConfig};

/// Maximum size of each document.
const MAX_BYTES: usize = 256 * 1024;

/// Why the keys cannot be used. Nothing that the issuer has sent is shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{what}: {cause}")]
    Http { what: &'static str, cause: reqwest::Error },
    #[error("{what}: status {status}")]
    Status { what: &'static str, status: StatusCode },
    #[error("{0}: longer than {MAX_BYTES} bytes")]
    TooLong(&'static str),
    #[error("{0}: not a JSON object of the expected form")]
    Malformed(&'static str),
    #[error("the metadata name another issuer than --oauth-issuer")]
    OtherIssuer,
    #[error("the metadata name no https address for the keys")]
    KeysAddress,
    #[error("{0}: no ID token")]
    NoIdToken(&'static str),
}

const METADATA: &str = "metadata of the issuer";
const KEYS: &str = "keys of the issuer";

/// Where people sign in, and where a code is exchanged for tokens.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) authorization: Url,
    pub(crate) token: Url,
}

/// Returns the keys that the issuer signs with, and its endpoints, if it has them.
///
/// # Errors
///
/// If a document cannot be fetched, is too long, or does not say what it must.
pub(crate) async fn keys(
    http: &Client,
    config: &IssuerConfig,
) -> Result<(Vec<IssuerKey>, Option<Endpoints>), FetchError> {
    let metadata = metadata(http, config).await?;
    // RFC 8414, 3.3: or another party could put its keys in place of the issuer's.
    if metadata["issuer"].as_str() != Some(config.issuer.as_str()) {
        return Err(FetchError::OtherIssuer);
    }
    let address = |member: &str| {
        let address = metadata[member].as_str().and_then(|raw| Url::parse(raw).ok());
        address.filter(|address| is_allowed(address, config))
    };
    let endpoints = address("authorization_endpoint").zip(address("token_endpoint"));
    let endpoints = endpoints.map(|(authorization, token)| Endpoints { authorization, token });
    let set = get(http, address("jwks_uri").ok_or(FetchError::KeysAddress)?, KEYS).await?;
    Ok((keys::parse(&set).ok_or(FetchError::Malformed(KEYS))?, endpoints))
}

const TOKENS: &str = "tokens of a person";

/// Exchanges a code for an ID token. `form` has the members of the request.
///
/// # Errors
///
/// If the issuer refuses the code, or its answer is too long or has no ID token.
pub(crate) async fn id_token(
    http: &Client,
    config: &SignInConfig,
    address: Url,
    form: String,
) -> Result<String, FetchError> {
    let failed = |cause: reqwest::Error| FetchError::Http { what: TOKENS, cause: cause.without_url() };
    let request = http.post(address).header("accept", "application/json");
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let request = match &config.client_secret {
        // RFC 6749, 2.3.1: both are encoded as in a form.
        Some(secret) => request.basic_auth(encoded(&config.client_id), Some(encoded(secret))),
        None => request,
    };
    let answer = read(request.send().await.map_err(failed)?, TOKENS).await?;
    let token = answer["id_token"].as_str().map(str::to_owned);
    token.ok_or(FetchError::NoIdToken(TOKENS))
}

/// Encodes a text as a value of a form.
fn encoded(text: &str) -> String {
    form([("", text)]).split_off(1)
}

/// Encodes the members of a form.
pub(crate) fn form<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let encode = |mut url: Url| {
        url.query_pairs_mut().extend_pairs(members);
        url.query().unwrap_or_default().to_owned()
    };
    // The address parses always.
    Url::parse("http://form").map(encode).unwrap_or_default()
}

/// Whether keys may come from `address`: from another host too, but from this machine only if the issuer is here.
fn is_allowed(address: &Url, config: &IssuerConfig) -> bool {
    if is_loopback(&config.url) {
        return is_loopback(address) && matches!(address.scheme(), "http" | "https");
    }
    !is_loopback(address) && address.scheme() == "https"
}

/// Returns the metadata from the address of RFC 8414, or else from that of `OpenID` Connect.
async fn metadata(http: &Client, config: &IssuerConfig) -> Result<Value, FetchError> {
    let [oauth, openid] = addresses(&config.url);
    match get(http, oauth, METADATA).await {
        Err(FetchError::Status { .. }) => get(http, openid, METADATA).await,
        found => found,
    }
}

fn addresses(issuer: &Url) -> [Url; 2] {
    let path = issuer.path().trim_end_matches('/');
    let with_path = |path: &str| {
        let mut url = issuer.clone();
        url.set_path(path);
        url
    };
    [
        with_path(&format!("/.well-known/oauth-authorization-server{path}")),
        with_path(&format!("{path}/.well-known/openid-configuration")),
    ]
}

/// Returns a JSON object.
async fn get(http: &Client, address: Url, what: &'static str) -> Result<Value, FetchError> {
    let failed = |cause: reqwest::Error| FetchError::Http { what, cause: cause.without_url() };
    read(http.get(address).header("accept", "application/json").send().await.map_err(failed)?, what).await
}

/// Returns the JSON object of an answer.
async fn read(mut response: reqwest::Response, what: &'static str) -> Result<Value, FetchError> {
    let failed = |cause: reqwest::Error| FetchError::Http { what, cause: cause.without_url() };
    // Redirects are not followed.
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status { what, status: response.status() });
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if text.len() + chunk.len() > MAX_BYTES {
            return Err(FetchError::TooLong(what));
        }
        text.extend_from_slice(&chunk);
    }
    json::parse_object(&text).map(Value::Object).map_err(|_| FetchError::Malformed(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_the_metadata_are_those_of_the_standards() {
        let of = |issuer: &str| addresses(&Url::parse(issuer).unwrap()).map(|url| url.to_string());
        for issuer in ["https://a.example", "https://a.example/"] {
            let expected = ["oauth-authorization-server", "openid-configuration"];
            assert_eq!(of(issuer), expected.map(|name| format!("https://a.example/.well-known/{name}")));
        }
        let with_path = [
            "https://a.example/.well-known/oauth-authorization-server/t/v2",
            "https://a.example/t/v2/.well-known/openid-configuration",
        ];
        assert_eq!(of("https://a.example/t/v2"), with_path);
        assert_eq!(of("https://a.example/t/v2/"), with_path);
    }
}
