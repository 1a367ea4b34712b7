//! Settings of the listeners and of traces: what is served where, with which certificate, and who receives spans.

#![expect(clippy::disallowed_types, reason = "settings contain paths, which are not opened here")]

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use axum::http::Uri;

use crate::error::ConfigError;
use crate::features::{HAS_OTLP, NO_OTLP};
use crate::settings::Settings;

/// OpenTelemetry's own variable for the part of the traces that are sent.
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// The files of the certificate that the service identifies itself with.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by those of its issuers, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Checks the settings of TLS. `None` if neither is set.
    ///
    /// # Errors
    ///
    /// Fails if only one of the two files is given.
    pub fn check(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let given = |file: &Option<PathBuf>| file.clone().filter(|file| !file.as_os_str().is_empty());
        match (given(&settings.tls_cert), given(&settings.tls_key)) {
            (Some(cert), Some(key)) => Ok(Some(Self { cert, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConfigError("--tls-cert needs --tls-key: set both or neither".to_owned())),
            (None, Some(_)) => Err(ConfigError("--tls-key needs --tls-cert: set both or neither".to_owned())),
        }
    }

    /// Both files.
    pub fn all(&self) -> [&PathBuf; 2] {
        [&self.cert, &self.key]
    }
}

/// Returns the first address that `raw`, the value of `--name`, resolves to.
///
/// # Errors
///
/// Fails if it is not an address with a port, or if its name is unknown.
pub(crate) fn address(name: &str, raw: &str) -> Result<SocketAddr, ConfigError> {
    let bad = |why: String| ConfigError(format!("--{name} `{raw}`: {why}"));
    let mut found = raw.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("no such address".to_owned()))
}

/// Where spans are sent, and which.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The address that spans are posted to.
    pub url: String,
    /// The part of the traces that are sent, from 0 to 1, of those that no caller has decided about.
    pub sample_ratio: f64,
    /// The name of the service in its spans.
    pub service_name: String,
}

impl OtlpConfig {
    /// Reads OpenTelemetry's own variables. `None` if they name no collector.
    ///
    /// # Errors
    ///
    /// Fails if an address or the ratio cannot be used, or if this build sends no traces.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        Self::from_env_in(HAS_OTLP, env)
    }

    fn from_env_in(has_otlp: bool, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let sample_ratio = match set(SAMPLER_ARG) {
            None => 1.0,
            Some(raw) => raw
                .parse::<f64>()
                .ok()
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| ConfigError(format!("{SAMPLER_ARG} `{raw}`: expected 0 to 1")))?,
        };
        let addresses = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")];
        let mut given = addresses.into_iter().filter_map(|(name, path)| set(name).map(|base| (name, base, path)));
        let Some((name, base, path)) = given.next() else { return Ok(None) };
        if !has_otlp {
            return Err(ConfigError(format!("{name}: {NO_OTLP}")));
        }
        let url = traces_url(name, &base, path)?;
        let service_name = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "workspaced".to_owned());
        Ok(Some(Self { url, sample_ratio, service_name }))
    }
}

/// Returns `base`, the value of the setting `name`, followed by `path`.
fn traces_url(name: &str, base: &str, path: &str) -> Result<String, ConfigError> {
    // Without the value, which may have a secret.
    let bad = || ConfigError(format!("{name}: expected http:// or https:// and a host, such as http://127.0.0.1:4318"));
    let url = format!("{}{path}", if path.is_empty() { base } else { base.trim_end_matches('/') });
    let parsed: Uri = url.parse().map_err(|_| bad())?;
    let is_http = matches!(parsed.scheme_str(), Some("http" | "https"));
    let has_host = parsed.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if is_http && has_host && parsed.query().is_none() { Ok(url) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_traces_says_which_feature_has_them() {
        let at = |set: &'static str| OtlpConfig::from_env_in(false, &move |name| (name == set).then(|| "x".to_owned()));
        for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
            let line = at(name).unwrap_err().0;
            assert!(line.starts_with(&format!("{name}: this build has no OTLP exporter")), "{line}");
            assert!(line.ends_with("build with `--features otlp`"), "{line}");
        }
        assert!(at("OTEL_SERVICE_NAME").unwrap().is_none(), "no collector is named");
    }
}
