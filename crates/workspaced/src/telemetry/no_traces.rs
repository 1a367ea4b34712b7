//! Stands in for [`traces`](super::traces) in a build without the feature `otlp`.

use std::future::Ready;

use axum::http::HeaderMap;
use tracing::Span;
use tracing_subscriber::layer::Identity;

pub(crate) use self::NoTraces as Traces;
use config::{ConfigError, OtlpConfig};

/// No traces are sent.
#[derive(Debug)]
pub(crate) enum NoTraces {}

impl NoTraces {
    /// Refuses to send spans. The check of the settings has refused it before.
    ///
    /// # Errors
    ///
    /// Always.
    pub(crate) fn start(_: &OtlpConfig) -> Result<Self, ConfigError> {
        Err(ConfigError(config::NO_OTLP.to_owned()))
    }

    pub(crate) fn layer(&self) -> Identity {
        match *self {}
    }

    pub(crate) fn close(self) -> Ready<()> {
        match self {}
    }
}

/// Does nothing: no span is sent.
pub(crate) fn set_parent(_: &Span, _: &HeaderMap) {}

/// Does nothing: no span is sent.
pub(crate) fn set_status(_: &Span, _: u16) {}
