//! Several nodes over one database, and the stores of what they share: who does what, how nodes reach each other, where objects are kept.
//!
//! The law of this crate: it moves bytes and leases, and decides nothing about a run.

pub mod nodes;
pub mod objects;
