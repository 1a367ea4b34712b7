//! The issuer whose access tokens are accepted besides the service's own.

use reqwest::Url;

use crate::error::ConfigError;
use crate::http_client::is_loopback;
use crate::settings::Settings;
use crate::sign_in::SignInConfig;

/// Maximum length of each setting, in bytes.
const MAX_BYTES: usize = 1024;
/// Where the run's tools are, for clients that know them as a resource of its own.
const MCP: &str = "/mcp";

/// The issuer, and what its access tokens must say.
#[derive(Clone, Debug)]
pub struct IssuerConfig {
    /// The issuer as it names itself: compared to the letter.
    pub issuer: String,
    /// The same.
    pub url: Url,
    /// The URL of this service, if the audience is one: without a `/` at its end.
    pub resource: Option<String>,
    /// What `aud` may contain.
    pub audiences: Vec<String>,
    /// The claim that names a run.
    pub run_claim: Option<String>,
    /// How people sign in to the dashboard; `None` if they need a token.
    pub sign_in: Option<SignInConfig>,
}

impl IssuerConfig {
    /// Checks the settings of the issuer. `None` if none is set.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be used, or needs another one.
    pub fn check(settings: &Settings, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let given = |setting: &Option<String>| setting.clone().filter(|value| !value.is_empty());
        let (issuer, audience) = (given(&settings.oauth_issuer), given(&settings.oauth_audience));
        let run_claim = given(&settings.oauth_run_claim);
        let (issuer, audience) = match (issuer, audience) {
            (Some(issuer), Some(audience)) => (issuer, audience),
            (None, None) if run_claim.is_none() && settings.sign_in.is_none() => return Ok(None),
            (None, _) => {
                let problem = "--oauth-audience, --oauth-run-claim and sign_in need --oauth-issuer";
                return Err(ConfigError(problem.to_owned()));
            }
            (Some(_), None) => {
                let problem = "--oauth-issuer needs --oauth-audience, or tokens for other services would be accepted";
                return Err(ConfigError(problem.to_owned()));
            }
        };
        let is_text = |value: &str| {
            value.len() <= MAX_BYTES && value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        };
        if !is_text(&audience) {
            return Err(ConfigError(format!(
                "--oauth-audience: expected 1 to {MAX_BYTES} visible characters of ASCII"
            )));
        }
        if run_claim.as_deref().is_some_and(|claim| !is_text(claim) || RESERVED.contains(&claim)) {
            let names = RESERVED.join(", ");
            return Err(ConfigError(format!("--oauth-run-claim: expected the name of a claim, other than {names}")));
        }
        let url = parse_issuer(&issuer).map_err(|why| ConfigError(format!("--oauth-issuer: {why}")))?;
        let resource = resource_of(&audience);
        let audiences = match &resource {
            Some(resource) => {
                let own = [resource.clone(), format!("{resource}/"), format!("{resource}{MCP}"), audience];
                own.into()
            }
            None => vec![audience],
        };
        let sign_in = settings.sign_in.clone().map(|setting| SignInConfig::check(setting, env)).transpose()?;
        Ok(Some(Self { issuer, url, resource, audiences, run_claim, sign_in }))
    }
}

/// Claims that have a meaning of their own.
const RESERVED: [&str; 9] = ["iss", "aud", "exp", "nbf", "iat", "sub", "scope", "jti", "client_id"];

fn parse_issuer(raw: &str) -> Result<Url, &'static str> {
    let invalid = "expected https://, a host and perhaps a path, without a query, a fragment or credentials";
    let url = Url::parse(raw).ok().filter(|url| raw.len() <= MAX_BYTES && url.host_str().is_some()).ok_or(invalid)?;
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(invalid);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err("http is permitted for localhost and loopback addresses only: use https"),
        _ => Err(invalid),
    }
}

/// Returns the URL of the service, if the audience is one. That of `/mcp` means the same service.
fn resource_of(audience: &str) -> Option<String> {
    let url = Url::parse(audience).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return None;
    }
    let base = audience.trim_end_matches('/');
    Some(base.strip_suffix(MCP).unwrap_or(base).to_owned())
}
