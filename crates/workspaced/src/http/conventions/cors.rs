//! Requests of scripts on web pages of the configured origins.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Headers of responses that a script may read, in addition to those that it always may.
const EXPOSED: [HeaderName; 14] = [
    header::ACCEPT_RANGES,
    header::ALLOW,
    header::CONTENT_DISPOSITION,
    header::CONTENT_RANGE,
    header::ETAG,
    header::LOCATION,
    header::RETRY_AFTER,
    HeaderName::from_static("preference-applied"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("workspaced-call"),
    HeaderName::from_static("workspaced-seq"),
    HeaderName::from_static("workspaced-sha256"),
    HeaderName::from_static("x-request-id"),
];

/// How long a browser may remember the answer to a preflight request.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Returns the layer that permits requests from `origins`. It answers preflight requests, which have no token.
pub(crate) fn layer(origins: Vec<HeaderValue>) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        // A request is authorised by its token alone, so that no header of a permitted origin is a risk.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(MAX_AGE)
}
