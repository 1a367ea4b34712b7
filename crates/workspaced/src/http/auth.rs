//! Authentication and authorisation, as extractors: a handler that takes one of them cannot skip the check.

pub(crate) mod bearer;
pub(crate) mod scopes;
pub(crate) mod session;

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use engine::operators::{Identity, OperatorIdentity, RequestPermit, run_party};
use engine::tools::Tool;
use engine::{Caller, RequestIds, forbidden, tools};
use model::{Code, Permission, Refusal, RunId, Scope, Token};
use shared_pool::Parties;

use crate::http::auth::bearer::{Bearer, parse_run, run_in_path};
use crate::http::auth::scopes::{Accepts, Auditors, Deciders, Everyone, MetricsReaders, Orchestrators, Reviewers};
use crate::http::conventions::rate_limit::ObservedRate;
use crate::http::conventions::request_ids;
use crate::http::problem::Problem;
use crate::service::Service;

/// An operator with a scope that `S` accepts.
#[derive(Debug)]
pub(crate) struct OperatorWith<S> {
    /// The operator.
    pub(crate) operator: Arc<OperatorIdentity>,
    /// The IDs of the request.
    pub(crate) request: Arc<RequestIds>,
    /// The rate-limit permit of the request.
    pub(crate) permit: RequestPermit,
    scopes: PhantomData<S>,
}

impl<S> OperatorWith<S> {
    /// Returns the operator as the caller of this request.
    pub(crate) fn caller(&self) -> Caller {
        Caller::of_operator(&self.operator).in_request(Some(Arc::clone(&self.request)))
    }
}

/// An operator that may do everything.
pub(crate) type Orchestrator = OperatorWith<Orchestrators>;
/// An operator that may decide about calls.
pub(crate) type Decider = OperatorWith<Deciders>;
/// An operator that may read the audit.
pub(crate) type Auditor = OperatorWith<Auditors>;
/// An operator that may read runs and approvals.
pub(crate) type Reviewer = OperatorWith<Reviewers>;

impl Reviewer {
    /// Checks that the operator may list the records of `run`, or of all chains if it is `None`: who only decides about calls sees
    /// runs, and not what was done to operators.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`.
    pub(crate) fn check_may_list(&self, run: Option<&RunId>) -> Result<(), Refusal> {
        if self.operator.has_any(Auditors::SCOPES) || run.is_some_and(|run| !run.is_service()) {
            return Ok(());
        }
        let message = "the scope `approve` permits the records of one run";
        Err(Refusal::new(Code::Forbidden, message, "Name a run in `run`, or use a token with the scope `audit`."))
    }
}

/// An operator with any scope.
pub(crate) type AnyOperator = OperatorWith<Everyone>;

/// A caller that may use tools: an operator that may do everything, or any run token.
#[derive(Debug)]
pub(crate) struct ToolUser {
    /// The run of a run token.
    pub(crate) run: Option<RunId>,
    /// What the caller may do.
    pub(crate) permissions: BTreeSet<Permission>,
    _permit: RequestPermit,
}

/// A caller on the run in the path: one of its run tokens, or an operator with a scope that `S` accepts.
#[derive(Debug)]
pub(crate) struct RunCallerWith<S> {
    /// The run.
    pub(crate) run: RunId,
    /// The caller.
    pub(crate) caller: Caller,
    permit: RequestPermit,
    rate: Option<ObservedRate>,
    scopes: PhantomData<S>,
}

/// A caller that may change the run.
pub(crate) type RunCaller = RunCallerWith<Orchestrators>;
/// A caller that may read the run's files.
pub(crate) type RunReader = RunCallerWith<Auditors>;
/// A caller that may read the run's diff.
pub(crate) type DiffReader = RunCallerWith<Reviewers>;

/// A caller with a run token, for routes that name no run: the token says which.
#[derive(Debug)]
pub(crate) struct RunTokenCaller {
    /// The run.
    pub(crate) run: RunId,
    /// The caller.
    pub(crate) caller: Caller,
    /// For whom its work counts.
    pub(crate) parties: Parties,
    _permit: RequestPermit,
}

