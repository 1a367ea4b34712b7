//! The program: settings, startup, HTTP, administration commands and telemetry around the [`engine`].
//!
//! The law of this crate: only `http` knows a transport; nothing here changes a run but by the engine.

mod answer_memory;
mod bootstrap;
mod cancellations;
mod command_line;
mod http;
mod issuer;
mod maintenance;
mod sandbox;
mod service;
mod telemetry;
mod webhooks;

use engine::CallError;

pub use bootstrap::serve;
pub use command_line::{Args, Command, OpenApiArgs, OpenApiVersion, command};
pub use sandbox::{Confinement, confine};

/// Returns the OpenAPI document of the service, as committed under `openapi/`.
pub fn openapi(version: OpenApiVersion) -> String {
    http::openapi_text(version)
}
