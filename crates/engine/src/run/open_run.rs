//! A run that is open in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ledger::Epoch;
use model::{Code, Mount, Refusal, Rules, RunId, RunState, ToolCallId};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use workspace::{Tree, TreeNoteFile, Workspace};

use crate::clock::now;
use crate::run::accounting::Accounting;
use crate::run::decisions::Decisions;
use crate::run::keyed::KeyedLocks;
use crate::run::known_versions::KnownVersions;
use crate::run::path_locks::PathLocks;
use crate::run::quota::RunHistory;
use crate::run::quota::{PendingApprovals, RunDisk};
use crate::run::seen_versions::SeenVersions;
use crate::run::tree_states::TreeStates;

/// A run that this process has opened. Its calls share one value.
pub struct OpenRun {
    /// The ID of the run.
    pub run_id: RunId,
    /// The epoch under which this node owns the run; `None` for a service that is the only one.
    pub epoch: Option<Epoch>,
    /// The policy in force.
    pub rules: Arc<Rules>,
    /// The tree.
    pub workspace: Arc<Workspace>,
    /// The note in the run's folder of the records that the tree has.
    pub tree_note: Arc<TreeNoteFile>,
    /// The read-only trees.
    pub mounts: Vec<(Mount, Arc<Tree>)>,
    /// A [`RunState`], updated together with the ledger's.
    pub state: AtomicU8,
    /// When the run expires and closes.
    pub expires_at: Mutex<Option<String>>,
    /// Held while the expiry time is replaced in the ledger and here.
    pub updating: tokio::sync::Mutex<()>,
    /// Whether the tree was changed from outside while a change was pending.
    pub needs_repair: AtomicBool,
    /// The version of each file that the run's records, or else its base, have.
    pub known: KnownVersions,
    /// Locks of the mutations in progress.
    pub path_locks: Arc<PathLocks>,
    /// The mutations that are being committed or applied.
    pub tree_states: TreeStates,
    /// What mutations have used and written.
    pub accounting: Accounting,
    /// The disk space that the tree takes.
    pub disk: Arc<RunDisk>,
    /// What its calls have added to the database and to the object store.
    pub history: RunHistory,
    /// The calls that wait for approval.
    pub pending_approvals: PendingApprovals,
    /// What people have decided about calls that waited.
    pub decisions: Decisions,
    /// The calls in progress under IDs that clients chose.
    pub in_flight: KeyedLocks<ToolCallId>,
    /// The versions of files that callers have seen.
    pub seen_versions: SeenVersions,
    /// Cancelled when the last call that uses the run has ended.
    pub ended: CancellationToken,
}

impl OpenRun {
    /// Returns the state of the run. An expired run is closed even if the ledger does not have that state yet.
    pub fn state(&self) -> RunState {
        const STATES: [RunState; 5] =
            [RunState::Preparing, RunState::Open, RunState::AwaitingApproval, RunState::Closed, RunState::Deleted];
        let stored = self.state.load(Ordering::Acquire);
        let state = STATES.into_iter().find(|state| *state as u8 == stored).unwrap_or(RunState::Deleted);
        if has_expired(state, self.expires_at.lock().as_deref()) { RunState::Closed } else { state }
    }

    /// Stores the state that the ledger has.
    pub fn set_state(&self, state: RunState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Stores the expiry time that the ledger has.
    pub fn set_expiry(&self, expires_at: Option<String>) {
        *self.expires_at.lock() = expires_at;
    }

    /// Sets the state of a run in which a call waits for approval. The ledger has recorded that call.
    pub fn set_awaiting_approval(&self) {
        let (open, awaiting) = (RunState::Open as u8, RunState::AwaitingApproval as u8);
        // A run that was closed meanwhile stays closed.
        let _ = self.state.compare_exchange(open, awaiting, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the read-only tree called `name`.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`, with the names that there are.
    pub fn mount(&self, name: &str) -> Result<Arc<Tree>, Refusal> {
        let found = self.mounts.iter().find(|(mount, _)| mount.name == name);
        found.map(|(_, tree)| Arc::clone(tree)).ok_or_else(|| self.unknown_mount(name))
    }

    fn unknown_mount(&self, name: &str) -> Refusal {
        let known: Vec<_> = self.mounts.iter().map(|(mount, _)| mount.name.as_str()).collect();
        let hint = if known.is_empty() {
            "This run has no mounts.".to_owned()
        } else {
            format!("The mounts are: {}.", known.join(", "))
        };
        Refusal::new(Code::NotFound, format!("the mount `{name}` does not exist"), hint)
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl fmt::Debug for OpenRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenRun({}, {})", self.run_id, self.state().as_str())
    }
}

/// Whether a run in `state` is past its expiry time and not closed.
pub(crate) fn has_expired(state: RunState, expires_at: Option<&str>) -> bool {
    match state {
        RunState::Closed | RunState::Deleted => false,
        RunState::Preparing | RunState::Open | RunState::AwaitingApproval => {
            expires_at.is_some_and(|expires_at| expires_at <= now().as_str())
        }
    }
}
