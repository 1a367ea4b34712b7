//! Opening runs, and removing deleted ones from the open runs.

pub(crate) mod base_objects;
pub(crate) mod fetch;
mod folder_history;
mod fork;
pub(crate) mod kept_artifacts;
pub(crate) mod object_claims;
mod recorded_base;
mod unneeded_folders;

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use ledger::{Epoch, LedgerError, SettledRun, StoredRun};
use model::{Code, Refusal, Rules, RunId, RunState, Source, Step};
use tokio_util::sync::CancellationToken;
use workspace::Tree;

pub use base_objects::{contents_of_bases, is_base_referenced};
pub use folder_history::{FolderHistory, compare_folder};
pub use recorded_base::recorded_base;

use self::fetch::still_fetching;
use crate::call_error::refusals::{run_not_found, run_without_files};
use crate::engine::Engine;
use crate::run::accounting::Accounting;
use crate::run::decisions::Decisions;
use crate::run::keyed::KeyedLocks;
use crate::run::known_versions::KnownVersions;
use crate::run::open_run::OpenRun;
use crate::run::quota::RunHistory;
use crate::run::quota::{PendingApprovals, RunDisk};
use crate::run::seen_versions::SeenVersions;
use crate::run::tree_states::TreeStates;
use crate::{CallError, metrics};

impl Engine {
    /// Returns an open run. Opens it if it is not open, which runs to completion even if the client disconnects: a second attempt
    /// beside the first one would delete what other calls have staged since.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run has no files, or no longer; `RUN_NEEDS_REPAIR` if its files or its data are
    /// missing or damaged; [`Moved`](CallError::Moved) if another node owns the run and is alive.
    pub(crate) async fn open(self: &Arc<Self>, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
        let cell = self.runs.cell(run);
        if let Some(open) = cell.get() {
            return Ok(Arc::clone(open));
        }
        let opening = cell.lock_opening().await;
        if let Some(open) = cell.get() {
            return Ok(Arc::clone(open));
        }
        let (engine, run) = (Arc::clone(self), run.clone());
        let work = async move {
            let opened = engine.load_run(&run).await;
            match &opened {
                Ok(open) => cell.fill(Arc::clone(open)),
                Err(_) => engine.runs.remove_unfilled(&run, &cell),
            }
            drop(opening);
            opened
        };
        self.detached(work).await
    }

    /// Reads the run's state and number of pending approvals from the ledger.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn refresh_state(&self, open_run: &OpenRun) -> Result<(), CallError> {
        if let Some(stored) = self.ledger.run(&open_run.run_id).await? {
            open_run.set_state(stored.run.state);
            open_run.pending_approvals.set(stored.run.counts.pending_approvals);
        }
        Ok(())
    }

    async fn load_run(self: &Arc<Self>, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
        let epoch = self.take_run(run).await.map_err(|error| unreadable(run, error))?;
        // Waits until uncertain commits of an earlier process, or from before the run was last evicted, are decided.
        let settled = self.ledger.settled_run(run).await.map_err(|error| unreadable(run, error))?;
        let Some(mut settled) = settled else {
            let is_importing = self.imports.get(run).is_some();
            return Err(if is_importing { run_without_files(RunState::Preparing) } else { run_not_found() }.into());
        };
        let state = settled.stored.run.state;
        if matches!(state, RunState::Preparing | RunState::Deleted) || settled.stored.run.base_commit.is_none() {
            return Err(run_without_files(state).into());
        }
        let mut found = self.folder_history(run, epoch, &settled).await?;
        if found != FolderHistory::Current {
            if let Err(error) = Box::pin(self.fetch_files(run, epoch)).await {
                if let Some(epoch) = epoch.filter(|_| error.is(Code::RunNeedsRepair)) {
                    self.give_back_without_files(run, epoch).await;
                }
                return Err(error);
            }
            // The run may have been closed or deleted meanwhile.
            let again = self.ledger.settled_run(run).await.map_err(|error| unreadable(run, error))?;
            settled = again.ok_or_else(run_not_found)?;
            if settled.stored.run.state == RunState::Deleted {
                return Err(run_without_files(RunState::Deleted).into());
            }
            found = self.folder_history(run, epoch, &settled).await?;
        }
        // What has ended may have begun before this node lost the run and got it back.
        if found != FolderHistory::Current {
            return Err(still_fetching().into());
        }
        let SettledRun { stored, journal } = settled;
        let pending = journal.into_iter().flat_map(|open| open.steps).collect::<Vec<_>>();
        let known = KnownVersions::load(self.ledger.as_ref(), run).await?;
        let decisions = Box::pin(Decisions::load(self.ledger.as_ref(), run)).await?;
        let engine = Arc::clone(self);
        self.blocking(move || {
            failpoint::hit("open.loading");
            let open_run = load(&engine, stored, epoch, &pending, (known, decisions))?;
            Ok(Arc::new(open_run))
        })
        .await
    }

    /// Removes a deleted run from the open runs. Calls that hold it continue, others are refused. Returns when the last of
    /// them has ended, or after `timeout`.
    pub(crate) async fn retire(&self, open_run: Arc<OpenRun>, timeout: Duration) {
        open_run.set_state(RunState::Deleted);
        self.runs.remove(&open_run.run_id);
        let (run, ended) = (open_run.run_id.clone(), open_run.ended.clone());
        drop(open_run);
        if tokio::time::timeout(timeout, ended.cancelled()).await.is_err() {
            tracing::warn!(run.id = %run, "a call still uses the deleted run; its files are removed nevertheless");
        }
    }
}

