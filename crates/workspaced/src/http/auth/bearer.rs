//! The bearer token of a request.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use engine::operators::{Identity, RequestPermit, network_of, operator_party, token_parties};
use model::{Refusal, RunId, Sha256};
use shared_pool::{Parties, Party};

use crate::http::auth::session::session_token;
use crate::http::conventions::rate_limit::ObservedRate;
use crate::http::problem::Problem;
use crate::http::serve::timeout_stream::Phase;
use crate::http::token_body::VerifiedToken;
use crate::issuer;
use crate::service::Service;

/// Maximum length of a token of the service.
const MAX_TOKEN_BYTES: usize = 512;

/// The peer address of the connection: the caller's, or that of a proxy in front of the service.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddr {
    pub(crate) address: IpAddr,
    /// What the connection waits for.
    pub(crate) phase: Phase,
}

impl PeerAddr {
    /// Returns the party of callers without a token at this address.
    pub(crate) fn party(&self) -> Party {
        Party::of("peer", network_of(self.address))
    }
}

/// A verified token.
pub(crate) struct Bearer {
    hash: Sha256,
    pub(crate) identity: Identity,
}

impl Bearer {
    pub(crate) async fn of(parts: &Parts, service: &Service) -> Result<Self, Problem> {
        // Requests of tests that call the router directly have no peer.
        let connection = parts.extensions.get::<PeerAddr>();
        let peer = connection.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
        let issuer = service.state.access.issuer.as_ref();
        let max_bytes = issuer.map_or(MAX_TOKEN_BYTES, |_| issuer::MAX_TOKEN_BYTES);
        let Some(token) = token_of(&parts.headers, max_bytes) else {
            service.operators.fail(peer)?;
            return Err(Problem::unauthenticated());
        };
        let hash = Sha256::of(token.as_bytes());
        let issued = match issuer {
            Some(issuer) => issuer.identify(&service.operators, token, &hash).await?,
            None => None,
        };
        let identity = match issued {
            Some(identity) => identity,
            // Counts every token that is not valid, also one of an issuer.
            None => service.operators.identify(token, &hash, peer).await?.ok_or_else(Problem::unauthenticated)?,
        };
        let parties = match &identity {
            Identity::Operator(operator) => Parties::one(operator_party(operator)),
            Identity::Run(token) => token_parties(token),
        };
        parties.identify();
        if let (Some(connection), Some(party)) = (connection, parties.first()) {
            connection.phase.identify(party);
        }
        if let Some(verified) = parts.extensions.get::<VerifiedToken>() {
            verified.set(hash);
        }
        Ok(Self { hash, identity })
    }

    /// Takes the request's rate-limit permit.
    pub(crate) fn permit(&self, parts: &Parts, service: &Service) -> Result<RequestPermit, Refusal> {
        service.operators.acquire(self.hash, |state| {
            if let Some(observed) = parts.extensions.get::<ObservedRate>() {
                observed.set(state);
            }
        })
    }
}

/// Returns the token of a request: the bearer token, or without one that of the session of a person who has signed in.
fn token_of(headers: &HeaderMap, max_bytes: usize) -> Option<&str> {
    if headers.contains_key(header::AUTHORIZATION) {
        return bearer_token(headers, max_bytes);
    }
    session_token(headers).filter(|token| (1..=MAX_TOKEN_BYTES).contains(&token.len()))
}

/// Returns the bearer token, of at most `max_bytes`, of a request with exactly one `Authorization` header.
fn bearer_token(headers: &HeaderMap, max_bytes: usize) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let fits = scheme.eq_ignore_ascii_case("bearer")
        && (1..=max_bytes).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then_some(token)
}

/// Returns the `{run}` of the path, unparsed.
pub(crate) async fn run_in_path(parts: &mut Parts, service: &Service) -> Result<String, Problem> {
    let members = RawPathParams::from_request_parts(parts, service).await;
    let members = members.map_err(|_| Refusal::invalid("the path is not UTF-8", "Encode the path as UTF-8."))?;
    let run = members.iter().find(|(name, _)| *name == "run").map(|(_, run)| run.to_owned());
    run.ok_or_else(Problem::no_route)
}

pub(crate) fn parse_run(raw: &str) -> Result<RunId, Refusal> {
    RunId::parse(raw).map_err(|error| Refusal::invalid(error.to_string(), "Give a run ID that GET /v1/runs lists."))
}
