//! The start of the engine.

use std::sync::Arc;

use content::Objects;
use ledger::{Ledger, StorageTotals};
use model::Profiles;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::Workspaces;

use crate::admission::tokens::Tokens;
use crate::audit::Audit;
use crate::calls::Calls;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::operators::Operators;
use crate::runs::Runs;

/// What the engine works with.
pub struct Resources {
    /// Every limit.
    pub limits: Limits,
    /// The policy profiles that runs may name.
    pub profiles: Profiles,
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Every run's files.
    pub workspaces: Arc<Workspaces>,
    /// Bases and large contents outside of this machine, if they are stored there.
    pub objects: Option<Objects>,
    /// Tokens of operators and runs.
    pub tokens: Tokens,
    /// What all runs hold at the start.
    pub held: StorageTotals,
    /// Work that outlives its request: mutations and imports.
    pub tasks: TaskTracker,
    /// Cancelled when the process shuts down: streams end, new work is refused.
    pub shutdown: CancellationToken,
}

/// The services of one engine.
#[derive(Clone)]
pub struct Services {
    /// Runs, from their creation to their end.
    pub runs: Arc<Runs>,
    /// Calls of the tools, events, approvals.
    pub calls: Arc<Calls>,
    /// Operators and tokens.
    pub operators: Arc<Operators>,
    /// What the records say.
    pub audit: Arc<Audit>,
}

impl Services {
    /// Starts the engine, with its fsync worker.
    pub fn start(resources: Resources) -> Self {
        let Resources { limits, profiles, ledger, workspaces, objects, tokens, held, tasks, shutdown } = resources;
        let engine = Engine::new(limits, ledger, workspaces, objects, tokens, held, (tasks, shutdown));
        Self::of(&Arc::new(engine), profiles)
    }

    pub(crate) fn of(engine: &Arc<Engine>, profiles: Profiles) -> Self {
        Self {
            runs: Arc::new(Runs::new(Arc::clone(engine), profiles)),
            calls: Arc::new(Calls::new(Arc::clone(engine))),
            operators: Arc::new(Operators::new(Arc::clone(engine))),
            audit: Arc::new(Audit::new(Arc::clone(engine))),
        }
    }
}
