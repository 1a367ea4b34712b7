//! `/mcp`: the tools and files of a run for clients of the Model Context Protocol, over Streamable HTTP.
//!
//! Requests are stateless: the token of each request says which run it is about, and nothing is kept between two requests
//! but what is under way.

pub(crate) mod cancellations;
mod resources;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use engine::CallError;
use model::{Refusal, json};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tower::ServiceExt as _;

use crate::http::auth::RunTokenCaller;
use crate::http::conventions::accept;
use crate::http::extract::{JsonBytes, Query};
use crate::http::problem::{Problem, RunHasMoved};
use crate::service::Service;

use server::RunServer;

/// The route.
pub(crate) const PATH: &str = "/mcp";

/// The caller of a request, as the protocol's handlers are given it.
#[derive(Clone, Debug)]
struct Caller(Arc<RunTokenCaller>, HasMoved);

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

/// Answers one request of the protocol. The body is bounded as that of a tool call: in bytes, memory, depth and values.
pub(crate) async fn handle(
    State(service): State<Service>,
    caller: RunTokenCaller,
    Query(()): Query<()>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let JsonBytes(text) = JsonBytes::from_request(Request::from_parts(parts.clone(), body), &service).await?;
    if !text.is_empty() {
        json::parse(&text)?;
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
    parts.extensions.insert(Caller(Arc::new(caller), has_moved.clone()));
    let request = Request::from_parts(parts, Body::from(text));
    let max_body_bytes = usize::try_from(service.state.http_limits.max_body_bytes).unwrap_or(usize::MAX);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(max_body_bytes)
        .with_cancellation_token(service.shutdown.child_token())
        // A request for another host still needs a token, which no web page has.
        .disable_allowed_hosts();
    let handler = move || Ok(RunServer::new(service.clone()));
    let answered =
        StreamableHttpService::new(handler, Arc::new(NeverSessionManager::default()), config).oneshot(request);
    match answered.await {
        Ok(response) => {
            let mut response = response.map(Body::new);
            // A stream has begun already: its caller retries.
            if has_moved.0.load(Ordering::Acquire) {
                response.extensions_mut().insert(RunHasMoved);
            }
            Ok(response)
        }
        Err(never) => match never {},
    }
}

fn not_acceptable() -> Problem {
    let refusal = Refusal::invalid(
        "`Accept` permits no JSON, in which messages are answered",
        "Send `Accept: application/json, text/event-stream`.",
    );
    Problem::from(refusal).with_status(StatusCode::NOT_ACCEPTABLE)
}
