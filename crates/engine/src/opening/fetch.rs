//! Opening a run whose files are not on this machine, or are not those of the ledger's history: they are made from its base, in the object
//! store or in the folder that is replaced, and from the ledger.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use content::{ObjectError, Objects};
use ledger::Epoch;
use model::{Code, LogicalPath, Refusal, RunId, RunState, Sha256};
use shared_pool::Parties;
use tokio::sync::watch;
use tracing::Instrument as _;
use workspace::{
    Base, ChainPoint, LargeContent, MadeRun, RecordedBase, RestoredRun, RunRestorer, Snapshot, StoredContents,
    WorkspaceError, Workspaces,
};

use super::damaged;
use super::folder_history::FolderHistory;
use super::recorded_base::recorded_base;
use crate::CallError;
use crate::admission::pools::permit;
use crate::call_error::refusals::run_not_found;
use crate::engine::Engine;
use crate::history::snapshot::{self, LedgerContents};
use crate::metrics;
use crate::opening::base_objects::{BaseIndex, base_id, read_index, read_part};
use crate::run::lifecycle;
use crate::run::open_runs::fetches::Fetched;

/// How many of ten parts of the request timeout a call waits for the files, so that it still gets an answer of its own.
const WAIT_TENTHS: u32 = 9;

impl Engine {
    /// Whether the files of `run` are not on this machine at all, and have to be fetched before it can be opened.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn is_elsewhere(&self, run: &RunId) -> Result<bool, CallError> {
        if self.objects.is_none() {
            return Ok(false);
        }
        let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || Ok(!workspaces.has_folder(&run)?)).await
    }

    /// Fetches the files of `run`, once for all callers. Goes on if the caller does not wait any more.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is, or if it takes longer than a request may; `RUN_NEEDS_REPAIR` if an object is missing or altered.
    pub(super) async fn fetch_files(self: &Arc<Self>, run: &RunId, epoch: Option<Epoch>) -> Result<(), CallError> {
        let mut outcome = self.fetch_in_background(run, epoch);
        let limit = self.limits.request_timeout / 10 * WAIT_TENTHS;
        let ended = match tokio::time::timeout(limit, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            // The task has panicked, or the service ends.
            Ok(Err(_)) => None,
            Err(_) => return Err(still_fetching().into()),
        };
        match ended {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(match &*error {
                CallError::Refused(refusal) => CallError::Refused(refusal.clone()),
                CallError::Moved(run) => CallError::Moved(run.clone()),
                CallError::Internal(_) => CallError::Internal(Box::new(error)),
            }),
            None => Err(CallError::Internal("fetching the files of a run was interrupted".into())),
        }
    }

    fn fetch_in_background(self: &Arc<Self>, run: &RunId, epoch: Option<Epoch>) -> watch::Receiver<Option<Fetched>> {
        let (outcome, begun) = self.fetches.begin(run);
        if let Some(fetch) = begun {
            let (engine, run) = (Arc::clone(self), run.clone());
            let work = async move { fetch.end(engine.restore_files(&run, epoch).await.map_err(Arc::new)) };
            // It counts for the caller that has begun it.
            self.tasks.spawn(Parties::current().scope(work.in_current_span()));
        }
        outcome
    }

    /// Makes the folder of a run from its base and the newest version of each file that it has changed. What is in the folder here and
    /// not in the ledger is set aside.
    async fn restore_files(&self, run: &RunId, epoch: Option<Epoch>) -> Result<(), CallError> {
        let started = Instant::now();
        let permit = permit(&self.pools.import).await;
        // Waits until uncertain commits are decided: the tree must have every recorded change.
        let settled = self.ledger.settled_run(run).await?.ok_or_else(run_not_found)?;
        let found = self.folder_history(run, epoch, &settled).await?;
        if found == FolderHistory::Current {
            // Made by an earlier call, which did not wait for the end.
            return Ok(());
        }
        if found == FolderHistory::Missing && self.objects.is_none() {
            return Err(damaged(run, "its folder or a part of it", &io::Error::from(ErrorKind::NotFound)));
        }
        let stored = &settled.stored.run;
        let head = ChainPoint { seq: stored.head_seq, hash: stored.head_hash };
        let recorded = recorded_base(self.ledger.as_ref(), stored).await?;
        let unknown = || damaged(run, "the record of its base", &std::io::Error::from(ErrorKind::NotFound));
        let recorded = recorded.ok_or_else(unknown)?;
        let workspaces = Arc::clone(&self.workspaces);
        let restorer = self.blocking(move || Ok(workspaces.restorer(epoch.map(Epoch::number))?)).await?;
        let restorer = self.add_base(run, &recorded, restorer).await?;
        let restorer = self.add_artifacts(run, restorer).await?;
        let fetched_millis = started.elapsed().as_millis();
        let base = restorer.base()?;
        let snapshot = snapshot::load(&self.ledger, run, &base, head.seq).await?;
        let contents = LedgerContents::of(Arc::clone(&self.ledger), run.clone()).with_objects(self.objects.clone());
        let contents = FolderContents::new(contents, Arc::clone(&self.workspaces), run.clone(), &snapshot);
        let id = run.clone();
        let made = self.blocking(move || match restorer.make(&id, &snapshot, &contents, head) {
            Err(WorkspaceError::Io(error)) => Err(not_restored(&id, error)),
            made => Ok(made?),
        });
        let made = made.await?;
        let restored = match found {
            FolderHistory::Diverged(reached) => self.set_aside(run, epoch, head, reached, made).await?,
            FolderHistory::Missing | FolderHistory::Outdated | FolderHistory::Current => {
                let id = run.clone();
                self.blocking(move || Ok(made.place(&id)?)).await?
            }
        };
        drop(permit);
        // It may have been deleted meanwhile.
        let stored = self.ledger.run(run).await?.ok_or_else(run_not_found)?;
        if stored.run.state == RunState::Deleted {
            let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
            self.blocking(move || Ok(workspaces.remove(&run)?)).await?;
        }
        let millis = started.elapsed().as_millis();
        tracing::info!(
            run.id = %run, files = restored.files, bytes = restored.bytes, fetched_millis, millis, "the files of a run were fetched"
        );
        Ok(())
    }

    /// Replaces a folder whose tree has changes that the ledger does not have, and moves it to `lost+found/`. The record of that comes
    /// first: the numbers of the lost records, up to that of `reached`, are given out again from here on.
    async fn set_aside(
        &self,
        run: &RunId,
        epoch: Option<Epoch>,
        head: ChainPoint,
        reached: ChainPoint,
        made: MadeRun,
    ) -> Result<RestoredRun, CallError> {
        let mut entry = lifecycle::set_aside(run, head, reached);
        entry.epoch = epoch;
        self.record(vec![entry]).await?;
        let id = run.clone();
        let (restored, folder) = self.blocking(move || Ok(made.place_and_set_aside(&id)?)).await?;
        metrics::folder_lost();
        tracing::error!(
            run.id = %run, folder, reached.seq, reached.hash = %reached.hash, head.seq = head.seq,
            "the database has lost records of a run: its folder was moved to lost+found, and its files are as the database has them"
        );
        Ok(restored)
    }

    /// Adds the artifacts that were kept last to `restorer`.
    async fn add_artifacts(&self, run: &RunId, mut restorer: RunRestorer) -> Result<RunRestorer, CallError> {
        let Some(mut content) = self.kept_artifacts_of(run).await? else { return Ok(restorer) };
        let id = run.clone();
        self.blocking(move || {
            restorer.add_artifacts(&mut content).map_err(|error| not_restored(&id, error))?;
            Ok(restorer)
        })
        .await
    }

    /// Returns the base of `run`, which another node may own.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE`; `RUN_NEEDS_REPAIR` if the base is missing or altered.
    pub(crate) async fn fetched_base(&self, run: &RunId, recorded: &RecordedBase) -> Result<Arc<Base>, CallError> {
        let workspaces = Arc::clone(&self.workspaces);
        let restorer = self.blocking(move || Ok(workspaces.restorer(None)?)).await?;
        Ok(self.add_base(run, recorded, restorer).await?.base()?)
    }

    /// Adds the base of `run` to `restorer`: the one on this machine, or else that of the object store.
    pub(super) async fn add_base(
        &self,
        run: &RunId,
        recorded: &RecordedBase,
        restorer: RunRestorer,
    ) -> Result<RunRestorer, CallError> {
        let (restorer, is_here) = self.use_base(run, recorded, restorer).await?;
        if is_here {
            return Ok(restorer);
        }
        let base = base_id(recorded)?;
        let Some(objects) = &self.objects else { return Err(unfetched(run, ObjectError::Missing(base.prefix()))) };
        let index = read_index(objects, &base).await.map_err(|error| unfetched(run, error))?;
        tracing::info!(run.id = %run, base = %base, "fetching the base of a run");
        self.fetch_base(objects, run, recorded, index).await?;
        match self.use_base(run, recorded, restorer).await? {
            (restorer, true) => Ok(restorer),
            (_, false) => Err(not_restored(run, ErrorKind::NotFound.into())),
        }
    }

    /// Makes the run of `restorer` start from the base of `run`, if that is on this machine.
    async fn use_base(
        &self,
        run: &RunId,
        recorded: &RecordedBase,
        mut restorer: RunRestorer,
    ) -> Result<(RunRestorer, bool), CallError> {
        let (id, recorded) = (run.clone(), recorded.clone());
        self.blocking(move || {
            let is_here = restorer.use_base(&id, &recorded).map_err(|error| not_restored(&id, error))?;
            Ok((restorer, is_here))
        })
        .await
    }

    /// Fetches the parts of a base, each verified, and makes the base of them.
    async fn fetch_base(
        &self,
        objects: &Objects,
        run: &RunId,
        recorded: &RecordedBase,
        index: BaseIndex,
    ) -> Result<(), CallError> {
        let workspaces = Arc::clone(&self.workspaces);
        let mut maker = self.blocking(move || Ok(workspaces.base_maker()?)).await?;
        for indexed in index.parts {
            if !maker.needs(&indexed.name) {
                continue;
            }
            let mut object = read_part(objects, &indexed).await.map_err(|error| unfetched(run, error))?;
            metrics::base_part_fetched();
            let id = run.clone();
            let add = move || {
                maker.add_part(&indexed.name, &mut object).map_err(|error| not_restored(&id, error))?;
                Ok(maker)
            };
            maker = self.blocking(add).await?;
        }
        let (id, recorded) = (run.clone(), recorded.clone());
        self.blocking(move || maker.finish(Some(&recorded)).map(drop).map_err(|error| not_restored(&id, error))).await
    }
}

