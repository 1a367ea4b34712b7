//! Tests of every method of the ledger, on both databases.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "tests and their fixtures fail by panicking"))]

mod append;
mod approvals;
mod archive;
mod checkpoints;
mod concurrent_processes;
mod contents;
mod dump;
mod fencing;
mod forks;
mod harness;
mod history;
mod journal;
mod keyed_answers;
mod lifecycle;
mod listing;
mod node_processes;
mod nodes;
mod objects;
mod operators;
mod outages;
mod packed;
mod paging;
mod plain;
mod preconditions;
mod runs;
mod service_role;
mod tampering;
mod webhooks;
mod write_ahead_log;
