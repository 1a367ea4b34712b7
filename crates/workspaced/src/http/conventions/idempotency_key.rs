//! `Idempotency-Key` of creations, and their responses.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::operators::KeyedRequest;
use model::{Refusal, canonical_json, json};
use serde::Serialize;

use crate::http::extract::Json;

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Describes the header in the API document.
pub(crate) const DESCRIPTION: &str = "1 to 128 visible ASCII characters. For 24 hours, the same key with the same body \
                                      creates nothing but another token.";

/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 128;

/// Returns the keyed request of `operator` for `operation` with this JSON body; `None` without a key.
///
/// # Errors
///
/// `INVALID_REQUEST` for an invalid key or body.
pub(crate) fn keyed_request(
    operator: &str,
    headers: &HeaderMap,
    operation: &str,
    body: &[u8],
) -> Result<Option<KeyedRequest>, Refusal> {
    let mut all = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let is_key =
        |key: &&str| (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let (Some(key), None) = (first.to_str().ok().filter(is_key), all.next()) else {
        let message = format!("invalid `Idempotency-Key`: expected 1 to {MAX_KEY_BYTES} visible ASCII characters");
        return Err(Refusal::invalid(message, "Send one key, such as a UUID, and the same key with each repetition."));
    };
    let input = canonical_json(&json::parse_object(body)?);
    Ok(Some(KeyedRequest::new(operator, key, operation, &input)))
}

/// Returns the response of a creation: status 201, with the URL path of what was created.
pub(crate) fn created_at(location: &str, body: impl Serialize) -> Response {
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    // IDs and names consist of letters, digits, `_`, `-`, `.`, `@` and `+`.
    let location = HeaderValue::from_str(location).ok();
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    response
}
