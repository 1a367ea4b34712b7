//! Operators: created, listed, revoked, their tokens replaced. Each change is a record of the service's own chain.

pub mod chain;
pub mod manage;
pub mod rotate;
