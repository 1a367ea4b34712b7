//! The state of the HTTP routes.

use std::sync::Arc;

use axum::http::HeaderValue;
use content::Objects;
use engine::audit::Audit;
use engine::calls::Calls;
use engine::operators::Operators;
use engine::runs::Runs;
use engine::{CallError, Limits, Resources, Services};
use ledger::{Ledger, Role};
use model::{Code, RunId};
use shared_pool::SharedPool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transparency::InclusionProof;

use crate::answer_memory::AnswerMemory;
use crate::cancellations::Cancellations;
use crate::issuer::Issuer;
use crate::webhooks::Webhooks;
use cluster::nodes::membership::Membership;
use cluster::nodes::peers::{Location, Peers};
use cluster::nodes::{KnownNode, holds, known_nodes, maintains};
use config::http_limits::HttpLimits;
use data_dir::DiskProbe;
use proofs::checkpoints::Checkpoints;

/// The services of the engine, and what this process has beside them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    /// Runs, from their creation to their end.
    pub(crate) runs: Arc<Runs>,
    /// Calls of the tools, events, approvals.
    pub(crate) calls: Arc<Calls>,
    /// Operators and tokens.
    pub(crate) operators: Arc<Operators>,
    /// What the records say.
    pub(crate) audit: Arc<Audit>,
    /// What this process has beside the engine.
    pub(crate) state: Arc<State>,
}

/// What is open to whom beside what tokens permit.
#[derive(Clone)]
pub(crate) struct OpenAccess {
    /// Whether the metrics require a token.
    pub(crate) protect_metrics: bool,
    /// The origins of pages whose scripts may call the service.
    pub(crate) cors_origins: Vec<HeaderValue>,
    /// Whether the service listens on loopback, where only a page that was rebound to it comes under another name.
    pub(crate) is_loopback: bool,
    /// Whether the service has a certificate.
    pub(crate) is_tls: bool,
    /// The issuer whose access tokens are accepted; `None` if there is none.
    pub(crate) issuer: Option<Arc<Issuer>>,
}

/// What this process has beside the engine.
pub(crate) struct State {
    /// The ledger. HTTP reaches it by the services alone.
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Bases and large contents outside of this machine, if they are stored there.
    pub(crate) objects: Option<Objects>,
    /// The limits of calls.
    pub(crate) limits: Limits,
    /// Work that outlives its request.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the process shuts down.
    pub(crate) shutdown: CancellationToken,
    /// Signs the heads of all chains.
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// The limits of HTTP.
    pub(crate) http_limits: HttpLimits,
    /// What is open to whom beside what tokens permit.
    pub(crate) access: OpenAccess,
    /// Measures the disk of the data folder.
    pub(crate) disk: Arc<DiskProbe>,
    /// Memory for answers to callers with a token.
    pub(crate) answer_memory: AnswerMemory,
    /// Memory for answers to callers without a token: a quarter as much.
    pub(crate) open_answer_memory: AnswerMemory,
    /// The receivers of messages about events.
    pub(crate) webhooks: Webhooks,
    /// Requests of the Model Context Protocol that are under way.
    pub(crate) cancellations: Cancellations,
    /// This process as a node; `None` if the service is the only one.
    pub(crate) node: Option<Arc<Membership>>,
}

impl State {
    /// Returns every pool that only HTTP uses.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &SharedPool> {
        self.answer_memory.pools().into_iter().chain(self.open_answer_memory.pools())
    }
}

impl Service {
    /// Starts the engine on `resources`.
    pub(crate) fn start(
        resources: Resources,
        checkpoints: Checkpoints,
        http_limits: HttpLimits,
        access: OpenAccess,
        disk: DiskProbe,
        webhooks: Webhooks,
        node: Option<Arc<Membership>>,
    ) -> Self {
        let bytes = http_limits.max_answer_memory_bytes;
        let state = State {
            ledger: Arc::clone(&resources.ledger),
            objects: resources.objects.clone(),
            limits: resources.limits.clone(),
            tasks: resources.tasks.clone(),
            shutdown: resources.shutdown.clone(),
            checkpoints: Arc::new(checkpoints),
            http_limits,
            access,
            disk: Arc::new(disk),
            answer_memory: AnswerMemory::new(bytes),
            open_answer_memory: AnswerMemory::open(bytes / 4),
            webhooks,
            cancellations: Cancellations::default(),
            node,
        };
        let Services { runs, calls, operators, audit } = Services::start(resources);
        Self { runs, calls, operators, audit, state: Arc::new(state) }
    }

    /// Does `work` with the disk of the data folder, on a thread that may block.
    ///
    /// # Errors
    ///
    /// As for `work`.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&DiskProbe) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let (disk, span) = (Arc::clone(&self.state.disk), tracing::Span::current());
        let done = tokio::task::spawn_blocking(move || span.in_scope(|| work(&disk))).await;
        done.map_err(|error| CallError::Internal(Box::new(error)))?
    }

    /// Returns which node a run is at.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn location_of(&self, peers: &Peers, run: &RunId) -> Result<Location, CallError> {
        Ok(peers.location_of(self.state.ledger.as_ref(), run).await?)
    }

    /// Returns the nodes that share the database, by name; none in a service that is the only one.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn nodes(&self) -> Result<Vec<KnownNode>, CallError> {
        Ok(known_nodes(self.state.ledger.as_ref()).await?)
    }

    /// Returns the checkpoints.
    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.state.checkpoints
    }

    /// Proves that record `seq` of `run` is in the history that the newest checkpoint was signed over.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `RUN_NOT_FOUND`, `NOT_FOUND`, `UNAVAILABLE`.
    pub(crate) async fn prove_inclusion(&self, run: &RunId, seq: Option<u64>) -> Result<InclusionProof, CallError> {
        // Also while the records of an archived run are being deleted.
        self.audit.check_not_archived(Some(run)).await?;
        let proof = self.checkpoints().prove_inclusion(run, seq).await;
        if proof.as_ref().is_err_and(|error| error.is(Code::NotFound)) {
            // An unknown run has its own code.
            self.audit.known_run(run).await?;
        }
        proof
    }

    /// Whether this process does the work of a role that concerns no single run.
    pub(crate) fn holds(&self, role: Role) -> bool {
        holds(self.state.node.as_deref(), role)
    }

    /// Whether this process does the work of a role for a run.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn maintains(&self, role: Role, run: &RunId) -> ledger::Result<bool> {
        maintains(self.state.node.as_deref(), self.state.ledger.as_ref(), role, run).await
    }
}
