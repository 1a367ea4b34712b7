//! The IDs by which callers find a request in logs, traces and records: `X-Request-Id` and `traceparent`.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use engine::RequestIds;
use engine::clock::new_request_id;

use crate::telemetry::trace_parent::trace_parent;
use cluster::nodes::peers::FromNode;

/// The header of the ID, of requests and of responses.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of an ID that a caller chooses.
const MAX_ID_BYTES: usize = 128;

tokio::task_local! {
    static CURRENT: Arc<RequestIds>;
}

/// Marks a request, and its response, whose ID the caller chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedByCaller;

/// Gives a request its IDs: those of its headers, or a new request ID.
pub(crate) fn identify(mut request: Request) -> Request {
    let given = given_id(request.headers());
    // The node that has forwarded a request logs it.
    if given.is_some() && request.extensions().get::<FromNode>().is_none() {
        request.extensions_mut().insert(NamedByCaller);
    }
    let ids = RequestIds { request_id: given.unwrap_or_else(new_request_id), trace_id: trace_id(request.headers()) };
    request.extensions_mut().insert(Arc::new(ids));
    request
}

/// Returns the IDs of a request; new ones if it has none.
pub(crate) fn of(extensions: &Extensions) -> Arc<RequestIds> {
    extensions.get().cloned().unwrap_or_else(new_ids)
}

/// Returns the IDs of a request that was not read.
pub(crate) fn new_ids() -> Arc<RequestIds> {
    Arc::new(RequestIds { request_id: new_request_id(), trace_id: None })
}

/// Answers the request that has `ids`: problem documents name it.
pub(crate) async fn scope<T>(ids: Arc<RequestIds>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(ids, work).await
}

/// As [`scope`], for work that does not wait.
pub(crate) fn sync_scope<T>(ids: Arc<RequestIds>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(ids, work)
}

/// Returns the `instance` of a problem document of the current request; `None` outside of a request.
pub(crate) fn instance() -> Option<String> {
    CURRENT.try_with(|ids| instance_of(&ids.request_id)).ok()
}

/// Returns the URN of the request with this ID. What no URN may contain is percent-encoded.
pub(crate) fn instance_of(request_id: &str) -> String {
    let mut urn = "urn:workspaced:request:".to_owned();
    for byte in request_id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            urn.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(urn, "%{byte:02X}");
        }
    }
    urn
}

/// Writes the request's ID into a response.
pub(crate) fn add_to(response: &mut Response, ids: &RequestIds) {
    // Visible ASCII is always a valid header value.
    if let Ok(value) = HeaderValue::from_str(&ids.request_id) {
        response.headers_mut().insert(REQUEST_ID.clone(), value);
    }
}

/// Adds the request's ID to a response that has none: one that did not reach the routes.
pub(crate) async fn ensure(request: Request, next: Next) -> Response {
    let given = given_id(request.headers());
    let mut response = next.run(request).await;
    if !response.headers().contains_key(&REQUEST_ID) {
        let request_id = given.unwrap_or_else(new_request_id);
        add_to(&mut response, &RequestIds { request_id, trace_id: None });
    }
    response
}

/// Returns the ID that the caller chose, if it is valid: 1 to 128 visible ASCII characters without a credential.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(&REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    // It is logged and recorded.
    (fits && model::credential_in(id.as_bytes()).is_none()).then(|| id.to_owned())
}

/// Returns the trace ID of the caller's span.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    trace_parent(headers).map(|parent| parent.trace_id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_a_urn() {
        assert_eq!(instance_of("a-B.9:/@"), "urn:workspaced:request:a-B.9:/@");
        assert_eq!(instance_of("\"<%{}>"), "urn:workspaced:request:%22%3C%25%7B%7D%3E");
    }
}
