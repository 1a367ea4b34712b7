//! The service: what every call works with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ledger::Ledger;
use model::{Code, Mount, Permission, Profiles, Refusal, Rules, RunId, RunState};
use workspace::{Tree, Workspace, Workspaces};

use crate::CallError;

/// The service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Inner>);

/// What the service holds.
pub(crate) struct Inner {
    /// What is remembered.
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Every run's files.
    pub(crate) workspaces: Workspaces,
    /// The profiles that runs may name.
    pub(crate) profiles: Profiles,
}

/// Who calls, and for which run.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// As the audit names it: `run-token:{tokenId}` or `operator:{name}`.
    pub(crate) actor: String,
    /// What the caller may do in the run.
    pub(crate) permissions: BTreeSet<Permission>,
}

/// A run that this process has opened. One a run, shared by its calls; dropped when it has been idle.
pub(crate) struct LiveRun {
    /// Its ID.
    pub(crate) run_id: RunId,
    /// The policy in force.
    pub(crate) rules: Arc<Rules>,
    /// Its tree.
    pub(crate) workspace: Arc<Workspace>,
    /// Its read-only trees.
    pub(crate) mounts: Vec<(Mount, Arc<Tree>)>,
    /// A [`RunState`], kept up to date by whoever changes the ledger's.
    pub(crate) state: AtomicU8,
    /// Whether its tree was changed from outside while a change was pending.
    pub(crate) needs_repair: AtomicBool,
    /// What its mutations under way hold.
    pub(crate) lane: crate::lane::Lane,
    /// Which IDs of the caller's are under way.
    pub(crate) claims: crate::claims::Claims,
}

impl LiveRun {
    /// Where the run stands.
    pub(crate) fn state(&self) -> RunState {
        const STATES: [RunState; 5] =
            [RunState::Preparing, RunState::Open, RunState::AwaitingApproval, RunState::Closed, RunState::Deleted];
        STATES.into_iter().find(|state| *state as u8 == self.state.load(Ordering::Acquire)).unwrap_or(RunState::Deleted)
    }
}

/// There is no such run. Only operators hear it: a run token on another run is forbidden, whether or not it exists.
pub(crate) fn run_not_found() -> Refusal {
    Refusal::new(Code::RunNotFound, "there is no such run", "List the runs with GET /v1/runs.")
}
