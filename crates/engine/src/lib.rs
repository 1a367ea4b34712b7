//! The engine of the service: runs, calls and transactions over a ledger and workspaces.
//!
//! This crate has no HTTP and no SQL, and opens no file of a run. Only a [`transaction`] changes a run, and every call is
//! recorded before it is answered.

pub mod admission;
pub mod approvals;
pub mod audit;
pub mod authentication;
pub mod call;
pub mod call_error;
pub mod caller;
pub mod change_feed;
pub mod clock;
pub mod deciding;
pub mod dispatch;
pub mod engine;
pub mod events;
pub mod history;
mod keyed_requests;
pub mod limits;
pub mod metrics;
mod names;
pub mod object_claims;
pub mod opening;
pub mod operators;
pub mod page;
pub mod read;
pub mod reconcile;
pub mod run;
pub mod runs;
pub mod tool;
pub mod tools;
pub mod transaction;

pub use engine::Engine;

pub use call_error::CallError;
pub(crate) use model::json;
