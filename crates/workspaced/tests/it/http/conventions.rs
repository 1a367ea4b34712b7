//! What every route has in common: request IDs, problem pages, idempotency keys, rate limit headers, compression, CORS.

mod compression;
mod cors;
mod idempotency_keys;
mod problem_pages;
mod rate_limit;
mod request_ids;
