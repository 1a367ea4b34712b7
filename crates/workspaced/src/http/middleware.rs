//! What happens around every request: tracing, limits, metrics, and a problem document for every failure.

mod ended_body;
pub(crate) mod forward;
pub(crate) mod routing;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use engine::calls::RequestMemory;
use engine::timed_out;
use hyper::body::Body as _;
use model::{MAX_UPLOAD_BYTES, Refusal};
use shared_pool::Parties;
use tracing::Span;
use tracing::field::Empty;

use crate::http::auth::bearer::PeerAddr;
use crate::http::conventions::compression::Verbatim;
use crate::http::conventions::rate_limit::ObservedRate;
use crate::http::conventions::request_ids::{self, NamedByCaller};
use crate::http::formats;
use crate::http::mcp;
use crate::http::middleware::forward::Forwarded;
use crate::http::oauth::{self, Asked};
use crate::http::problem::{PROBLEM_JSON, Problem, pages};
use crate::http::token_body::{VerifiedToken, end_with_token};
use crate::http::tools::{self, text_view};
use crate::service::Service;
use crate::telemetry::{self, traces};
use cluster::nodes::peers::FromNode;

/// Routes without the request timeout. Each has limits of its own.
const UNTIMED_ROUTES: [&str; 5] = [TOOL_CALL, CHANGES, "/v1/audit/stream", ARCHIVE, FILES];
/// May wait for an approval.
const TOOL_CALL: &str = "/v1/runs/{run}/tool-calls/{toolCallId}";
/// May be an event stream.
const CHANGES: &str = "/v1/runs/{run}/changes";
const ARCHIVE: &str = "/v1/runs/{run}/archive";
const FILES: &str = "/v1/runs/{run}/files/{*path}";
const CHANGESETS: &str = "/v1/runs/{run}/changesets";
const COMMAND_RESULT: &str = "/v1/runs/{run}/commands/{commandId}/result";
const UPLOADS: &str = "/v1/runs/{run}/artifacts/sha256/{digest}";

/// Returns the pattern of the request's route. The path itself holds IDs and file names, so it is never logged or counted.
fn route_of(request: &Request) -> Option<&str> {
    request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)
}

/// Makes the span of a request.
pub(crate) fn request_span(request: &Request) -> Span {
    let (method, route) = (telemetry::method_name(request.method()), route_of(request).unwrap_or("unmatched"));
    let ids = request_ids::of(request.extensions());
    match route {
        // Polled every few seconds: nothing about them is logged at the default level.
        "/healthz" | "/readyz" | "/metrics" => {
            tracing::debug_span!("request", http.method = method, http.route = route)
        }
        _ => {
            let span = tracing::info_span!(
                "request",
                http.method = method,
                http.route = route,
                request.id = ids.request_id,
                trace.id = ids.trace_id,
                run.id = Empty,
                tool.name = Empty,
                tool_call.id = Empty,
            );
            traces::set_parent(&span, request.headers());
            span
        }
    }
}

/// Logs that a request was answered.
pub(crate) fn log_response<B>(response: &axum::http::Response<B>, latency: Duration, span: &Span) {
    let status = response.status().as_u16();
    traces::set_status(span, status);
    let duration_micros = latency.as_micros();
    // Who names a request wants to find it.
    if response.extensions().get::<NamedByCaller>().is_some() {
        tracing::info!(http.status = status, duration_micros, "request answered");
    } else {
        tracing::debug!(http.status = status, duration_micros, "request answered");
    }
}

/// Logs a panic and answers it as an internal error.
#[expect(clippy::needless_pass_by_value, reason = "tower-http passes it by value")]
pub(crate) fn panic_response(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(panic = text, "request handler panicked");
    Problem::internal().into_response()
}

/// Checks the limits of a request, answers it, and bounds the memory and the lifetime of the response.
pub(crate) async fn answer(State(service): State<Service>, request: Request, next: Next) -> Response {
    let ids = request_ids::of(request.extensions());
    let named = request.extensions().get::<NamedByCaller>().copied();
    // Until its token is verified, a request counts for its peer.
    let peer = request.extensions().get::<PeerAddr>().map(|peer| Parties::one(peer.party())).unwrap_or_default();
    let answered = peer.scope(answer_within_limits(service, request, next));
    let mut response = request_ids::scope(Arc::clone(&ids), answered).await;
    request_ids::add_to(&mut response, &ids);
    if let Some(named) = named {
        response.extensions_mut().insert(named);
    }
    response
}

