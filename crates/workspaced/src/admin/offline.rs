//! A run's data without the service: for the operator's commands, which take the data folder for themselves.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ledger::{Ledger, LedgerError, StoredRun};
use model::{Run, RunId, RunState};
use rustix::fs::{Access, Mode};
use workspace::{Base, Snapshot, Workspace, Workspaces};

use crate::admin::output::print;
use crate::bootstrap::error::StartError;
use crate::config::{ConfigError, DatabaseUrl};
use crate::data_dir::{Continuity, DataDirLock};
use crate::past::{self, LedgerContents};

/// What a run started from and its files, each as far as it is still there.
pub(crate) type Opened = (io::Result<Arc<Base>>, io::Result<Arc<Workspace>>);

/// One run's data.
pub(crate) struct Offline {
    /// What is remembered.
    pub(crate) ledger: Arc<dyn Ledger>,
    /// The run.
    pub(crate) stored: StoredRun,
    /// What it started from, or what of that is gone.
    pub(crate) base: io::Result<Arc<Base>>,
    /// Its files, or what of them is gone.
    pub(crate) workspace: io::Result<Arc<Workspace>>,
    lock: DataDirLock,
}

impl Offline {
    /// Opens what is kept of `run`.
    ///
    /// # Errors
    ///
    /// Where a service has it open, the database cannot be read, or the run is not there or has no files.
    pub(crate) async fn open(data_dir: &Path, database_url: &DatabaseUrl, run: &RunId) -> Result<Self, StartError> {
        check_database(database_url)?;
        // Whatever is made is for this user alone, as where the service makes it.
        rustix::process::umask(Mode::from_raw_mode(0o077));
        let lock = DataDirLock::take(data_dir)?;
        let ledger = ledger::open(&database_url.0).await.map_err(|error| StartError::failed("the database", &error))?;
        let opened = async {
            if lock.check(ledger.as_ref()).await? == Continuity::OlderDatabase {
                print("the database is older than the data folder: what is newer is missing from it");
            }
            open_run(ledger.as_ref(), data_dir, run).await
        };
        match opened.await {
            Ok((stored, (base, workspace))) => Ok(Self { ledger, stored, base, workspace, lock }),
            Err(error) => {
                ledger.close().await;
                Err(error)
            }
        }
    }

    /// Takes the database over, so that no service that has it open elsewhere commits to it any more.
    ///
    /// # Errors
    ///
    /// Where it is older than the data folder, or cannot be written to.
    pub(crate) async fn take_over(&self) -> Result<(), StartError> {
        if self.lock.check(self.ledger.as_ref()).await? == Continuity::OlderDatabase {
            let told =
                "it is older than the data folder, and knows nothing of what is newer there: put its newest state back";
            return Err(ConfigError(format!("--database-url: {told}")).into());
        }
        self.lock.take_over(self.ledger.as_ref()).await.map(drop)
    }

    /// The run's ID.
    pub(crate) fn run(&self) -> &RunId {
        &self.stored.run.run_id
    }

    /// The files as the ledger says, after the newest record.
    ///
    /// # Errors
    ///
    /// Where the ledger or the disk fails.
    pub(crate) async fn expected(&self) -> Result<Snapshot, StartError> {
        let base = self.base.as_ref().map_err(|error| StartError::failed("the run's base", error))?;
        let loaded = past::load(&self.ledger, self.run(), base, u64::MAX, true).await;
        loaded.map_err(|error| StartError::failed("the run's history", &error))
    }

    /// What the ledger keeps of the run's files.
    pub(crate) fn contents(&self) -> LedgerContents {
        LedgerContents::of(Arc::clone(&self.ledger), self.run().clone())
    }

    /// Runs `work` on the run's files where blocking is allowed.
    ///
    /// # Errors
    ///
    /// Where it fails, as `what`.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Workspace) -> Result<T, workspace::WorkspaceError> + Send + 'static,
    ) -> Result<T, StartError> {
        let workspace = self.workspace.as_ref().map_err(|error| StartError::failed("the workspace", error))?;
        let workspace = Arc::clone(workspace);
        let done = tokio::task::spawn_blocking(move || work(&workspace)).await;
        let done = done.map_err(|error| StartError::failed(what, &error))?;
        done.map_err(|fault| StartError::failed(what, &fault))
    }
}

/// Refused where there is no SQLite database: opening would make an empty one.
///
/// # Errors
///
/// The setting that names none.
pub(crate) fn check_database(database_url: &DatabaseUrl) -> Result<(), ConfigError> {
    match database_url.sqlite_file() {
        Some(file) if rustix::fs::access(file, Access::READ_OK).is_err() => {
            Err(ConfigError(format!("--database-url: there is no database to read at {file}")))
        }
        _ => Ok(()),
    }
}

async fn open_run(ledger: &dyn Ledger, data_dir: &Path, run: &RunId) -> Result<(StoredRun, Opened), StartError> {
    let database = |error: LedgerError| StartError::failed("the database", &error);
    let Some(stored) = ledger.run(run).await.map_err(database)? else {
        return Err(ConfigError(format!("--run {run}: there is no such run")).into());
    };
    if !has_files(&stored.run) {
        return Err(ConfigError(format!("--run {run}: it is {} and has no files", stored.run.state.as_str())).into());
    }
    let opened = open_files(&open_workspaces(data_dir).await?, run).await?;
    Ok((stored, opened))
}

/// Whether the run has a folder.
pub(crate) fn has_files(run: &Run) -> bool {
    !matches!(run.state, RunState::Preparing | RunState::Deleted) && run.base_commit.is_some()
}

/// The folders of all runs.
///
/// # Errors
///
/// Where the data folder cannot be used.
pub(crate) async fn open_workspaces(data_dir: &Path) -> Result<Arc<Workspaces>, StartError> {
    let data_dir = data_dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || Workspaces::open(&data_dir, &[])).await;
    let opened = opened.map_err(io::Error::other).flatten();
    opened.map(Arc::new).map_err(|error| StartError::data_dir(&error))
}

/// What is there of a run's folder.
///
/// # Errors
///
/// Never but where the process fails.
pub(crate) async fn open_files(workspaces: &Arc<Workspaces>, run: &RunId) -> Result<Opened, StartError> {
    let (workspaces, run) = (Arc::clone(workspaces), run.clone());
    let opened = tokio::task::spawn_blocking(move || (workspaces.base(&run), workspaces.get(&run))).await;
    opened.map_err(|error| StartError::failed("the workspace", &error))
}
