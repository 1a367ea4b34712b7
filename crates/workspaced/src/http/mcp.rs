//! `/mcp`: the tools and files of a run for clients of the Model Context Protocol, over Streamable HTTP.
//!
//! Requests are stateless: the token of each request says which run it is about, and nothing is kept between two requests
//! but what is under way.

pub(crate) mod errors;
mod instructions;
mod message;
mod resources;
mod server;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::CallError;
use engine::calls::FileCallOptions;
use model::{Code, Refusal};
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::http::auth::RunTokenCaller;
use crate::http::conventions::accept;
use crate::http::extract::{JsonBytes, Query};
use crate::http::files::call_options;
use crate::http::formats::FormatName;
use crate::http::problem::{Problem, RunHasMoved};
use crate::service::Service;

use server::RunServer;

/// The route.
pub(crate) const PATH: &str = "/mcp";

/// The caller of a request, as the protocol's handlers are given it.
#[derive(Clone, Debug)]
struct McpCaller(Arc<RunTokenCaller>, HasMoved, CallForm);

/// The form in which the request lists and calls tools.
#[derive(Clone, Debug)]
struct CallForm {
    /// The format; `None` for that of the catalogue.
    format: Option<FormatName>,
    /// What the request's headers say of the call, or what is wrong with them.
    headers: Result<CallHeaders, Refusal>,
}

/// What the headers of a request say of the call in it.
#[derive(Clone, Debug)]
struct CallHeaders {
    /// The reason of a change whose input has none.
    reason: Option<String>,
    /// The ID of the call.
    tool_call_id: Option<String>,
}

/// The query of the route.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct McpQuery {
    /// List and call the tools in a format that models were trained on.
    #[serde(default)]
    #[param(inline)]
    format: Option<FormatName>,
}

/// Whether another node owns the run of the request, of which nothing was done.
#[derive(Clone, Debug, Default)]
struct HasMoved(Arc<AtomicBool>);

impl HasMoved {
    /// Returns the problem of a call, and notes whether its run has moved.
    fn problem_of(&self, error: CallError) -> Problem {
        if matches!(error, CallError::Moved(_)) {
            self.0.store(true, Ordering::Release);
        }
        error.into()
    }
}

/// Answers one request of the protocol. The body is bounded as that of a tool call: in bytes, memory, depth and values. A problem
/// becomes an error of the protocol: see [`errors`].
pub(crate) async fn handle(
    State(service): State<Service>,
    caller: RunTokenCaller,
    Query((query,)): Query<(McpQuery,)>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let FileCallOptions { reason, tool_call_id, refusal, .. } = call_options(&parts.headers);
    let headers = refusal.map_or(Ok(CallHeaders { reason, tool_call_id }), Err);
    let form = CallForm { format: query.format, headers };
    let JsonBytes(text) = JsonBytes::from_request(Request::from_parts(parts.clone(), body), &service).await?;
    let message = match parts.method {
        Method::POST => match message::parse(&text) {
            Ok(message) => message,
            Err(response) => return Ok(*response),
        },
        _ => Value::Null,
    };
    if message["method"] == "notifications/cancelled" && message.get("id").is_none() {
        // Requests are stateless for the library, which ignores every notification.
        if let Ok(id) = serde_json::from_value::<RequestId>(message["params"]["requestId"].clone()) {
            service.state.cancellations.cancel(&caller.caller.actor, &id);
        }
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    // Other methods are refused below.
    if parts.method == Method::POST {
        if !accept::accepts_json(&parts.headers) {
            return Err(not_acceptable());
        }
        // The answer is JSON, or a stream if its client asked for progress.
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    }
    let has_moved = HasMoved::default();
    parts.extensions.insert(McpCaller(Arc::new(caller), has_moved.clone(), form));
    let request = Request::from_parts(parts, Body::from(text));
    let max_body_bytes = usize::try_from(service.state.http_limits.max_body_bytes).unwrap_or(usize::MAX);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(max_body_bytes)
        .with_cancellation_token(service.state.shutdown.child_token())
        // A request for another host still needs a token, which no web page has.
        .disable_allowed_hosts();
    let handler = move || Ok(RunServer::new(service.clone()));
    let answered =
        StreamableHttpService::new(handler, Arc::new(NeverSessionManager::default()), config).oneshot(request);
    match answered.await {
        Ok(response) => {
            let mut response = message::of_library(response.map(Body::new), &message).await;
            // A stream has begun already: its caller retries.
            if has_moved.0.load(Ordering::Acquire) {
                response.extensions_mut().insert(RunHasMoved);
            }
            Ok(response)
        }
        Err(never) => match never {},
    }
}

/// Refuses a request of a web page that is neither of this service's own origin nor of a configured one, so that a page which
/// knows a name that leads here cannot use what a browser sends by itself.
///
/// # Errors
///
/// `FORBIDDEN`.
pub(crate) fn check_origin<B>(service: &Service, request: &axum::http::Request<B>) -> Result<(), Problem> {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return Ok(()) };
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has the host in the target.
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let is_own = host.is_some() && authority == host;
    // A name that leads to loopback may be one that the page's owner has rebound to it.
    let is_trusted = !service.state.access.is_loopback || host.is_some_and(is_loopback_name);
    if (is_own && is_trusted) || service.state.access.cors_origins.contains(origin) {
        return Ok(());
    }
    let hint = "Call the service from its own origin, or ask its operator to add yours to `--cors-origin`.";
    Err(Refusal::new(Code::Forbidden, "requests of pages of this origin are not permitted", hint).into())
}

/// Whether a host, perhaps with a port, is a name of loopback that no other machine can claim.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn not_acceptable() -> Problem {
    let refusal = Refusal::invalid(
        "`Accept` permits no JSON, in which messages are answered",
        "Send `Accept: application/json, text/event-stream`.",
    );
    Problem::from(refusal).with_status(StatusCode::NOT_ACCEPTABLE)
}

#[cfg(test)]
mod tests {
    use super::is_loopback_name;

    #[test]
    fn names_of_loopback_are_known() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.0.1", "[::1]:8080", "[::1]"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["localhost.example", "127.0.0.1.example:80", "[::2]:80", "10.0.0.1", "", "evil:80"] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}
