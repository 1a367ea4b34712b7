//! Forwards a request to another node as it is, and its answer back, streaming both.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use model::{Code, Refusal};

use crate::http::conventions::request_ids::{self, REQUEST_ID};
use crate::http::extract::body::disconnected;
use crate::http::problem::Problem;
use cluster::nodes::membership::Membership;
use cluster::nodes::peers::{CHALLENGE, Found, FromNode, HOP, HOP_PROOF, Peers};
use cluster::nodes::proofs::{Peer, Proofs};

/// Marks an answer to another node whose proof was refused.
static HOP_REFUSED: HeaderName = HeaderName::from_static("workspaced-hop-refused");
/// Marks an answer to another node: the run has moved, and nothing was done.
pub(crate) static MOVED: HeaderName = HeaderName::from_static("workspaced-moved");

/// Headers that concern one connection alone. What `Connection` names besides is passed on: nodes answer as one server.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

/// Marks an answer of another node, which is passed on as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// The seconds after which a request to a node that does not respond is to be repeated.
const RETRY_SECONDS: u64 = 2;

/// Why the owner of a run has not answered.
#[derive(Debug)]
pub(crate) enum NotForwarded {
    /// It does not answer as a node, so that nothing was done.
    Unreachable,
    /// It may have received the request.
    Unanswered,
    /// The body of the request has ended early.
    BodyEnded,
}

/// Sends a request to another node, and returns its answer. Both pass through a connection that has shown to lead to that node: nothing of
/// the request is sent to another process, and no answer of one is passed on.
///
/// # Errors
///
/// If the node does not answer, or does not show that it is one.
pub(crate) async fn forward(peers: &Peers, to: &Peer, parts: &Parts, body: Body) -> Result<Response, NotForwarded> {
    if peers.find(to).await != Found::Node {
        return Err(NotForwarded::Unreachable);
    }
    let target = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = end_to_end(&parts.headers);
    headers.remove(header::HOST);
    let proof = peers.proofs.of_request(to, &parts.method, target, &headers);
    let ids = request_ids::of(&parts.extensions);
    for (name, value) in [(&HOP, target), (&HOP_PROOF, &proof), (&REQUEST_ID, &ids.request_id)] {
        // The bytes of a target and of an ID are valid.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.insert(name, value);
        }
    }
    let client = peers.client_of(to).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "no client for requests to a node");
        NotForwarded::Unreachable
    })?;
    let request = client.request(parts.method.clone(), &to.url).headers(headers);
    let is_empty = hyper::body::Body::is_end_stream(&body);
    let has_failed = Arc::new(AtomicBool::new(false));
    let request = if is_empty { request } else { request.body(noting_failure(body, &has_failed)) };
    let answered = request.send().await.map_err(|error| {
        if has_failed.load(Ordering::Relaxed) {
            return NotForwarded::BodyEnded;
        }
        let (is_connect, error) = (error.is_connect(), error.without_url());
        tracing::warn!(error = &error as &dyn std::error::Error, "the node that owns the run does not respond");
        if is_connect { NotForwarded::Unreachable } else { NotForwarded::Unanswered }
    })?;
    if answered.headers().contains_key(&HOP_REFUSED) {
        tracing::warn!(node.id = to.node.node_id, "a node refuses the proof of this one: compare their clocks");
        return Err(NotForwarded::Unreachable);
    }
    let (mut answer, body) = axum::http::Response::<reqwest::Body>::from(answered).into_parts();
    answer.headers = end_to_end(&answer.headers);
    remove_vary_by_origin(&mut answer.headers);
    // The length of what was not sent is not known, unless the header says it.
    let has_length = parts.method != Method::HEAD || answer.headers.contains_key(header::CONTENT_LENGTH);
    let body = if has_length {
        Body::new(body)
    } else {
        Body::from_stream(futures_util::stream::empty::<Result<Bytes, Infallible>>())
    };
    let mut response = Response::from_parts(answer, body);
    response.extensions_mut().insert(Forwarded);
    Ok(response)
}

/// Returns a body that sets `has_failed` if `body` fails.
fn noting_failure(body: Body, has_failed: &Arc<AtomicBool>) -> reqwest::Body {
    let has_failed = Arc::clone(has_failed);
    let noted = body.into_data_stream().inspect_err(move |_| has_failed.store(true, Ordering::Relaxed));
    reqwest::Body::wrap_stream(noted)
}

/// Removes what this node adds itself, if scripts on web pages may call it.
fn remove_vary_by_origin(headers: &mut HeaderMap) {
    let is_of_origin = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"origin");
    let kept: Vec<_> = headers.get_all(header::VARY).iter().filter(|value| !is_of_origin(value)).cloned().collect();
    headers.remove(header::VARY);
    for value in kept {
        headers.append(header::VARY, value);
    }
}

/// Returns the headers that are not of one connection alone.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in &HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// Gives a request that another node has forwarded its path and query, before a route is found for them, and removes what only
/// another node may say. A request that pretends to come from one is answered at once: its headers choose no route.
pub(crate) async fn take_hop(State(membership): State<Arc<Membership>>, mut request: Request, next: Next) -> Response {
    let proofs = &membership.peers.proofs;
    if let Some(challenge) = request.headers().get(&CHALLENGE) {
        let proof = proofs.of_this_node(challenge.as_bytes());
        return (StatusCode::NO_CONTENT, [(HOP_PROOF.clone(), proof)]).into_response();
    }
    if request.headers().contains_key(&HOP) || request.headers().contains_key(&HOP_PROOF) {
        let Some(target) = proven_target(proofs, &request) else { return refuse_hop() };
        *request.uri_mut() = Uri::from(target);
        request.headers_mut().remove(&HOP);
        request.headers_mut().remove(&HOP_PROOF);
        request.extensions_mut().insert(FromNode);
    }
    next.run(request).await
}

/// Returns the path and query of a request that comes from another node; `None` if it does not.
fn proven_target(proofs: &Proofs, request: &Request) -> Option<PathAndQuery> {
    let target = request.headers().get(&HOP)?.as_bytes();
    let target = PathAndQuery::try_from(target).ok().filter(|_| target.starts_with(b"/"))?;
    let proof = request.headers().get(&HOP_PROOF)?.to_str().ok()?;
    proofs.is_of_request(proof, request.method(), target.as_str(), request.headers()).then_some(target)
}

/// Returns the answer to a request that pretends to come from another node, which no cache may keep.
fn refuse_hop() -> Response {
    tracing::warn!("refused a request that pretends to come from another node");
    let message = "the request pretends to come from another node";
    let hint = "Send it without the headers Workspaced-Hop and Workspaced-Hop-Proof.";
    let ids = request_ids::new_ids();
    let refusal = Refusal::new(Code::Forbidden, message, hint);
    let mut response = request_ids::sync_scope(Arc::clone(&ids), || Problem::from(refusal).into_response());
    request_ids::add_to(&mut response, &ids);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(&HOP_REFUSED, HeaderValue::from_static("1"));
    response
}

impl From<NotForwarded> for Problem {
    fn from(error: NotForwarded) -> Self {
        let message = match error {
            NotForwarded::Unreachable => "the node that owns the run does not respond; nothing was changed",
            NotForwarded::Unanswered => {
                "the node that owns the run has not answered; the request may have been carried out"
            }
            NotForwarded::BodyEnded => return disconnected(),
        };
        Refusal::new(Code::Unavailable, message, "Retry the same call, under the same toolCallId, in a moment.")
            .with_details(|details| details.retry_after_seconds = Some(RETRY_SECONDS))
            .into()
    }
}
