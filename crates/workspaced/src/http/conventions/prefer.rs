//! `Prefer: respond-async` (RFC 7240): a request that is answered before its work is done.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const RESPOND_ASYNC: &str = "respond-async";

/// Whether the caller prefers to be answered at once. Other preferences are ignored.
pub(crate) fn prefers_async(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(&PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = lists.flat_map(|list| list.split(','));
    preferences.any(|one| one.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(RESPOND_ASYNC)))
}

/// Marks a response to a request whose work continues: status 202.
pub(crate) fn applied_async(response: &mut Response) {
    *response.status_mut() = StatusCode::ACCEPTED;
    response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static(RESPOND_ASYNC));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        let prefers = |values: &[&'static str]| {
            let values = values.iter().map(|value| (PREFER, HeaderValue::from_static(value)));
            prefers_async(&values.collect::<HeaderMap>())
        };
        for values in
            [&["respond-async"][..], &["Respond-Async; x=1, wait=10"], &["wait=5", "handling=lenient, respond-async"]]
        {
            assert!(prefers(values), "{values:?}");
        }
        for values in [&[][..], &["wait=10"], &["respond-asynchronously"], &["return=\"respond-async\""]] {
            assert!(!prefers(values), "{values:?}");
        }
    }
}
