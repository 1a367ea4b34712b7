//! The program: settings, startup, HTTP, administration commands and telemetry around the [`engine`].
//!
//! The law of this crate: only `http` knows a transport; nothing here changes a run but by the engine.

mod admin;
mod answer_memory;
mod archives;
mod bootstrap;
mod cancellations;
mod checkpoints;
mod cli;
pub mod config;
mod data_dir;
mod http;
mod http_client;
mod maintenance;
mod nodes;
mod objects;
mod online_operators;
mod sandbox;
mod service;
mod signer;
mod start_error;
mod telemetry;
mod webhooks;

use engine::CallError;

pub use admin::{ArchivesFound, archive, backup, key, migrate_store, operator, repair, replay, restore, verify};
pub use bootstrap::serve;
pub use cli::run as run_client;
pub use online_operators::run_operator;
pub use sandbox::{Confinement, confine};
pub use start_error::StartError;

/// Returns the OpenAPI document of the service, as committed under `openapi/`.
pub fn openapi(version: config::OpenApiVersion) -> String {
    http::openapi_text(version)
}
