//! Admission control: who may call, how often, and how much memory and concurrency a call may take.

pub(crate) mod body_memory;
pub(crate) mod idempotency;
mod keyed_rate;
pub(crate) mod operators;
pub(crate) mod pools;
pub(crate) mod rate_limit;
pub(crate) mod tokens;
