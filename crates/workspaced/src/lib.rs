//! The service: hosts one workspace per run, and decides, carries out and records every call on it.
//!
//! The law of this crate: only `http` knows a transport; only `pipeline` changes a file; every call is recorded.

mod call_error;
mod calls;
mod change;
mod claims;
mod failpoint;
mod lane;
mod pipeline;
mod service;
mod syncer;
mod tools;

pub(crate) use call_error::CallError;