/// The contents that the ledger and the object store have, and those of large files that only the folder of the run has, under the same
/// path. Whoever writes them compares the hash.
pub(super) struct FolderContents {
    ledger: LedgerContents,
    workspaces: Arc<Workspaces>,
    run: RunId,
    paths: HashMap<Sha256, LogicalPath>,
}

impl FolderContents {
    pub(super) fn new(ledger: LedgerContents, workspaces: Arc<Workspaces>, run: RunId, snapshot: &Snapshot) -> Self {
        let paths = snapshot.changed().map(|(path, file)| (file.sha256, path.clone())).collect();
        Self { ledger, workspaces, run, paths }
    }
}

impl StoredContents for FolderContents {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.ledger.content(seq, sha256)
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let stored = StoredContents::large(&self.ledger, sha256)?;
        let Some(path) = self.paths.get(sha256).filter(|_| stored.is_none()) else { return Ok(stored) };
        match self.workspaces.open_file(&self.run, &Workspaces::path_in_tree(path.as_str())) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            file => {
                let file = file?;
                Ok(Some((file.metadata()?.len(), Box::new(file))))
            }
        }
    }
}

/// Returns the error of an object that could not be fetched. One that is missing or altered concerns this run alone.
pub(super) fn unfetched(run: &RunId, error: ObjectError) -> CallError {
    match error {
        ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_) => {
            damaged(run, "its base in the object store", &error)
        }
        error
        @ (ObjectError::Store(_) | ObjectError::Io(_) | ObjectError::BeingDeleted(_) | ObjectError::Claims(_)) => {
            error.into()
        }
    }
}

/// Returns the error of files that could not be made.
pub(super) fn not_restored(run: &RunId, error: std::io::Error) -> CallError {
    if error.kind() == ErrorKind::Interrupted {
        return still_fetching().into();
    }
    let is_altered = |error: &ObjectError| {
        matches!(error, ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_))
    };
    let of_object = error.get_ref().and_then(|inner| inner.downcast_ref::<ObjectError>());
    let is_damaged = match of_object {
        Some(object) => is_altered(object),
        None => matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound | ErrorKind::UnexpectedEof),
    };
    if is_damaged { damaged(run, "a part of its files in the object store", &error) } else { error.into() }
}

pub(super) fn still_fetching() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the run's files are being fetched from the object store; nothing was changed",
        "Retry the same call in a moment: fetching goes on meanwhile.",
    )
}
