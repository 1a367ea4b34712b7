//! What every route has in common beside its body: request IDs, idempotency keys, rate limit headers, compression, CORS.

pub(crate) mod accept;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod idempotency_key;
pub(crate) mod prefer;
pub(crate) mod rate_limit;
pub(crate) mod request_ids;
