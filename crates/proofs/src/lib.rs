//! Signs checkpoints over the heads of all chains, and proves that records are in them.
//!
//! The law of this crate: it reads what the ledger has, and appends checkpoints and nothing else.

pub mod checkpoints;
pub mod signer;