async fn answer_within_limits(service: Service, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let method = request.method().clone();
    let prefers_text = matches!(route, tools::PATH | formats::PATH) && text_view::prefers_text(request.headers());
    // A browser gets a page, except from the API.
    let is_page = !route.starts_with("/v1/") && method == Method::GET && pages::prefers_page(request.headers());
    let as_preferred = |response| match route {
        mcp::PATH => mcp::errors::as_protocol_error(response),
        formats::PATH => formats::refusal(response, prefers_text),
        _ if prefers_text => text_view::refusal(response),
        _ => response,
    };
    // Where a client without a token is told to get one.
    let asked = service.state.access.issuer.is_some().then(|| Asked::of(request.uri(), request.headers()));
    let token = VerifiedToken::default();
    request.extensions_mut().insert(token.clone());
    // Nothing is observed without a rate limit.
    let rate = service.state.limits.rate.map(|limit| (ObservedRate::default(), limit));
    if let Some((observed, _)) = &rate {
        request.extensions_mut().insert(observed.clone());
    }
    let response = RequestMemory::scope(answer_in_time(&service, request, next, route)).await;
    let response = match into_problem(response, route) {
        response if is_page && response.status() == StatusCode::NOT_FOUND => pages::unknown_page(),
        response => response,
    };
    let response = without_proxy_buffers(end_with_token(&service, &token, as_preferred(response)));
    // Responses to callers without a token have memory of their own: they cannot use up that of other callers.
    let memory = if token.hash().is_some() { &service.state.answer_memory } else { &service.state.open_answer_memory };
    let held = memory.hold(response, service.state.http_limits.body_timeout).await;
    let mut response = held.unwrap_or_else(|error| as_preferred(Problem::from(error).into_response()));
    if let Some((observed, limit)) = rate {
        observed.add_to(&mut response, limit);
    }
    if route == FILES {
        response.extensions_mut().insert(Verbatim);
    }
    if let Some(asked) = asked.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
        oauth::add_metadata(&mut response, &service.state.access, route, &asked);
    }
    telemetry::request_answered(route, &method, response.status().as_u16(), started.elapsed());
    response
}

/// Refuses a request that breaks a limit of transport, and applies the request timeout to the others.
async fn answer_in_time(service: &Service, request: Request, next: Next, route: &str) -> Response {
    let limits = &service.state.http_limits;
    let max_body_bytes = match (request.method(), route) {
        (&Method::PUT, ARCHIVE) => limits.max_archive_bytes,
        (&Method::PUT, UPLOADS) => MAX_UPLOAD_BYTES,
        // The run's policy limits them, which is known once the caller is.
        (&Method::PUT, FILES) | (&Method::POST, CHANGESETS | COMMAND_RESULT) => u64::MAX,
        _ => limits.max_body_bytes,
    };
    // No resource has an empty name. Paths of files have rules of their own.
    if route != FILES && request.uri().path().contains("//") {
        return Problem::no_route().into_response();
    }
    // Refused before anything else, the token included.
    if request.body().size_hint().lower() > max_body_bytes {
        return Problem::body_too_large(max_body_bytes).into_response();
    }
    if let Some(encoding) = content_encoding(request.headers()) {
        return Problem::unsupported_encoding(&encoding).into_response();
    }
    // A node compares with the host that a browser has reached, before it forwards the request under another one.
    if route == mcp::PATH
        && request.extensions().get::<FromNode>().is_none()
        && let Err(problem) = mcp::check_origin(service, &request)
    {
        return problem.into_response();
    }
    let is_timed = matches!(*request.method(), Method::GET | Method::HEAD) && !UNTIMED_ROUTES.contains(&route);
    if !is_timed {
        return next.run(request).await;
    }
    match tokio::time::timeout(service.state.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::from(timed_out(service.state.limits.request_timeout)).into_response(),
    }
}

/// Returns the content encoding of the request unless it is `identity`. Bodies are not decoded: a file would be stored
/// encoded.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut names = all.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let other = names.find(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))?;
    Some(other.iter().take(40).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect())
}

/// Turns an error response that a library made into a problem document. One of another node is complete, and so is an error of the
/// Model Context Protocol.
fn into_problem(response: Response, route: &str) -> Response {
    let status = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    let is_complete = response.extensions().get::<Forwarded>().is_some()
        || media_type.is_some_and(|media_type| {
            // Pages for people are of this service.
            media_type == PROBLEM_JSON
                || media_type == pages::HTML
                || (route == mcp::PATH && media_type == "application/json")
        });
    if status.as_u16() < 400 || is_complete {
        return response;
    }
    match status {
        StatusCode::NOT_FOUND => Problem::no_route().into_response(),
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = response.headers().get(header::ALLOW).cloned();
            let mut problem = Problem::no_method().into_response();
            problem.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
            problem
        }
        _ if status.is_client_error() => {
            Problem::from(Refusal::invalid("the request is malformed", "Compare it with /openapi.json."))
                .into_response()
        }
        _ => Problem::internal().into_response(),
    }
}

/// Tells proxies such as nginx to pass each event of a stream on at once.
fn without_proxy_buffers(mut response: Response) -> Response {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|media_type| media_type.starts_with("text/event-stream")) {
        let name = HeaderName::from_static("x-accel-buffering");
        response.headers_mut().insert(name, HeaderValue::from_static("no"));
    }
    response
}
