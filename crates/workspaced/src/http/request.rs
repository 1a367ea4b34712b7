//! What happens around every request: its span, its bounds, what is counted, and an answer whatever happens inside.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use model::Refusal;
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::body_memory::HeldMemory;
use crate::http::problem::{PROBLEM_JSON, Problem};
use crate::http::streams::{GoodToken, end_with_token};
use crate::service::{Service, took_too_long};
use crate::telemetry;

/// Routes whose answers may take their time: each has bounds of its own.
const UNHURRIED: [&str; 5] = [TOOL_CALL, CHANGES, "/v1/audit/stream", ARCHIVE, FILES];
/// May wait for a person.
const TOOL_CALL: &str = "/v1/runs/{run}/tool-calls/{toolCallId}";
/// May be a stream.
const CHANGES: &str = "/v1/runs/{run}/changes";
const ARCHIVE: &str = "/v1/runs/{run}/archive";
const FILES: &str = "/v1/runs/{run}/files/{*path}";
/// What answers under this path is pages for people, which bring a policy of their own.
const PAGES: &str = "/docs";

/// Answers one request.
pub(crate) async fn answer(State(service): State<Service>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let method = request.method().clone();
    let token = GoodToken::default();
    request.extensions_mut().insert(token.clone());
    let span = span_of(&method, route);
    let answered = HeldMemory::during(bounded(&service, request, next, route));
    let mut response = match AssertUnwindSafe(answered).catch_unwind().instrument(span.clone()).await {
        Ok(response) => told_properly(end_with_token(&service, &token, response)),
        Err(panic) => {
            let _entered = span.enter();
            tracing::error!(panic = panic_text(&*panic), "a request failed");
            Problem::internal().into_response()
        }
    };
    // What anybody may ask for keeps no memory from callers who are known.
    let token = token.hash();
    let memory = if token.is_some() { &service.state.answer_memory } else { &service.state.open_answer_memory };
    let held = memory.hold(response, token, service.limits.body_timeout).await;
    response = held.unwrap_or_else(|error| Problem::from(error).into_response());
    if !route.starts_with(PAGES) {
        guard_answer(response.headers_mut());
    }
    let (status, took) = (response.status().as_u16(), started.elapsed());
    telemetry::request_answered(route, &method, status, took);
    let _entered = span.enter();
    tracing::debug!(status, duration_micros = took.as_micros(), "request answered");
    response
}

fn span_of(method: &Method, route: &str) -> tracing::Span {
    match route {
        // Asked for every few seconds: no lines at the usual level, whatever happens inside.
        "/healthz" | "/readyz" | "/metrics" => {
            tracing::debug_span!("request", http.method = %method, http.route = route)
        }
        _ => tracing::info_span!(
            "request",
            http.method = %method,
            http.route = route,
            run.id = Empty,
            tool.name = Empty,
            tool_call.id = Empty,
        ),
    }
}

async fn bounded(service: &Service, request: Request, next: Next, route: &str) -> Response {
    let limits = &service.limits;
    let limit = match (request.method(), route) {
        (&Method::PUT, ARCHIVE) => limits.max_archive_bytes,
        // As large as the run's policy says, which is asked when the caller is known.
        (&Method::PUT, FILES) => u64::MAX,
        _ => limits.max_body_bytes,
    };
    // An empty name in the path names nothing; only files have paths of their own, which have rules of their own.
    if route != FILES && request.uri().path().contains("//") {
        return Problem::no_route().into_response();
    }
    // A body that says it is too large is refused before anything else is looked at, a token included.
    if declared_length(request.headers()).is_some_and(|length| length > limit) {
        return Problem::body_too_large(limit).into_response();
    }
    if let Some(encoding) = foreign_encoding(request.headers()) {
        return Problem::encoded(&encoding).into_response();
    }
    let hurried = matches!(*request.method(), Method::GET | Method::HEAD) && !UNHURRIED.contains(&route);
    if !hurried {
        return next.run(request).await;
    }
    match tokio::time::timeout(limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::from(took_too_long(limits.request_timeout)).into_response(),
    }
}

/// How the body is encoded, where that is not as it is. Nothing here decodes: a file would be stored as what it is not.
fn foreign_encoding(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut names = all.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let foreign = names.find(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))?;
    Some(foreign.iter().take(40).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect())
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A refusal that did not come from this service's own code gets its form.
fn told_properly(response: Response) -> Response {
    let status = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    if status.as_u16() < 400 || media_type.is_some_and(|told| told == PROBLEM_JSON) {
        return response;
    }
    match status {
        StatusCode::NOT_FOUND => Problem::no_route().into_response(),
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = response.headers().get(header::ALLOW).cloned();
            let mut told = Problem::no_method().into_response();
            told.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
            told
        }
        _ if status.is_client_error() => {
            Problem::from(Refusal::invalid("the request is malformed", "Compare it with /openapi.json."))
                .into_response()
        }
        _ => Problem::internal().into_response(),
    }
}

fn guard_answer(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}
