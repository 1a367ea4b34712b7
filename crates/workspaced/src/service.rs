//! The state of the HTTP routes.

use std::ops::Deref;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::{CallError, Engine};
use ledger::Role;
use model::{Code, RunId};
use shared_pool::SharedPool;
use transparency::InclusionProof;

use crate::answer_memory::AnswerMemory;
use crate::cancellations::Cancellations;
use crate::checkpoints::Checkpoints;
use crate::config::http_limits::HttpLimits;
use crate::data_dir::DiskProbe;
use crate::issuer::Issuer;
use crate::nodes::membership::Membership;
use crate::nodes::{holds, maintains};
use crate::webhooks::Webhooks;

/// The engine, and what only HTTP needs beside it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    /// The engine, to which this dereferences.
    pub(crate) engine: Engine,
    /// What only HTTP needs.
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

/// What only HTTP needs.
pub(crate) struct State {
    /// Signs the heads of all chains.
    pub(crate) checkpoints: Checkpoints,
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

impl Deref for Service {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Service {
    /// The state of the routes over `engine`.
    pub(crate) fn new(
        engine: Engine,
        checkpoints: Checkpoints,
        http_limits: HttpLimits,
        access: OpenAccess,
        disk: DiskProbe,
        webhooks: Webhooks,
        node: Option<Arc<Membership>>,
    ) -> Self {
        let bytes = http_limits.max_answer_memory_bytes;
        let state = State {
            checkpoints,
            http_limits,
            access,
            disk: Arc::new(disk),
            answer_memory: AnswerMemory::new(bytes),
            open_answer_memory: AnswerMemory::open(bytes / 4),
            webhooks,
            cancellations: Cancellations::default(),
            node,
        };
        Self { engine, state: Arc::new(state) }
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
        self.check_not_archived(Some(run)).await?;
        let proof = self.checkpoints().prove_inclusion(run, seq).await;
        if proof.as_ref().is_err_and(|error| error.is(Code::NotFound)) {
            // An unknown run has its own code.
            self.known_run(run).await?;
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
        maintains(self.state.node.as_deref(), self.ledger.as_ref(), role, run).await
    }
}
