//! Every method of the ledger, on both databases.

mod appending;
mod approvals;
mod harness;
mod listing;
mod runs;
mod steps;
mod tampering;
