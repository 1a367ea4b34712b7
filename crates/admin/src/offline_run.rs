//! One run's data, opened without a service: the commands lock the data folder for themselves.

use std::io;
use std::path::Path;
use std::sync::Arc;

use content::Objects;
use engine::audit::snapshot;
use engine::audit::snapshot::LedgerContents;
use engine::runs::FolderHistory;
use ledger::{JournalEntry, Ledger, LedgerError, StoredRun};
use model::{Run, RunId, RunState};
use rustix::fs::{Access, Mode};
use workspace::{Base, ChainPoint, Snapshot, Workspace, WorkspaceError, Workspaces};

use crate::output::print;
use config::StartError;
use config::{ConfigError, DatabaseUrl};
use data_dir::{Continuity, DataDirLock};

/// The base and the workspace of a run. Each can be missing or damaged.
pub(super) type OfflineFolder = (io::Result<Arc<Base>>, io::Result<Arc<Workspace>>);

/// One run's data.
pub(super) struct OfflineRun {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) stored: StoredRun,
    /// The base, or why it cannot be opened.
    pub(super) base: io::Result<Arc<Base>>,
    /// The workspace, or why it cannot be opened.
    pub(super) workspace: io::Result<Arc<Workspace>>,
    /// Whether the newest files are not in this data folder, but on another node, or in the object store alone.
    pub(super) is_elsewhere: bool,
    /// The folders of all runs.
    pub(super) workspaces: Arc<Workspaces>,
    /// The store of large contents.
    pub(super) objects: Option<Objects>,
    lock: DataDirLock,
}

impl OfflineRun {
    /// Opens the data of `run`.
    ///
    /// # Errors
    ///
    /// If a service uses it, the database cannot be read, or the run does not exist or has no files.
    pub(super) async fn open(data_dir: &Path, database_url: &DatabaseUrl, run: &RunId) -> Result<Self, StartError> {
        check_database(database_url)?;
        // New files are for this user alone, as those of the service are.
        rustix::process::umask(Mode::from_raw_mode(0o077));
        let lock = DataDirLock::take(data_dir)?;
        let ledger = ledger::open(&database_url.url).await.map_err(database)?;
        let opened = async {
            if lock.check(ledger.as_ref()).await? == Continuity::OlderDatabase {
                print("the database is older than the data folder: it lacks newer runs and records");
            }
            open_run(ledger.as_ref(), data_dir, run).await
        };
        match opened.await {
            Ok((stored, is_elsewhere, workspaces, (base, workspace))) => {
                Ok(Self { ledger, stored, base, workspace, is_elsewhere, workspaces, objects: None, lock })
            }
            Err(error) => {
                ledger.close().await;
                Err(error)
            }
        }
    }

    /// Takes over the database, so that no service elsewhere that has it open commits to it any more.
    ///
    /// # Errors
    ///
    /// If it is older than the data folder, or cannot be written to.
    pub(super) async fn take_over(&self) -> Result<(), StartError> {
        if self.lock.check(self.ledger.as_ref()).await? == Continuity::OlderDatabase {
            let message =
                "--database-url: it is older than the data folder and lacks newer data: put its newest state back";
            return Err(ConfigError(message.to_owned()).into());
        }
        self.lock.take_over(self.ledger.as_ref()).await.map(drop)
    }

    /// Returns the run's ID.
    pub(super) fn id(&self) -> &RunId {
        &self.stored.run.run_id
    }

    /// Returns the files after the newest record, according to the ledger. From then on, the workspace does not show what the run has
    /// removed from the base.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(super) async fn expected(&self) -> Result<Snapshot, StartError> {
        let base = self.base.as_ref().map_err(|error| StartError::failed("the run's base", error))?;
        let loaded = snapshot::load_recorded(&self.ledger, self.id(), base, u64::MAX).await;
        let expected = loaded.map_err(|error| StartError::failed("the run's history", &error))?;
        if let Ok(workspace) = &self.workspace {
            let hidden = workspace.hide_removed(expected.removed());
            hidden.map_err(|error| StartError::failed("the workspace", &error))?;
        }
        Ok(expected)
    }

    /// Returns the file contents that the ledger and the object store have of the run.
    pub(super) fn contents(&self) -> LedgerContents {
        LedgerContents::of(Arc::clone(&self.ledger), self.id().clone()).with_objects(self.objects.clone())
    }

    /// Notes in the run's folder that its tree has every change up to the record `point`, and no other.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) async fn note_tree(&self, point: ChainPoint) -> Result<(), StartError> {
        let (workspaces, id) = (Arc::clone(&self.workspaces), self.id().clone());
        let noted = tokio::task::spawn_blocking(move || workspaces.set_tree_note(&id, point)).await;
        noted.map_err(io::Error::other).flatten().map_err(|error| StartError::failed("the run's folder", &error))
    }

    /// Runs `work` on the workspace on a blocking thread. `what` names it in an error.
    ///
    /// # Errors
    ///
    /// If the workspace cannot be opened or `work` fails.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Workspace) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, StartError> {
        let workspace = self.workspace.as_ref().map_err(|error| StartError::failed("the workspace", error))?;
        let workspace = Arc::clone(workspace);
        let done = tokio::task::spawn_blocking(move || work(&workspace)).await;
        let done = done.map_err(|error| StartError::failed(what, &error))?;
        done.map_err(|error| StartError::failed(what, &error))
    }
}

