//! Which node answers a request: the owner of its run, or, if the request is of no run, the one that it has reached.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::operators::Identity;
use futures_util::future::BoxFuture;
use hyper::body::Body as _;
use model::{ApprovalId, RunId};

use crate::http::auth::bearer::Bearer;
use crate::http::extract::body::read_body;
use crate::http::mcp;
use crate::http::middleware::ended_body::EndedBody;
use crate::http::middleware::forward::{MOVED, NotForwarded, forward};
use crate::http::problem::{Problem, RunHasMoved};
use crate::service::Service;
use crate::telemetry;
use cluster::nodes::membership::Membership;
use cluster::nodes::peers::{Found, FromNode, Location};
use cluster::nodes::proofs::Peer;

/// Maximum size of a body that is kept until the request is answered, so that it can be sent to another node after all.
const MAX_KEPT_BYTES: u64 = 16 * 1024;
/// Maximum number of nodes that are asked for one request.
const MAX_ATTEMPTS: u32 = 3;

/// Routes whose `GET` needs no files of the run.
const DATABASE_ROUTES: [&str; 9] = [
    "/v1/runs/{run}",
    "/v1/runs/{run}/artifacts/sha256/{digest}",
    "/v1/runs/{run}/artifacts/{artifactId}",
    "/v1/runs/{run}/audit",
    "/v1/runs/{run}/audit/inclusion",
    "/v1/runs/{run}/audit/verify",
    "/v1/runs/{run}/changes",
    "/v1/runs/{run}/tool-calls/{toolCallId}",
    "/v1/approvals/{approvalId}",
];

/// How often a request that another node answers checks that it can still do so.
const OWNER_CHECK: Duration = Duration::from_secs(1);

/// Answers a request here, or forwards it to the owner of its run.
pub(crate) async fn route(State(service): State<Service>, request: Request, next: Next) -> Response {
    let Some(membership) = service.state.node.clone() else { return next.run(request).await };
    if request.extensions().get::<FromNode>().is_some() {
        return mark_moved(next.run(request).await);
    }
    route_by_run(&service, &membership, request, next).await.unwrap_or_else(Problem::into_response)
}

/// Marks the answer to the node that has forwarded a request: the run has moved.
fn mark_moved(mut response: Response) -> Response {
    if response.extensions().get::<RunHasMoved>().is_some() {
        response.headers_mut().insert(&MOVED, HeaderValue::from_static("1"));
    }
    response
}

async fn route_by_run(
    service: &Service,
    membership: &Arc<Membership>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let Some(run) = run_of(service, &mut parts).await? else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let (mut body, kept) = keep_small(service, body).await?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let location = service.location_of(&membership.peers, &run).await?;
        let (answered, is_final) = match location {
            Location::Here | Location::Unowned => {
                let response = next.clone().run(Request::from_parts(parts.clone(), body)).await;
                let is_final = response.extensions().get::<RunHasMoved>().is_none();
                (response, is_final)
            }
            Location::At(peer) => {
                telemetry::request_forwarded();
                match forward_to_owner(service, membership, &run, &peer, &parts, body).await {
                    Ok(mut response) => {
                        let is_final = response.headers_mut().remove(&MOVED).is_none();
                        (response, is_final)
                    }
                    Err(NotForwarded::Unreachable) if is_answered_by_database(&parts) => {
                        let request = Request::from_parts(parts, Body::empty());
                        return Ok(next.run(request).await);
                    }
                    Err(error) => {
                        membership.peers.forget(&run);
                        // It may have left a moment ago. One that may have received the request is not asked again.
                        let is_final = !matches!(error, NotForwarded::Unreachable)
                            || service.location_of(&membership.peers, &run).await? == Location::At(peer);
                        (Problem::from(error).into_response(), is_final)
                    }
                }
            }
        };
        match &kept {
            Some(kept) if !is_final && attempts < MAX_ATTEMPTS => body = Body::from(kept.clone()),
            _ => return Ok(answered),
        }
        membership.peers.forget(&run);
    }
}

