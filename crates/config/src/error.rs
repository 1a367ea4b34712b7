//! The error of settings.

/// A setting cannot be used. The message is one line for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);