/// Returns what is wrong with the folder of `run`, if its tree does not belong to the history in the ledger. A service that opens the
/// run makes its files again, if it can.
///
/// # Errors
///
/// If the ledger or the disk fails.
pub(super) async fn other_history(
    ledger: &dyn Ledger,
    workspaces: &Arc<Workspaces>,
    run: &Run,
    journal: &[JournalEntry],
) -> Result<Option<String>, StartError> {
    let found = engine::runs::compare_folder(ledger, workspaces, run, journal).await;
    Ok(match found.map_err(|error| StartError::failed("the run's history", &error))? {
        FolderHistory::Missing | FolderHistory::Current => None,
        FolderHistory::Outdated => {
            Some("its folder is an older copy, from before changes that the database has".to_owned())
        }
        FolderHistory::Diverged(ChainPoint::UNKNOWN) => {
            Some("its folder does not say which of the database's changes it has".to_owned())
        }
        FolderHistory::Diverged(reached) => {
            Some(format!("its folder has changes up to record {} of a history that the database has lost", reached.seq))
        }
    })
}

/// Refuses an SQLite database that does not exist, since opening it would create an empty one.
///
/// # Errors
///
/// The invalid setting.
pub(super) fn check_database(database_url: &DatabaseUrl) -> Result<(), ConfigError> {
    match database_url.sqlite_file() {
        Some(file) if rustix::fs::access(file, Access::READ_OK).is_err() => {
            Err(ConfigError(format!("--database-url: there is no database to read at {file}")))
        }
        _ => Ok(()),
    }
}

async fn open_run(
    ledger: &dyn Ledger,
    data_dir: &Path,
    run: &RunId,
) -> Result<(StoredRun, bool, Arc<Workspaces>, OfflineFolder), StartError> {
    let Some(stored) = ledger.run(run).await.map_err(database)? else {
        return Err(ConfigError(format!("--run {run}: there is no such run")).into());
    };
    if !has_files(&stored.run) {
        return Err(ConfigError(format!("--run {run}: it is {} and has no files", stored.run.state.as_str())).into());
    }
    let workspaces = open_workspaces(data_dir).await?;
    let is_elsewhere = is_elsewhere(ledger, &workspaces, &stored.run).await?;
    let folder = open_folder(&workspaces, run).await?;
    Ok((stored, is_elsewhere, workspaces, folder))
}

/// Whether the newest files of `run` are not in this data folder, but on another node, or in the object store alone. Nothing is wrong with
/// the run then.
///
/// # Errors
///
/// If the ledger or the disk fails.
pub(super) async fn is_elsewhere(
    ledger: &dyn Ledger,
    workspaces: &Arc<Workspaces>,
    run: &Run,
) -> Result<bool, StartError> {
    let (workspaces, id) = (Arc::clone(workspaces), run.run_id.clone());
    let read = move || Ok((workspaces.has_folder(&id)?, workspaces.noted_epoch(&id)?));
    let (is_here, noted) = tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error: io::Error| StartError::data_dir(&error))?;
    let Some(noted) = noted else {
        let is_stored = engine::runs::is_base_referenced(ledger, run).await;
        return Ok(!is_here && is_stored.map_err(|error| StartError::failed("the database", &error))?);
    };
    Ok(!ledger.current_epochs(&run.run_id).await.map_err(database)?.contains(&noted))
}

/// Returns whether the run has a folder.
pub(super) fn has_files(run: &Run) -> bool {
    !matches!(run.state, RunState::Preparing | RunState::Deleted) && run.base_commit.is_some()
}

/// Opens the folders of all runs.
///
/// # Errors
///
/// If the data folder cannot be used.
pub(super) async fn open_workspaces(data_dir: &Path) -> Result<Arc<Workspaces>, StartError> {
    let data_dir = data_dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || Workspaces::open(&data_dir, &[])).await;
    let opened = opened.map_err(io::Error::other).flatten();
    opened.map(Arc::new).map_err(|error| StartError::data_dir(&error))
}

/// Opens a run's base and workspace.
///
/// # Errors
///
/// If the blocking thread panics.
pub(super) async fn open_folder(workspaces: &Arc<Workspaces>, run: &RunId) -> Result<OfflineFolder, StartError> {
    let (workspaces, run) = (Arc::clone(workspaces), run.clone());
    let opened = tokio::task::spawn_blocking(move || (workspaces.base(&run), workspaces.get(&run))).await;
    opened.map_err(|error| StartError::failed("the workspace", &error))
}

/// Returns the error of a database that cannot be used.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it so")]
pub(super) fn database(error: LedgerError) -> StartError {
    StartError::failed("the database", &error)
}
