//! The IDs by which callers find a request in logs, traces and records: `X-Request-Id` and `traceparent`.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use engine::clock::new_request_id;

use crate::nodes::peers::FromNode;
use engine::caller::RequestIds;

/// The header of the ID, of requests and of responses.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

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

/// The caller's span, of which the request is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent<'a> {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: &'a str,
    /// 16 hexadecimal digits.
    pub(crate) parent_id: &'a str,
    /// Whether the caller records its trace.
    pub(crate) is_sampled: bool,
}

/// Returns the span of a valid `traceparent`, as W3C Trace Context defines it. An invalid header is ignored.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent<'_>> {
    let mut all = headers.get_all(&TRACEPARENT).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    parse_traceparent(only.to_str().ok()?)
}

/// Parses `VERSION-TRACE_ID-PARENT_ID-FLAGS`.
fn parse_traceparent(value: &str) -> Option<TraceParent<'_>> {
    let mut parts = value.split('-');
    let (version, trace_id, parent_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    // A later version may have more parts.
    let has_end = parts.next().is_none() || version != "00";
    let is_valid = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16) && has_end;
    let flags = u8::from_str_radix(flags, 16).ok().filter(|_| is_hex(flags, 2))?;
    is_valid.then_some(TraceParent { trace_id, parent_id, is_sampled: flags & 1 == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_valid_traceparent_has_its_trace_id() {
        for valid in ["00-T-00f067aa0ba902b7-01", "00-T-00f067aa0ba902b7-00", "01-T-00f067aa0ba902b7-01-more"] {
            let header = valid.replace('T', TRACE);
            let parent = parse_traceparent(&header).unwrap();
            assert_eq!((parent.trace_id, parent.parent_id), (TRACE, "00f067aa0ba902b7"), "{valid}");
            assert_eq!(parent.is_sampled, !valid.ends_with("-00"), "{valid}");
        }
        for invalid in [
            "",
            "T",
            "00-T-00f067aa0ba902b7",
            "00-T-00f067aa0ba902b7-01-more",
            "ff-T-00f067aa0ba902b7-01",
            "0-T-00f067aa0ba902b7-01",
            "00-T-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-T-00f067aa0ba902b7-1",
            "00-T0-00f067aa0ba902b7-01",
            " 00-T-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse_traceparent(&invalid.replace('T', TRACE)), None, "{invalid}");
        }
    }

    #[test]
    fn an_instance_is_a_urn() {
        assert_eq!(instance_of("a-B.9:/@"), "urn:workspaced:request:a-B.9:/@");
        assert_eq!(instance_of("\"<%{}>"), "urn:workspaced:request:%22%3C%25%7B%7D%3E");
    }
}
