//! Every method of the ledger, on both databases.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test fails by panicking, and so does what it calls"))]

mod appending;
mod approvals;
mod checkpoints;
mod contents;
mod fencing;
mod harness;
mod listing;
mod logs;
mod needs;
mod outages;
mod paging;
mod rights;
mod runs;
mod steps;
mod tampering;