/// Whether the database alone has the answer to a request, so that any node can give it while the owner of the run does not respond.
fn is_answered_by_database(parts: &Parts) -> bool {
    let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    matches!(parts.method, Method::GET | Method::HEAD) && DATABASE_ROUTES.contains(&route)
}

/// Sends a request to the owner of its run, and returns its answer, which ends once that node does not own the run any more.
///
/// # Errors
///
/// If the owner does not answer, or is lost before it does.
async fn forward_to_owner(
    service: &Service,
    membership: &Arc<Membership>,
    run: &RunId,
    owner: &Peer,
    parts: &Parts,
    body: Body,
) -> Result<Response, NotForwarded> {
    let mut lost: BoxFuture<'static, ()> =
        Box::pin(until_lost(service.clone(), Arc::clone(membership), run.clone(), owner.clone()));
    let response = tokio::select! {
        forwarded = forward(&membership.peers, owner, parts, body) => forwarded?,
        () = &mut lost => return Err(NotForwarded::Unanswered),
    };
    Ok(response.map(|body| Body::new(EndedBody::new(body, lost))))
}

/// Waits until `owner` is silent, or another node may own the run. A run that its owner has given back belongs to
/// nobody: what the owner was asked before, it answers.
async fn until_lost(service: Service, membership: Arc<Membership>, run: RunId, owner: Peer) {
    let peers = &membership.peers;
    loop {
        tokio::time::sleep(OWNER_CHECK).await;
        match service.location_of(peers, &run).await {
            Ok(Location::At(peer)) if peer == owner => {}
            // While the database is away, nobody can take the run.
            Ok(Location::Unowned) | Err(_) => {}
            Ok(Location::At(_) | Location::Here) => return,
        }
        // One that accepts no connection ends those that it has, or completes them before it ends.
        if peers.find(&owner).await == Found::Silence {
            return;
        }
    }
}

/// Returns the body, and a copy if it is small.
///
/// # Errors
///
/// As the handler of the route, if the body does not arrive.
async fn keep_small(service: &Service, body: Body) -> Result<(Body, Option<Bytes>), Problem> {
    if body.size_hint().exact().is_none_or(|size| size > MAX_KEPT_BYTES) {
        return Ok((body, None));
    }
    let bytes = read_body(body, MAX_KEPT_BYTES, service.state.http_limits.body_timeout).await?;
    Ok((Body::from(bytes.clone()), Some(bytes)))
}

/// Returns the run of a request; `None` if it is of no run, or if the answer does not depend on the run.
///
/// # Errors
///
/// As the handler of the route, if the token is missing or not valid.
async fn run_of(service: &Service, parts: &mut Parts) -> Result<Option<RunId>, Problem> {
    let Some(route) = parts.extensions.get::<MatchedPath>().cloned() else { return Ok(None) };
    let members = RawPathParams::from_request_parts(parts, service).await;
    let Ok(members) = members else { return Ok(None) };
    let member = |wanted: &str| members.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    let is_of_token =
        [mcp::PATH, "/v1/tools"].contains(&route.as_str()) && parts.headers.contains_key(header::AUTHORIZATION);
    let (run, approval) = (member("run"), member("approvalId"));
    if run.is_none() && approval.is_none() && !is_of_token {
        return Ok(None);
    }
    // Nobody without a token makes this node ask others.
    let identity = Bearer::of(parts, service).await?.identity;
    Ok(match (run, approval, identity) {
        (Some(run), _, Identity::Run(token)) => Some(token.run_id.clone()).filter(|own| own.as_str() == run),
        (Some(run), _, Identity::Operator(_)) => RunId::parse(&run).ok(),
        (None, Some(approval), Identity::Operator(_)) => match ApprovalId::parse(&approval) {
            Ok(id) => service.calls.run_of_approval(&id).await?,
            Err(_) => None,
        },
        (None, None, Identity::Run(token)) => Some(token.run_id.clone()),
        _ => None,
    })
}