/// A caller of the tool in the path, on the run in the path: see [`scopes_for`].
#[derive(Debug)]
pub(crate) struct ToolCaller(pub(crate) RunCaller);

/// A caller that may read the audit of the run in the path, its calls and their diffs: an operator that may read runs, or one of the
/// run's tokens with the permission `audit:read`.
#[derive(Debug)]
pub(crate) struct RunAuditor {
    /// The run.
    pub(crate) run: RunId,
    /// Whether the caller may see file content: operators may, run tokens need `file:read`.
    pub(crate) may_read: bool,
    /// The rate-limit permit of the request.
    pub(crate) permit: RequestPermit,
}

/// A caller that may see the run in the path: an operator that may read runs, or any of the run's tokens.
#[derive(Debug)]
pub(crate) struct RunViewer {
    /// The token, if it is one of the run.
    pub(crate) token: Option<Arc<Token>>,
    _permit: RequestPermit,
}

/// A caller that may read the metrics: anyone, unless the settings protect them.
#[derive(Debug)]
pub(crate) struct MetricsReader {
    _permit: Option<RequestPermit>,
}

/// Returns the scopes of operators that may call a tool. A tool that does not exist is not disclosed to others.
pub(crate) fn scopes_for(tool: Option<&Tool>) -> &'static [Scope] {
    match tool {
        Some(tool) if !tool.only_reads() => Orchestrators::SCOPES,
        Some(tool) if tool.name == "diff_workspace" => Reviewers::SCOPES,
        Some(_) | None => Auditors::SCOPES,
    }
}

/// Returns the `{tool}` of the path.
async fn tool_in_path(parts: &mut Parts, service: &Service) -> Option<&'static Tool> {
    let members = RawPathParams::from_request_parts(parts, service).await.ok()?;
    let (_, name) = members.iter().find(|(name, _)| *name == "tool")?;
    tools::find(name)
}

/// Returns the refusal of a caller that lacks the permission for the `{tool}` of the path.
async fn missing_permission(caller: &Caller, parts: &mut Parts, service: &Service) -> Option<Refusal> {
    let tool = tool_in_path(parts, service).await?;
    (!tool.is_permitted(&caller.permissions)).then(|| forbidden(tool.permissions))
}

impl<S: Accepts> FromRequestParts<Service> for OperatorWith<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        match &bearer.identity {
            Identity::Operator(operator) if operator.has_any(S::SCOPES) => Ok(Self {
                operator: Arc::clone(operator),
                request: request_ids::of(&parts.extensions),
                permit: bearer.permit(parts, service)?,
                scopes: PhantomData,
            }),
            Identity::Operator(_) | Identity::Run(_) => Err(Problem::forbidden()),
        }
    }
}

impl FromRequestParts<Service> for ToolUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let (run, caller) = match &bearer.identity {
            Identity::Operator(operator) if operator.has_any(Orchestrators::SCOPES) => {
                (None, Caller::of_operator(operator))
            }
            Identity::Operator(_) => return Err(Problem::forbidden()),
            Identity::Run(token) => (Some(token.run_id.clone()), Caller::of(token)),
        };
        Ok(Self { run, permissions: caller.permissions, _permit: bearer.permit(parts, service)? })
    }
}

