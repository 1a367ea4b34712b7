//! The service: hosts one workspace per run, and decides, carries out and records every call on it.
//!
//! The law of this crate: only `http` knows a transport; only `pipeline` changes a file; every call is recorded.

mod admin;
mod answer_memory;
mod approvals;
mod artifacts;
mod audit;
mod body_memory;
mod call_error;
mod calls;
mod change;
mod checkpoints;
mod claims;
mod clock;
pub mod config;
mod disclosure;
mod explain;
mod feed;
mod files;
mod http;
mod imports;
mod instance;
mod lane;
mod leftovers;
mod live;
mod lock;
mod page;
mod past;
mod pipeline;
mod places;
mod quota;
mod runs;
mod sandbox;
mod service;
mod start;
mod syncer;
mod telemetry;
mod throttle;
mod tokens;
mod tools;
mod upkeep;
mod versions;

pub use admin::{repair, replay, verify};
pub(crate) use call_error::CallError;
pub(crate) use model::json;
pub use sandbox::{Confinement, confine};
pub use start::{StartError, serve};

/// The OpenAPI document of the service, as it is committed.
pub fn openapi() -> String {
    http::openapi::pretty_text()
}
