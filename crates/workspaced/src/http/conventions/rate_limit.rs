//! The headers `RateLimit` and `RateLimit-Policy`, as the IETF draft on rate limit header fields defines them.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use engine::operators::RateState;
use parking_lot::Mutex;

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The rate limit state of a request's token. A request extension; empty until the token is verified.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedRate(Arc<Mutex<Option<RateState>>>);

impl ObservedRate {
    /// Sets the state.
    pub(crate) fn set(&self, state: RateState) {
        *self.0.lock() = Some(state);
    }

    /// Writes the headers of a service whose tokens may send `per_second` requests a second, and `burst` at once.
    pub(crate) fn add_to(&self, response: &mut Response, (per_second, burst): (u32, u32)) {
        let Some(RateState { remaining, reset_seconds }) = *self.0.lock() else { return };
        let window = burst.div_ceil(per_second.max(1));
        let values = [
            (&RATE_LIMIT_POLICY, format!("\"token\";q={burst};w={window}")),
            (&RATE_LIMIT, format!("\"token\";r={remaining};t={reset_seconds}")),
        ];
        for (name, value) in values {
            // Digits and punctuation are always a valid header value.
            response.headers_mut().extend(HeaderValue::try_from(value).ok().map(|value| (name.clone(), value)));
        }
    }
}
