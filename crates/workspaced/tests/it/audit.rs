//! The audit log: records, the hash chain, signed checkpoints and tamper detection.

mod checkpoint_vectors;
pub(crate) mod checkpoints;
mod events;
mod export;
pub(crate) mod key_changes;
mod lifecycle;
mod records;
mod report;
mod service_chain;
mod stats;
mod tampering;
