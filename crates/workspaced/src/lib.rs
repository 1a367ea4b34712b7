//! The service: hosts one workspace per run, and decides, carries out and records every call on it.
//!
//! The law of this crate: only `http` knows a transport; only `pipeline` changes a file; every call is recorded.

mod admin;
mod answer_memory;
mod checkpoints;
pub mod config;
mod http;
mod instance;
mod leftovers;
mod lock;
mod sandbox;
mod service;
mod signer;
mod start;
mod telemetry;
mod upkeep;

use engine::CallError;
use engine::admission::{body_memory, rate_limit as throttle, tokens};
use engine::call as calls;
use engine::call::policy_query as explain;
use engine::history::{change_feed as feed, content_history as versions, snapshot as past};
use engine::transaction as pipeline;
use engine::{approvals, audit, clock, exports as artifacts, file_transfers as files, page, runs, tools};

pub use admin::{repair, replay, verify};
use model::json;
pub use sandbox::{Confinement, confine};
pub use start::{StartError, serve};

/// The OpenAPI document of the service, as it is committed.
pub fn openapi() -> String {
    http::openapi::pretty_text()
}
