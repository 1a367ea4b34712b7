//! Runs that are open in this process: each once, shared by its calls, loaded when it is called.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use ledger::{LedgerError, SettledRun, StoredRun};
use lru::LruCache;
use model::{Code, LogicalPath, MAX_PATH_BYTES, Mount, Refusal, Rules, RunId, RunState, Step};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use workspace::{MAX_CHANGED_PATHS, MAX_CHANGED_PATHS_BYTES, Tree, Workspace};

use crate::engine::{Engine, latest, run_not_found};
use crate::runs::in_flight_calls::InFlightCalls;
use crate::runs::path_locks::PathLocks;
use crate::runs::quota::{RunDisk, Waiting};
use crate::transaction::history;
use crate::{CallError, metrics};

/// A run that this process has opened. One a run, shared by its calls; dropped when others are wanted more.
pub struct OpenRun {
    /// Its ID.
    pub run_id: RunId,
    /// The policy in force.
    pub rules: Arc<Rules>,
    /// Its tree.
    pub workspace: Arc<Workspace>,
    /// Its read-only trees.
    pub mounts: Vec<(Mount, Arc<Tree>)>,
    /// A [`RunState`], kept up to date by whoever changes the ledger's.
    pub state: AtomicU8,
    /// When it closes by itself.
    pub expires_at: Option<String>,
    /// Whether its tree was changed from outside while a change was pending.
    pub needs_repair: AtomicBool,
    /// Which files differ from the base, as far as that is known.
    pub changed: Changed,
    /// What its mutations under way hold.
    pub lane: PathLocks,
    /// What its tree holds, and what is about to be there.
    pub disk: Arc<RunDisk>,
    /// How many of its calls wait for a person.
    pub waiting: Waiting,
    /// Which IDs of the caller's are under way.
    pub claims: InFlightCalls,
    /// Cancelled when the last call that holds the run has ended.
    ended: CancellationToken,
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl OpenRun {
    /// Where the run stands.
    pub fn state(&self) -> RunState {
        const STATES: [RunState; 5] =
            [RunState::Preparing, RunState::Open, RunState::AwaitingApproval, RunState::Closed, RunState::Deleted];
        let told = self.state.load(Ordering::Acquire);
        let state = STATES.into_iter().find(|state| *state as u8 == told).unwrap_or(RunState::Deleted);
        if has_expired(state, self.expires_at.as_deref()) { RunState::Closed } else { state }
    }

    /// Takes over what the ledger was told.
    pub fn set_state(&self, state: RunState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// A call of the run waits for a person now; the ledger has noted it with the call's record.
    pub fn awaits_approval(&self) {
        let (open, awaiting) = (RunState::Open as u8, RunState::AwaitingApproval as u8);
        // A run that was closed meanwhile stays closed.
        let _ = self.state.compare_exchange(open, awaiting, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The read-only tree called `name`.
    pub fn mount(&self, name: &str) -> Option<Arc<Tree>> {
        self.mounts.iter().find(|(mount, _)| mount.name == name).map(|(_, tree)| Arc::clone(tree))
    }
}

/// Which files of a run differ from its base, as far as calls and looks at the whole tree have told.
#[derive(Debug, Default)]
pub struct Changed(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// `None` until somebody has looked at the whole tree.
    paths: Option<BTreeSet<LogicalPath>>,
    /// How often something was added or forgotten.
    turns: u64,
}

/// A moment before a look at the tree.
#[derive(Clone, Copy, Debug)]
pub struct Turn(u64);

impl Changed {
    /// The paths, if they are known.
    pub fn get(&self) -> Option<BTreeSet<LogicalPath>> {
        self.lock().paths.clone()
    }

    /// Before a look at the tree beside which mutations go on.
    pub fn turn(&self) -> Turn {
        Turn(self.lock().turns)
    }

    /// Takes over what a look at the tree has found that began at `turn`, unless something was changed since.
    pub fn set_since(&self, turn: Turn, changed: Option<BTreeSet<LogicalPath>>) {
        let mut known = self.lock();
        if known.turns == turn.0 {
            known.paths = changed;
        }
    }

    /// Takes over what a look at the tree has found, beside which nothing was changed.
    pub fn set(&self, changed: Option<BTreeSet<LogicalPath>>) {
        self.lock().paths = changed;
    }

    /// Forgets what was found: the whole tree is looked at again.
    pub fn forget(&self) {
        let mut known = self.lock();
        known.paths = None;
        known.turns += 1;
    }

    /// Adds what a mutation has touched.
    pub fn add(&self, touched: &[LogicalPath]) {
        let mut known = self.lock();
        known.turns += 1;
        if let Some(paths) = &mut known.paths {
            paths.extend(touched.iter().cloned());
        }
        known.paths = known.paths.take().filter(are_few);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether so many paths are kept: else the whole tree is looked at again.
fn are_few(paths: &BTreeSet<LogicalPath>) -> bool {
    // Every mutation asks, and of few paths no lengths matter.
    let bytes = || paths.iter().map(|path| path.as_str().len()).sum::<usize>();
    paths.len() <= MAX_CHANGED_PATHS
        && (paths.len() * MAX_PATH_BYTES <= MAX_CHANGED_PATHS_BYTES || bytes() <= MAX_CHANGED_PATHS_BYTES)
}

impl fmt::Debug for OpenRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenRun({}, {})", self.run_id, self.state().as_str())
    }
}

/// Whether a run in `state` should be closed by now.
pub fn has_expired(state: RunState, expires_at: Option<&str>) -> bool {
    match state {
        RunState::Closed | RunState::Deleted => false,
        RunState::Preparing | RunState::Open | RunState::AwaitingApproval => {
            expires_at.is_some_and(|expires_at| expires_at <= latest().as_str())
        }
    }
}

type Place = Arc<OnceCell<Arc<OpenRun>>>;

/// The open runs, most recently used first. Holds as many as its size, and more while more are in use.
pub struct OpenRuns {
    size: usize,
    places: Mutex<LruCache<RunId, Place>>,
}

impl OpenRuns {
    /// An empty table.
    pub fn new(size: usize) -> Self {
        Self { size, places: Mutex::new(LruCache::unbounded()) }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<RunId, Place>> {
        // Nothing panics while it holds the lock.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many runs are open.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Runs that are open here and may have changes that are recorded and not in the tree.
    pub fn unsettled(&self) -> Vec<Arc<OpenRun>> {
        let places = self.lock();
        let open = places.iter().filter_map(|(_, place)| place.get());
        open.filter(|live| live.lane.is_unsettled()).cloned().collect()
    }

    /// The rules of every open run.
    fn rules(&self) -> Vec<Arc<Rules>> {
        let places = self.lock();
        places.iter().filter_map(|(_, place)| place.get()).map(|live| Arc::clone(&live.rules)).collect()
    }

    /// The run, if it is open here.
    pub fn get(&self, run: &RunId) -> Option<Arc<OpenRun>> {
        self.lock().get(run).and_then(|place| place.get().cloned())
    }

    /// The run's place, filled or to be filled by whoever comes first.
    fn place(&self, run: &RunId) -> Place {
        let mut places = self.lock();
        if let Some(place) = places.get(run) {
            return Arc::clone(place);
        }
        let place = Place::default();
        places.put(run.clone(), Arc::clone(&place));
        self.shrink(&mut places);
        place
    }

    /// Closes the runs that were not used for longest. One that is in use stays, whatever the size: two copies of a run
    /// would not know of each other's mutations.
    fn shrink(&self, places: &mut LruCache<RunId, Place>) {
        for _ in 0..places.len().min(64) {
            if places.len() <= self.size {
                return;
            }
            let Some((run, place)) = places.pop_lru() else { return };
            // Copies are made from this table, under its lock, or from another copy: a count of one cannot grow here.
            let idle = Arc::strong_count(&place) == 1 && place.get().is_none_or(|live| Arc::strong_count(live) == 1);
            if !idle {
                places.put(run, place);
            }
        }
    }

    /// Takes the run out of the table.
    fn remove(&self, run: &RunId) {
        self.lock().pop(run);
    }

    /// Takes out a place that could not be filled, unless someone else still waits for it.
    fn forget(&self, run: &RunId, place: &Place) {
        let mut places = self.lock();
        if place.get().is_none() && Arc::strong_count(place) <= 2 {
            places.pop(run);
        }
    }
}

impl Engine {
    /// Opens a run, or shares it where it is open.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` where its files are not there yet or not any more; `RUN_NEEDS_REPAIR` where they, or what
    /// is needed to serve them, are missing or damaged.
    pub async fn live(&self, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
        let place = self.runs.place(run);
        let opened = place.get_or_try_init(|| self.open_live(run)).await.cloned();
        if opened.is_err() {
            self.runs.forget(run, &place);
        }
        opened
    }

    /// Takes over from the ledger where the run stands, after something that may have changed it.
    pub async fn refresh_state(&self, live: &OpenRun) -> Result<(), CallError> {
        if let Some(stored) = self.ledger.run(&live.run_id).await? {
            live.set_state(stored.run.state);
            live.waiting.set_pending(stored.run.counts.pending_approvals);
        }
        Ok(())
    }

    async fn open_live(&self, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
        // What an earlier process, or an earlier opening in this one, has left in doubt is decided first.
        let settled = self.ledger.settled_run(run).await.map_err(|error| unreadable(run, error))?;
        let Some(SettledRun { stored, journal: open }) = settled else {
            return Err(
                if self.imports.get(run).is_some() { no_files(RunState::Preparing) } else { run_not_found() }.into()
            );
        };
        let state = stored.run.state;
        if matches!(state, RunState::Preparing | RunState::Deleted) || stored.run.base_commit.is_none() {
            return Err(no_files(state).into());
        }
        let pending = open.into_iter().flat_map(|open| open.steps).collect::<Vec<_>>();
        let written = Vec::from_iter(history::written(self, run).await?);
        let engine = self.clone();
        self.blocking(move || {
            let live = OpenRun::open(&engine, stored, &pending)?;
            live.workspace.add_written(&written);
            Ok(Arc::new(live))
        })
        .await
    }

    /// Takes a run that was deleted out of use: calls that hold it go on, others are refused. Returns when the last of
    /// them has ended, or `patience` has.
    pub async fn retire(&self, live: Arc<OpenRun>, patience: Duration) {
        live.set_state(RunState::Deleted);
        self.runs.remove(&live.run_id);
        let (run, ended) = (live.run_id.clone(), live.ended.clone());
        drop(live);
        if tokio::time::timeout(patience, ended.cancelled()).await.is_err() {
            tracing::warn!(run.id = %run, "a call still holds the run; its files go all the same");
        }
    }
}

impl OpenRun {
    fn open(engine: &Engine, stored: StoredRun, pending: &[Step]) -> Result<Self, CallError> {
        let StoredRun { run, usage, mount_paths, needs_repair } = stored;
        let disk = RunDisk::new(&engine.node, &run.policy.quota, run.disk);
        let waiting = Waiting::new(&run.policy.quota, run.counts.pending_approvals);
        // Most runs have one of a few policies.
        let rules = Rules::compile_among(run.policy, &engine.runs.rules());
        let rules = rules.map_err(|refusal| broken(&run.run_id, "its policy", &refusal))?;
        let workspace = engine.workspaces.get(&run.run_id).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                broken(&run.run_id, "its folder or a part of it", &error)
            }
            _ => error.into(),
        })?;
        let rules = rules.with_source_folders(workspace.base().clone());
        // What calls that were killed had staged. Nobody has the run open, and no commit of it is in doubt.
        workspace.clear_tmp(pending)?;
        let mut mounts = Vec::with_capacity(run.mounts.len());
        for mount in run.mounts {
            let path = mount_paths.iter().find(|(name, _)| *name == mount.name).map(|(_, path)| Path::new(path));
            let path = path.ok_or_else(|| io::Error::other("a mount has no path"))?;
            // A mount that has gone away is no reason to refuse the run's other calls: naming it is refused then.
            match Tree::open_mount(path) {
                Ok(tree) => mounts.push((mount, Arc::new(tree))),
                Err(error) => {
                    tracing::warn!(run.id = %run.run_id, mount.name = mount.name, %error, "a mount cannot be opened");
                }
            }
        }
        Ok(Self {
            run_id: run.run_id,
            rules: Arc::new(rules),
            workspace,
            mounts,
            state: AtomicU8::new(run.state as u8),
            expires_at: run.expires_at,
            needs_repair: AtomicBool::new(needs_repair),
            lane: PathLocks::new(usage, !pending.is_empty()),
            disk,
            waiting,
            changed: Changed::default(),
            claims: InFlightCalls::default(),
            ended: CancellationToken::new(),
        })
    }
}

/// A run of which `what` is missing or damaged. It alone is not served until an operator has repaired it.
fn broken(run: &RunId, what: &str, cause: &(dyn Error + 'static)) -> CallError {
    tracing::error!(run.id = %run, error = cause, "the run needs repair: {what} is missing or damaged");
    metrics::run_broken();
    Refusal::new(
        Code::RunNeedsRepair,
        format!("the run cannot be opened: {what} is missing or damaged"),
        "Ask the operator to repair the run; its audit can still be read.",
    )
    .into()
}

/// A run that the store answers for, but not with what this program can read.
pub fn unreadable(run: &RunId, error: LedgerError) -> CallError {
    match error {
        LedgerError::Internal(_) => broken(run, "what the database holds of it", &error),
        error => error.into(),
    }
}

/// A run without files, where it stands.
fn no_files(state: RunState) -> Refusal {
    let (message, hint) = match state {
        RunState::Preparing => ("the run is still preparing", "Try again when the run's state is `open`."),
        RunState::Open | RunState::AwaitingApproval | RunState::Closed => {
            ("the run was closed before it had files", "Ask the orchestrator for a new run.")
        }
        RunState::Deleted => ("the run is deleted", "Its audit is still there."),
    };
    Refusal::new(Code::RunClosed, message, hint)
}