impl<S: Accepts> RunCallerWith<S> {
    async fn with_scopes(parts: &mut Parts, service: &Service, scopes: &[Scope]) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let raw_run = run_in_path(parts, service).await?;
        let caller = match &bearer.identity {
            Identity::Operator(operator) if operator.has_any(scopes) => Caller::of_operator(operator),
            // Decided without looking up the run in the path: the answer must not reveal whether it exists.
            Identity::Run(token) if token.run_id.as_str() == raw_run => Caller::of(token),
            Identity::Operator(_) | Identity::Run(_) => return Err(Problem::forbidden()),
        };
        let permit = match bearer.permit(parts, service) {
            Ok(permit) => permit,
            // `FORBIDDEN` comes before `RATE_LIMITED` if it needs no lookup of the run.
            Err(limited) => return Err(missing_permission(&caller, parts, service).await.unwrap_or(limited).into()),
        };
        let run = parse_run(&raw_run)?;
        // The work of an operator counts for the run as well.
        Parties::current().and(run_party(run.as_str())).identify();
        tracing::Span::current().record("run.id", run.as_str());
        let caller = caller.in_request(Some(request_ids::of(&parts.extensions)));
        let rate = parts.extensions.get::<ObservedRate>().cloned();
        Ok(Self { run, caller, permit, rate, scopes: PhantomData })
    }

    /// Counts the calls of a request that has several in the token's rate limit. The request has counted as one.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if there are too many.
    pub(crate) fn charge(&self, service: &Service, calls: usize) -> Result<(), Refusal> {
        service.operators.charge(self.permit.token(), calls.saturating_sub(1), |state| {
            if let Some(rate) = &self.rate {
                rate.set(state);
            }
        })
    }
}

impl<S: Accepts> FromRequestParts<Service> for RunCallerWith<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        Self::with_scopes(parts, service, S::SCOPES).await
    }
}

impl FromRequestParts<Service> for ToolCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let tool = tool_in_path(parts, service).await;
        let caller = RunCaller::with_scopes(parts, service, scopes_for(tool)).await?;
        // Before the body is read, which takes memory.
        if let Some(tool) = tool {
            let permitted = service.calls.check_permitted(&caller.run, &caller.caller, tool, None).await;
            permitted.map_err(|failed| Problem::from(failed.error).of_call(failed.tool_call_id))?;
        }
        Ok(Self(caller))
    }
}

impl FromRequestParts<Service> for RunTokenCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let Identity::Run(token) = &bearer.identity else {
            return Err(forbidden_operator().into());
        };
        let caller = Caller::of(token).in_request(Some(request_ids::of(&parts.extensions)));
        let run = token.run_id.clone();
        tracing::Span::current().record("run.id", run.as_str());
        Ok(Self { run, caller, parties: Parties::current(), _permit: bearer.permit(parts, service)? })
    }
}

/// Refuses an operator where only the token of a run says which run is meant.
fn forbidden_operator() -> Refusal {
    let message = "this route takes the token of a run, which says which run is meant";
    Refusal::new(Code::Forbidden, message, "Create a run, or issue a token for one, and use that token.")
}

impl FromRequestParts<Service> for RunAuditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let raw_run = run_in_path(parts, service).await?;
        let may_read = match &bearer.identity {
            Identity::Operator(operator) if operator.has_any(Reviewers::SCOPES) => true,
            Identity::Run(token)
                if token.run_id.as_str() == raw_run && token.permissions.contains(&Permission::AuditRead) =>
            {
                Caller::of(token).may_read()
            }
            Identity::Operator(_) | Identity::Run(_) => return Err(Problem::forbidden()),
        };
        let permit = bearer.permit(parts, service)?;
        Ok(Self { run: parse_run(&raw_run)?, may_read, permit })
    }
}

impl FromRequestParts<Service> for RunViewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let bearer = Bearer::of(parts, service).await?;
        let raw_run = run_in_path(parts, service).await?;
        let token = match &bearer.identity {
            Identity::Operator(operator) if operator.has_any(Reviewers::SCOPES) => None,
            Identity::Run(token) if token.run_id.as_str() == raw_run => Some(Arc::clone(token)),
            Identity::Operator(_) | Identity::Run(_) => return Err(Problem::forbidden()),
        };
        Ok(Self { token, _permit: bearer.permit(parts, service)? })
    }
}

impl FromRequestParts<Service> for MetricsReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        if !service.state.access.protect_metrics {
            return Ok(Self { _permit: None });
        }
        let reader = OperatorWith::<MetricsReaders>::from_request_parts(parts, service).await?;
        Ok(Self { _permit: Some(reader.permit) })
    }
}
