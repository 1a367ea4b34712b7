//! The connection to a service.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Url};

use crate::problem::{Error, causes};
use crate::retry::RetryPolicy;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the service may send nothing. Creating a run waits for its import.
const READ_TIMEOUT: Duration = Duration::from_mins(15);
/// The most bytes of an answer that is read into memory, without another setting: what a batch may answer, and more.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A client of one service, with one token. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    /// Marked as sensitive, so that it is never shown.
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) retry: RetryPolicy,
    pub(crate) max_answer_bytes: usize,
}

impl Client {
    /// A client of the service at `url`, such as `https://workspaced.example.org`, with an operator's or a run's token.
    ///
    /// Redirects are not followed, so that the token goes to this host only.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another URL than one of HTTP, and for a token that no header can have.
    pub fn new(url: &str, token: &str) -> Result<Self, Error> {
        Self::connect(url, token, Vec::new())
    }

    /// Whether requests do not leave this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        match self.base.host_str() {
            Some("localhost") => true,
            Some(host) => host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
            None => false,
        }
    }

    /// As [`Client::new`], for a service whose certificate an authority of its own has issued. The certificates in `pem` are
    /// trusted in addition to those of the system.
    ///
    /// # Errors
    ///
    /// As [`Client::new`], and [`Error::Invalid`] if `pem` has no certificates.
    pub fn trusting(url: &str, token: &str, pem: &[u8]) -> Result<Self, Error> {
        let roots = Certificate::from_pem_bundle(pem).unwrap_or_default();
        if roots.is_empty() {
            return Err(Error::Invalid("the trusted certificates: expected PEM".to_owned()));
        }
        Self::connect(url, token, roots)
    }

    fn connect(url: &str, token: &str, roots: Vec<Certificate>) -> Result<Self, Error> {
        let invalid = |why: &str| Error::Invalid(format!("invalid address {url:?} of the service: {why}"));
        let base = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.query().is_some() || base.fragment().is_some() {
            return Err(invalid("expected http:// or https://, a host and perhaps a path"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(invalid("expected no user name and no password"));
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread has installed one meanwhile, which serves as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let has_roots = !roots.is_empty();
        let http = reqwest::Client::builder()
            .user_agent(concat!("workspaced-client/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(Policy::none())
            .tls_certs_merge(roots);
        // Without TLS, the certificates of the machine need not be read.
        let http = if base.scheme() == "http" { http.tls_certs_only([]) } else { http };
        let http = http.build().map_err(|error| {
            if has_roots {
                Error::Invalid(format!("the trusted certificates cannot be used: {}", causes(&error)))
            } else {
                Error::Transport(error)
            }
        })?;
        let (retry, max_answer_bytes) = (RetryPolicy::default(), MAX_ANSWER_BYTES);
        Self { http, base, authorization: None, retry, max_answer_bytes }.with_token(token)
    }

    /// The same client with another token.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a token that no header can have.
    pub fn with_token(&self, token: &str) -> Result<Self, Error> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Error::Invalid("the token contains characters that no header can have".to_owned()))?;
        authorization.set_sensitive(true);
        Ok(Self { authorization: Some(authorization), ..self.clone() })
    }

    /// The same client with other repetitions.
    #[must_use]
    pub fn with_retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// The same client with another limit on an answer that is read into memory, in bytes. Default: 64 MiB.
    #[must_use]
    pub fn with_max_answer_bytes(self, max_answer_bytes: usize) -> Self {
        Self { max_answer_bytes, ..self }
    }
}
