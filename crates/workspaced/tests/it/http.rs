//! The HTTP interface: tokens, errors, the API document, and limits on what a caller can use.

mod connections;
mod conventions;
mod dashboard;
mod errors;
pub(crate) mod fair_shares;
mod fairness;
mod http2;
mod interop;
pub(crate) mod load_limits;
mod malformed_parameters;
mod mcp;
mod memory_limits;
mod oauth;
mod openapi;
mod operators;
mod page_limits;
mod request_limits;
mod route_memory;
pub(crate) mod sign_in;
mod tls;
mod tokens;
