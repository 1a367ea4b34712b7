//! Who calls, and for which run. A handler that takes one of these cannot forget to ask.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use model::{Permission, Refusal, RunId, Sha256};

use crate::calls::forbidden;
use crate::http::problem::Problem;
use crate::http::streams::GoodToken;
use crate::service::{Caller, Service};
use crate::throttle::Turn;
use crate::tokens::{Identity, Scope};
use crate::tools;

/// An operator with the scope `orchestrate`.
#[derive(Debug)]
pub(crate) struct Operator {
    _turn: Turn,
}

/// An operator of either scope.
#[derive(Debug)]
pub(crate) struct Auditor {
    /// The request, as it is counted.
    pub(crate) turn: Turn,
}

/// Anybody who may use tools: an operator with the scope `orchestrate`, or a run's token.
#[derive(Debug)]
pub(crate) struct ToolUser {
    /// The run, where the token is one's.
    pub(crate) run: Option<RunId>,
    _turn: Turn,
}

/// Whoever may call tools on the run that the path names: its own token, or an operator with the scope `orchestrate`.
#[derive(Debug)]
pub(crate) struct RunCaller {
    /// The run.
    pub(crate) run: RunId,
    /// Who calls.
    pub(crate) caller: Caller,
    _turn: Turn,
}

/// Whoever may read the audit of the run that the path names: an operator of either scope, or its own token with the
/// permission `audit:read`.
#[derive(Debug)]
pub(crate) struct RunAuditor {
    /// The run.
    pub(crate) run: RunId,
    /// Whether content of files may be shown: to operators, and to run tokens with `file:read`.
    pub(crate) may_read: bool,
    /// The request, as it is counted.
    pub(crate) turn: Turn,
}

/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 512;

/// The address that a request comes from: the caller's own, or that of the proxy before the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A token that is good.
struct Bearer {
    hash: Sha256,
    identity: Identity,
}

impl Bearer {
    async fn of(parts: &Parts, service: &Service) -> Result<Self, Problem> {
        // A request that no connection has brought in, as in a test of the routes, has no address.
        let peer = parts.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let Some(token) = bearer_token(&parts.headers) else {
            service.tokens.fail(peer)?;
            return Err(Problem::unauthenticated());
        };
        let hash = Sha256::of(token.as_bytes());
        let identity = service.identify(token, &hash, peer).await?.ok_or_else(Problem::unauthenticated)?;
        if let Some(good) = parts.extensions.get::<GoodToken>() {
            good.set(hash);
        }
        Ok(Self { hash, identity })
    }

    /// Counts the request: only now, since a token that is not good is nobody's.
    fn turn(&self, service: &Service) -> Result<Turn, Refusal> {
        service.throttle.enter(self.hash)
    }
}

/// The one bearer token that the request has.
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

/// The `{run}` of the path, as it was written.
async fn named_run(parts: &mut Parts, service: &Service) -> Result<String, Problem> {
    let members = RawPathParams::from_request_parts(parts, service).await;
    let members = members.map_err(|_| Refusal::invalid("the address is no UTF-8", "Write it in UTF-8."))?;
    let run = members.iter().find(|(name, _)| *name == "run").map(|(_, run)| run.to_owned());
    run.ok_or_else(Problem::no_route)
}

/// The permission that the tool of the path needs and the caller lacks.
async fn lacking(caller: &Caller, parts: &mut Parts, service: &Service) -> Option<Refusal> {
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
            Identity::Operator(Scope::Orchestrate) => Ok(Self { _turn: bearer.turn(service)? }),
            Identity::Operator(Scope::Audit) | Identity::Run(_) => Err(Problem::forbidden()),
        }
    }
}

impl FromRequestParts<Service> for Auditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        match bearer.identity {
            Identity::Operator(Scope::Orchestrate | Scope::Audit) => Ok(Self { turn: bearer.turn(service)? }),
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
        Ok(Self { run, _turn: bearer.turn(service)? })
    }
}

impl FromRequestParts<Service> for RunCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let named = named_run(parts, service).await?;
        let caller = match &bearer.identity {
            Identity::Operator(Scope::Orchestrate) => Caller::operator(),
            // Told before anything is known of the run that was named: it may exist or not.
            Identity::Run(token) if token.run_id.as_str() == named => Caller::of(token),
            Identity::Operator(Scope::Audit) | Identity::Run(_) => return Err(Problem::forbidden()),
        };
        // Told before that the token makes too many requests, as long as that costs no look at the run.
        let turn = match bearer.turn(service) {
            Ok(turn) => turn,
            Err(limited) => return Err(lacking(&caller, parts, service).await.unwrap_or(limited).into()),
        };
        tracing::Span::current().record("run.id", &named);
        Ok(Self { run: parse_run(&named)?, caller, _turn: turn })
    }
}

impl FromRequestParts<Service> for RunAuditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let named = named_run(parts, service).await?;
        let may_read = match &bearer.identity {
            Identity::Operator(Scope::Orchestrate | Scope::Audit) => true,
            Identity::Run(token)
                if token.run_id.as_str() == named && token.permissions.contains(&Permission::AuditRead) =>
            {
                Caller::of(token).may_read()
            }
            Identity::Run(_) => return Err(Problem::forbidden()),
        };
        let turn = bearer.turn(service)?;
        Ok(Self { run: parse_run(&named)?, may_read, turn })
    }
}
