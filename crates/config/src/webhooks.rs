//! Webhooks: where messages about events are sent, and the secrets that sign them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::WebhookEvent;
use reqwest::Url;

use crate::error::ConfigError;
use crate::http_client::is_loopback;
use crate::secret;
use crate::settings::WebhookSetting;

/// Maximum number of webhooks.
const MAX_WEBHOOKS: usize = 16;
/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Maximum number of secrets of a webhook, of which one replaces the other.
const MAX_SECRETS: usize = 2;
/// What the text of a secret begins with.
const SECRET_PREFIX: &str = "whsec_";

/// A webhook. `Debug` shows neither its URL, which may contain a password, nor its secrets.
#[derive(Clone)]
pub struct WebhookConfig {
    /// Its name.
    pub name: String,
    /// The address.
    pub url: Url,
    /// One or two secrets.
    pub secrets: Vec<Vec<u8>>,
    /// The events that it is told of.
    pub events: Vec<WebhookEvent>,
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig").field("name", &self.name).field("events", &self.events).finish_non_exhaustive()
    }
}

/// Checks the webhooks of the file, and reads their secrets.
///
/// # Errors
///
/// Fails if a member cannot be used, if a webhook has not exactly one source of secrets, or if two have the same name.
pub(crate) fn check(
    settings: Vec<WebhookSetting>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<WebhookConfig>, ConfigError> {
    if settings.len() > MAX_WEBHOOKS {
        return Err(ConfigError(format!("webhook: there are more than {MAX_WEBHOOKS}")));
    }
    let mut known = Vec::<WebhookConfig>::with_capacity(settings.len());
    for setting in settings {
        let bad = |why: &str| ConfigError(format!("webhook `{}`: {why}", setting.name.escape_debug()));
        if !is_name(&setting.name) {
            return Err(bad("expected a name of 1 to 64 letters, digits, `.`, `_` or `-`, other than `.` and `..`"));
        }
        if known.iter().any(|other| other.name == setting.name) {
            return Err(bad("there are two webhooks of this name"));
        }
        let text = match (&setting.secret_file, &setting.secret_env) {
            (Some(file), None) => {
                secret::read_file(&format!("webhook `{}`: secret_file", setting.name.escape_debug()), file)?
            }
            (None, Some(variable)) => {
                env(variable).ok_or_else(|| bad(&format!("the environment variable {variable} is not set")))?
            }
            (Some(_), Some(_)) | (None, None) => return Err(bad("expected either secret_file or secret_env")),
        };
        let secrets = parse_secrets(&text).map_err(&bad)?;
        let url = parse_url(&setting.url).map_err(&bad)?;
        let mut events = setting.events.clone().unwrap_or_else(|| WebhookEvent::ALL.to_vec());
        events.sort_unstable();
        events.dedup();
        if events.is_empty() {
            return Err(bad("events is empty: name at least one, or omit it for all"));
        }
        known.push(WebhookConfig { name: setting.name, url, secrets, events });
    }
    Ok(known)
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    // Clients resolve `.` and `..` in the path of a URL.
    (1..=64).contains(&name.len()) && name.bytes().all(fits) && !matches!(name, "." | "..")
}

/// Parses one or two secrets with white space between them.
fn parse_secrets(text: &str) -> Result<Vec<Vec<u8>>, &'static str> {
    let parse = |secret: &str| {
        let decoded = secret.strip_prefix(SECRET_PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        decoded.filter(|secret| (24..=64).contains(&secret.len()))
    };
    let secrets: Option<Vec<_>> = text.split_whitespace().map(parse).collect();
    secrets
        .filter(|secrets| (1..=MAX_SECRETS).contains(&secrets.len()))
        .ok_or("expected one or two secrets: `whsec_` and the Base64 of 24 to 64 random bytes")
}

fn parse_url(raw: &str) -> Result<Url, &'static str> {
    let invalid = "url: expected https://, a host and a path, at most 2,048 bytes and without a fragment";
    let url =
        Url::parse(raw).ok().filter(|url| raw.len() <= MAX_URL_BYTES && url.fragment().is_none()).ok_or(invalid)?;
    url.host_str().ok_or(invalid)?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err("url: http is permitted for localhost and loopback addresses only: use https"),
        _ => Err(invalid),
    }
}
