//! Opening runs, and taking deleted ones out of use.

use std::error::Error;
use std::io;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use ledger::{LedgerError, SettledRun, StoredRun};
use model::{Code, Refusal, Rules, RunId, RunState, Step};
use tokio_util::sync::CancellationToken;
use workspace::Tree;

use crate::call_error::refusals::run_not_found;
use crate::engine::Engine;
use crate::history::touched_paths::touched_paths;
use crate::runs::accounting::Accounting;
use crate::runs::changed_paths::ChangedPaths;
use crate::runs::in_flight_calls::InFlightCalls;
use crate::runs::open_run::OpenRun;
use crate::runs::quota::{PendingApprovals, RunDisk};
use crate::{CallError, metrics};

impl Engine {
    /// Opens a run, or shares it where it is open.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` where its files are not there yet or not any more; `RUN_NEEDS_REPAIR` where they, or what
    /// is needed to serve them, are missing or damaged.
    pub async fn open(&self, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
        let cell = self.runs.cell(run);
        let opened = cell.get_or_try_init(|| self.load_run(run)).await.cloned();
        if opened.is_err() {
            self.runs.remove_unfilled(run, &cell);
        }
        opened
    }

    /// Takes over from the ledger where the run stands, after something that may have changed it.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn refresh_state(&self, open_run: &OpenRun) -> Result<(), CallError> {
        if let Some(stored) = self.ledger.run(&open_run.run_id).await? {
            open_run.set_state(stored.run.state);
            open_run.pending_approvals.set(stored.run.counts.pending_approvals);
        }
        Ok(())
    }

    async fn load_run(&self, run: &RunId) -> Result<Arc<OpenRun>, CallError> {
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
        let written = Vec::from_iter(touched_paths(self.ledger.as_ref(), run).await?);
        let engine = self.clone();
        self.blocking(move || {
            let open_run = load(&engine, stored, &pending)?;
            open_run.workspace.add_written(&written);
            Ok(Arc::new(open_run))
        })
        .await
    }

    /// Takes a run that was deleted out of use: calls that hold it go on, others are refused. Returns when the last of
    /// them has ended, or `patience` has.
    pub async fn retire(&self, open_run: Arc<OpenRun>, patience: Duration) {
        open_run.set_state(RunState::Deleted);
        self.runs.remove(&open_run.run_id);
        let (run, ended) = (open_run.run_id.clone(), open_run.ended.clone());
        drop(open_run);
        if tokio::time::timeout(patience, ended.cancelled()).await.is_err() {
            tracing::warn!(run.id = %run, "a call still holds the run; its files go all the same");
        }
    }
}

fn load(engine: &Engine, stored: StoredRun, pending: &[Step]) -> Result<OpenRun, CallError> {
    let StoredRun { run, usage, mount_paths, needs_repair } = stored;
    let disk = RunDisk::new(&engine.node, &run.policy.quota, run.disk);
    let pending_approvals = PendingApprovals::new(&run.policy.quota, run.counts.pending_approvals);
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
    Ok(OpenRun {
        run_id: run.run_id,
        rules: Arc::new(rules),
        workspace,
        mounts,
        state: AtomicU8::new(run.state as u8),
        expires_at: run.expires_at,
        needs_repair: AtomicBool::new(needs_repair),
        path_locks: Arc::default(),
        accounting: Accounting::new(usage, !pending.is_empty()),
        disk,
        pending_approvals,
        changed: ChangedPaths::default(),
        in_flight: InFlightCalls::default(),
        ended: CancellationToken::new(),
    })
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
pub(crate) fn unreadable(run: &RunId, error: LedgerError) -> CallError {
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
