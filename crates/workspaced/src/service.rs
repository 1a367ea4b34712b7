//! The service: what every call works with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ledger::Ledger;
use model::{
    ApprovalId, ArtifactId, Code, IdInvalid, Mount, Permission, Profiles, Refusal, Rules, RunId, RunState, ToolCallId,
};
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
    /// Work that outlives its request: mutations, which finish even when the caller has gone.
    pub(crate) tasks: tokio_util::task::TaskTracker,
    /// Syncs changed files behind the answers.
    pub(crate) syncer: crate::syncer::Syncer,
}

impl Service {
    /// The run `run`, opened.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` where it is still preparing or deleted, so that there is no tree to open.
    pub(crate) async fn live(&self, _run: &RunId) -> Result<Arc<LiveRun>, CallError> {
        unimplemented!()
    }

    /// Takes over from the ledger where the run stands, after something that may have changed it.
    pub(crate) async fn refresh_state(&self, live: &LiveRun) -> Result<(), CallError> {
        if let Some(stored) = self.0.ledger.run(&live.run_id).await? {
            live.state.store(stored.run.state as u8, Ordering::Release);
        }
        Ok(())
    }
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

impl LiveRun {
    /// The read-only tree called `name`.
    pub(crate) fn mount(&self, name: &str) -> Option<Arc<Tree>> {
        self.mounts.iter().find(|(mount, _)| mount.name == name).map(|(_, tree)| Arc::clone(tree))
    }

    /// A call of the run waits for a person now; the ledger has noted it with the call's record.
    pub(crate) fn awaits_approval(&self) {
        let (open, awaiting) = (RunState::Open as u8, RunState::AwaitingApproval as u8);
        // A run that was closed meanwhile stays closed.
        let _ = self.state.compare_exchange(open, awaiting, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Now, as records write it: RFC 3339 UTC with microseconds.
pub(crate) fn now() -> String {
    now_plus(0)
}

/// `seconds` from now, as records write it.
pub(crate) fn now_plus(seconds: i64) -> String {
    let now = jiff::Timestamp::now();
    let then = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
    then.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A new tool call ID, for a call that came without one.
pub(crate) fn new_tool_call_id() -> ToolCallId {
    made(ToolCallId::parse, "tc_")
}

/// A new artifact ID.
pub(crate) fn new_artifact_id() -> ArtifactId {
    made(ArtifactId::parse, "art_")
}

/// A new approval ID.
pub(crate) fn new_approval_id() -> ApprovalId {
    made(ApprovalId::parse, "apr_")
}

/// `prefix` and a `UUIDv7`, which sorts by time.
fn made<T>(parse: fn(&str) -> Result<T, IdInvalid>, prefix: &str) -> T {
    loop {
        // Every such text keeps to the grammar; the loop only spares a panic that cannot happen.
        if let Ok(id) = parse(&format!("{prefix}{}", uuid::Uuid::now_v7().simple())) {
            return id;
        }
    }
}

/// There is no such run. Only operators hear it: a run token on another run is forbidden, whether or not it exists.
pub(crate) fn run_not_found() -> Refusal {
    Refusal::new(Code::RunNotFound, "there is no such run", "List the runs with GET /v1/runs.")
}