/// Opens the folder of a run.
fn load(
    engine: &Engine,
    stored: StoredRun,
    epoch: Option<Epoch>,
    pending: &[Step],
    (known, decisions): (KnownVersions, Decisions),
) -> Result<OpenRun, CallError> {
    let StoredRun { run, usage, mount_paths, needs_repair } = stored;
    let disk = RunDisk::new(&engine.node, &run.policy.quota, run.disk.tree());
    let history = RunHistory::new(&run);
    let pending_approvals = PendingApprovals::new(&run.policy.quota, run.counts.pending_approvals);
    // Only git says which folders of build output are source.
    let is_from_git = matches!(run.first_source(), Source::Git { .. });
    // Most runs have one of a few policies.
    let rules = Rules::compile_among(run.policy, &engine.runs.rules());
    let rules = rules.map_err(|refusal| damaged(&run.run_id, "its policy", &refusal))?;
    let workspace = engine.workspaces.get(&run.run_id).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            damaged(&run.run_id, "its folder or a part of it", &error)
        }
        _ => error.into(),
    })?;
    let tree_note = engine.workspaces.open_tree_note(&run.run_id)?;
    let rules = if is_from_git { rules.with_base_folders(workspace.base().clone()) } else { rules };
    // Removes what killed calls had staged. No call has the run open, and no commit of it is uncertain.
    workspace.clear_tmp(pending)?;
    workspace.add_written(&known.paths());
    workspace.hide_removed(&known.removed())?;
    // Where a pending change finds no file, the run had removed that of the base before.
    let mut changed = HashSet::new();
    let created = pending.iter().filter(|step| changed.insert(&step.path) && step.before.is_none());
    workspace.hide_removed(created.map(|step| &step.path))?;
    let mut mounts = Vec::with_capacity(run.mounts.len());
    for mount in run.mounts {
        let path = mount_paths.iter().find(|(name, _)| *name == mount.name).map(|(_, path)| Path::new(path));
        let path = path.ok_or_else(|| io::Error::other("a mount has no path"))?;
        // A missing mount does not prevent other calls of the run. Only calls that name the mount are refused.
        match Tree::open_mount(path) {
            Ok(tree) => mounts.push((mount, Arc::new(tree))),
            Err(error) => {
                tracing::warn!(run.id = %run.run_id, mount.name = mount.name, %error, "a mount cannot be opened");
            }
        }
    }
    Ok(OpenRun {
        run_id: run.run_id,
        epoch,
        rules: Arc::new(rules),
        workspace,
        tree_note,
        mounts,
        state: AtomicU8::new(run.state as u8),
        expires_at: run.expires_at.into(),
        updating: tokio::sync::Mutex::default(),
        needs_repair: AtomicBool::new(needs_repair),
        path_locks: Arc::default(),
        tree_states: TreeStates::default(),
        accounting: Accounting::new(usage, !pending.is_empty()),
        disk,
        history,
        pending_approvals,
        known,
        decisions,
        in_flight: KeyedLocks::default(),
        seen_versions: SeenVersions::default(),
        ended: CancellationToken::new(),
    })
}

/// Returns the refusal of a run of which `what` is missing or damaged. Only this run is refused until an operator repairs it.
fn damaged(run: &RunId, what: &str, cause: &(dyn Error + 'static)) -> CallError {
    tracing::error!(run.id = %run, error = cause, "the run needs repair: {what} is missing or damaged");
    metrics::run_damaged();
    Refusal::new(
        Code::RunNeedsRepair,
        format!("the run cannot be opened: {what} is missing or damaged"),
        "Ask the operator to repair the run; its audit can still be read.",
    )
    .into()
}

/// Returns the error of a run that could not be read from the ledger. Damaged data is a refusal of this run.
pub(crate) fn unreadable(run: &RunId, error: LedgerError) -> CallError {
    match error {
        LedgerError::Internal(_) => damaged(run, "its data in the database", &error),
        error => error.into(),
    }
}
