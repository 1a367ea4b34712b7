//! Forwards a request to another node as it is, and its answer back, streaming both.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use model::{Code, Refusal};
use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::http::conventions::request_ids::{self, REQUEST_ID};
use crate::nodes::peers::Peers;

/// Marks a request that comes from another node, which is not forwarded again.
pub(crate) static HOP: HeaderName = HeaderName::from_static("workspaced-hop");
/// Shows that it does.
pub(crate) static HOP_PROOF: HeaderName = HeaderName::from_static("workspaced-hop-proof");
/// Marks an answer to another node: the run has moved, and nothing was done.
pub(crate) static MOVED: HeaderName = HeaderName::from_static("workspaced-moved");

/// Headers that concern one connection alone.
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

/// The seconds after which a request to a node that does not respond is to be repeated.
const RETRY_SECONDS: u64 = 2;

/// Why the owner of a run has not answered.
#[derive(Debug)]
pub(crate) enum NotForwarded {
    /// It accepts no connection, so that nothing was sent.
    Unreachable,
    /// It may have received the request.
    Unanswered,
    /// The request cannot be forwarded.
    Refused(Refusal),
}

/// Sends a request to the node at `base`, and returns its answer.
///
/// # Errors
///
/// If the node does not answer, or if the address of the request has more than one meaning.
pub(crate) async fn forward(peers: &Peers, base: &str, parts: &Parts, body: Body) -> Result<Response, NotForwarded> {
    let original = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let url = Url::parse(&format!("{base}{original}")).map_err(|_| ambiguous())?;
    let path_and_query = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    // Dot segments would be resolved on the way.
    if !percent_decode_str(&path_and_query).eq(percent_decode_str(original)) {
        return Err(ambiguous());
    }
    let mut headers = end_to_end(&parts.headers);
    headers.remove(header::HOST);
    headers.insert(&HOP, HeaderValue::from_static("1"));
    let proof = peers.proof(&parts.method, &path_and_query, &parts.headers);
    // Hexadecimal digits, and visible ASCII, are always valid.
    headers.extend(HeaderValue::from_str(&proof).ok().map(|proof| (HOP_PROOF.clone(), proof)));
    let ids = request_ids::of(&parts.extensions);
    if let Ok(id) = HeaderValue::from_str(&ids.request_id) {
        headers.insert(&REQUEST_ID, id);
    }
    let request = peers.http.request(parts.method.clone(), url).headers(headers);
    let is_empty = hyper::body::Body::is_end_stream(&body);
    let request = if is_empty { request } else { request.body(reqwest::Body::wrap_stream(body.into_data_stream())) };
    let answered = request.send().await.map_err(|error| {
        let (is_connect, error) = (error.is_connect(), error.without_url());
        tracing::warn!(error = &error as &dyn std::error::Error, "the node that owns the run does not respond");
        if is_connect { NotForwarded::Unreachable } else { NotForwarded::Unanswered }
    })?;
    let (mut answer, body) = axum::http::Response::<reqwest::Body>::from(answered).into_parts();
    answer.headers = end_to_end(&answer.headers);
    Ok(Response::from_parts(answer, Body::new(body)))
}

/// Returns the headers that are not of one connection alone.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|value| value.split(',')).map(str::trim) {
        kept.remove(name);
    }
    for name in &HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// Returns the parts of a request of this node alone, without what only another node may say.
///
/// # Errors
///
/// `FORBIDDEN` for a request that pretends to come from another node.
pub(crate) fn take_hop(peers: &Peers, request: &mut Request) -> Result<bool, Refusal> {
    if !request.headers().contains_key(&HOP) && !request.headers().contains_key(&HOP_PROOF) {
        return Ok(false);
    }
    let path_and_query = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let proof = request.headers().get(&HOP_PROOF).and_then(|proof| proof.to_str().ok()).unwrap_or_default();
    if !peers.is_proven(proof, request.method(), path_and_query, request.headers()) {
        tracing::warn!("refused a request of another node with another cluster secret");
        let message = "the request pretends to come from another node";
        let hint = "Send it without the headers Workspaced-Hop and Workspaced-Hop-Proof.";
        return Err(Refusal::new(Code::Forbidden, message, hint));
    }
    request.headers_mut().remove(&HOP);
    request.headers_mut().remove(&HOP_PROOF);
    Ok(true)
}

fn ambiguous() -> NotForwarded {
    let hint = "Give the path of the resource itself.";
    NotForwarded::Refused(Refusal::invalid("the path has segments such as `..`", hint))
}

impl From<NotForwarded> for Refusal {
    fn from(error: NotForwarded) -> Self {
        let message = match error {
            NotForwarded::Refused(refusal) => return refusal,
            NotForwarded::Unreachable => "the node that owns the run does not respond; nothing was changed",
            NotForwarded::Unanswered => {
                "the node that owns the run has not answered; the request may have been carried out"
            }
        };
        Self::new(Code::Unavailable, message, "Retry the same call, under the same toolCallId, in a moment.")
            .with_details(|details| details.retry_after_seconds = Some(RETRY_SECONDS))
    }
}
