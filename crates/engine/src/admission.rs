//! Admission control: who may call, how often, and how much memory and concurrency a call may take.

pub mod body_memory;
pub mod idempotency;
pub mod operators;
pub mod pools;
pub mod rate_limit;
pub mod tokens;
