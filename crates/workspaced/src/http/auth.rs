//! Authentication and authorisation, as extractors: a handler that takes one of them cannot skip the check.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use model::{Permission, Refusal, RunId, Sha256};

use crate::http::problem::Problem;
use crate::http::token_body::VerifiedToken;
use crate::service::{Caller, Service};
use engine::admission::rate_limit::RequestPermit;
use engine::admission::tokens::{Identity, Scope};
use engine::call_error::refusals::forbidden;
use engine::tools;

/// An operator with the scope `orchestrate`.
#[derive(Debug)]
pub(crate) struct Operator {
    _permit: RequestPermit,
}

/// An operator with the scope `orchestrate` or `audit`.
#[derive(Debug)]
pub(crate) struct Auditor {
    /// The rate-limit permit of the request.
    pub(crate) permit: RequestPermit,
}

/// A caller that may use tools: an operator with the scope `orchestrate`, or any run token.
#[derive(Debug)]
pub(crate) struct ToolUser {
    /// The run of a run token.
    pub(crate) run: Option<RunId>,
    _permit: RequestPermit,
}

/// A caller that may use tools on the run in the path: one of its run tokens, or an operator with the scope `orchestrate`.
#[derive(Debug)]
pub(crate) struct RunCaller {
    /// The run.
    pub(crate) run: RunId,
    /// The caller.
    pub(crate) caller: Caller,
    _permit: RequestPermit,
}

/// A caller that may read the audit of the run in the path: an operator, or one of its run tokens with the permission
/// `audit:read`.
#[derive(Debug)]
pub(crate) struct RunAuditor {
    /// The run.
    pub(crate) run: RunId,
    /// Whether the caller may see file content: operators may, run tokens need `file:read`.
    pub(crate) may_read: bool,
    /// The rate-limit permit of the request.
    pub(crate) permit: RequestPermit,
}

/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 512;

/// The peer address of the connection: the caller's, or that of a proxy in front of the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddr(pub(crate) IpAddr);

/// A verified token.
struct Bearer {
    hash: Sha256,
    identity: Identity,
}

impl Bearer {
    async fn of(parts: &Parts, service: &Service) -> Result<Self, Problem> {
        // Requests of tests that call the router directly have no peer.
        let peer = parts.extensions.get::<PeerAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let Some(token) = bearer_token(&parts.headers) else {
            service.tokens.fail(peer)?;
            return Err(Problem::unauthenticated());
        };
        let hash = Sha256::of(token.as_bytes());
        let identity = service.identify(token, &hash, peer).await?.ok_or_else(Problem::unauthenticated)?;
        if let Some(verified) = parts.extensions.get::<VerifiedToken>() {
            verified.set(hash);
        }
        Ok(Self { hash, identity })
    }

    /// Takes the request's rate-limit permit.
    fn permit(&self, service: &Service) -> Result<RequestPermit, Refusal> {
        service.rate_limiter.acquire(self.hash)
    }
}

/// Returns the bearer token of a request with exactly one `Authorization` header.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let fits = scheme.eq_ignore_ascii_case("bearer")
        && (1..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then_some(token)
}

/// Returns the `{run}` of the path, unparsed.
async fn run_in_path(parts: &mut Parts, service: &Service) -> Result<String, Problem> {
    let members = RawPathParams::from_request_parts(parts, service).await;
    let members = members.map_err(|_| Refusal::invalid("the path is not UTF-8", "Encode the path as UTF-8."))?;
    let run = members.iter().find(|(name, _)| *name == "run").map(|(_, run)| run.to_owned());
    run.ok_or_else(Problem::no_route)
}

/// Returns the refusal of a caller that lacks the permission for the `{tool}` of the path.
async fn missing_permission(caller: &Caller, parts: &mut Parts, service: &Service) -> Option<Refusal> {
    let members = RawPathParams::from_request_parts(parts, service).await.ok()?;
    let (_, name) = members.iter().find(|(name, _)| *name == "tool")?;
    let tool = tools::find(name)?;
    let may = tool.permissions.iter().any(|permission| caller.permissions.contains(permission));
    (!may).then(|| forbidden(tool.permissions))
}

fn parse_run(raw: &str) -> Result<RunId, Refusal> {
    RunId::parse(raw).map_err(|error| Refusal::invalid(error.to_string(), "Name a run as GET /v1/runs lists it."))
}

impl FromRequestParts<Service> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        match bearer.identity {
            Identity::Operator(Scope::Orchestrate) => Ok(Self { _permit: bearer.permit(service)? }),
            Identity::Operator(Scope::Audit) | Identity::Run(_) => Err(Problem::forbidden()),
        }
    }
}

impl FromRequestParts<Service> for Auditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        match bearer.identity {
            Identity::Operator(Scope::Orchestrate | Scope::Audit) => Ok(Self { permit: bearer.permit(service)? }),
            Identity::Run(_) => Err(Problem::forbidden()),
        }
    }
}

impl FromRequestParts<Service> for ToolUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let run = match &bearer.identity {
            Identity::Operator(Scope::Orchestrate) => None,
            Identity::Run(token) => Some(token.run_id.clone()),
            Identity::Operator(Scope::Audit) => return Err(Problem::forbidden()),
        };
        Ok(Self { run, _permit: bearer.permit(service)? })
    }
}

impl FromRequestParts<Service> for RunCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let raw_run = run_in_path(parts, service).await?;
        let caller = match &bearer.identity {
            Identity::Operator(Scope::Orchestrate) => Caller::operator(),
            // Decided without looking up the run in the path: the answer must not reveal whether it exists.
            Identity::Run(token) if token.run_id.as_str() == raw_run => Caller::of(token),
            Identity::Operator(Scope::Audit) | Identity::Run(_) => return Err(Problem::forbidden()),
        };
        let permit = match bearer.permit(service) {
            Ok(permit) => permit,
            // `FORBIDDEN` comes before `RATE_LIMITED` if it needs no lookup of the run.
            Err(limited) => return Err(missing_permission(&caller, parts, service).await.unwrap_or(limited).into()),
        };
        tracing::Span::current().record("run.id", &raw_run);
        Ok(Self { run: parse_run(&raw_run)?, caller, _permit: permit })
    }
}

impl FromRequestParts<Service> for RunAuditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let raw_run = run_in_path(parts, service).await?;
        let may_read = match &bearer.identity {
            Identity::Operator(Scope::Orchestrate | Scope::Audit) => true,
            Identity::Run(token)
                if token.run_id.as_str() == raw_run && token.permissions.contains(&Permission::AuditRead) =>
            {
                Caller::of(token).may_read()
            }
            Identity::Run(_) => return Err(Problem::forbidden()),
        };
        let permit = bearer.permit(service)?;
        Ok(Self { run: parse_run(&raw_run)?, may_read, permit })
    }
}
