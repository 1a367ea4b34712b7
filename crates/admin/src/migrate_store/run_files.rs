//! Putting the files of one run into the object store.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use content::{ObjectError, ObjectName, Objects};
use engine::CallError;
use engine::audit::snapshot;
use engine::runs::store_existing_base;
use ledger::{Ledger, LedgerError, StoredRun};
use model::{LogicalPath, RunId, Sha256};
use workspace::{ContentLocation, Drift, RecordedBase, Snapshot, WorkspaceError, Workspaces};

use crate::offline_run::database;
use config::StartError;

/// The files of a run in the object store.
pub(super) struct RunFiles {
    /// What the run started from. `None` if its folder is not here, and its base was in the object store before.
    pub(super) base: Option<RecordedBase>,
    /// What the run refers to.
    pub(super) objects: Vec<String>,
}

/// Why the files of a run could not be put.
pub(super) enum RunProblem {
    /// It concerns this run.
    OfRun(String),
    /// The migration cannot go on.
    OfAll(StartError),
}

impl From<io::Error> for RunProblem {
    fn from(error: io::Error) -> Self {
        Self::OfRun(format!("its files cannot be read: {error}"))
    }
}

impl From<WorkspaceError> for RunProblem {
    fn from(error: WorkspaceError) -> Self {
        Self::OfRun(format!("its files cannot be read: {error}"))
    }
}

impl From<CallError> for RunProblem {
    fn from(error: CallError) -> Self {
        Self::OfAll(StartError::failed("the files of a run", &error))
    }
}

impl From<LedgerError> for RunProblem {
    fn from(error: LedgerError) -> Self {
        Self::OfAll(database(error))
    }
}

impl From<ObjectError> for RunProblem {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(_) | ObjectError::Io(_) | ObjectError::BeingDeleted(_) | ObjectError::Claims(_) => {
                Self::OfAll(StartError::failed("--object-store-url", &error))
            }
            ObjectError::Differs(_) | ObjectError::Missing(_) | ObjectError::TooLarge(_) => {
                Self::OfRun(error.to_string())
            }
        }
    }
}

/// Puts the base of a run, and its newest contents that the ledger does not have.
pub(super) async fn put(
    ledger: &Arc<dyn Ledger>,
    workspaces: &Arc<Workspaces>,
    objects: &Objects,
    stored: &StoredRun,
) -> Result<RunFiles, RunProblem> {
    let run = &stored.run.run_id;
    if stored.needs_repair {
        return Err(RunProblem::OfRun("it needs repair: repair it, and migrate again".to_owned()));
    }
    if !workspaces.has_folder(run)? {
        // A store may have everything of it; whether it does is verified with all other objects.
        if engine::runs::is_base_referenced(ledger.as_ref(), &stored.run).await? {
            return Ok(RunFiles { base: None, objects: Vec::new() });
        }
        return Err(RunProblem::OfRun("its folder is missing".to_owned()));
    }
    let base = workspaces.base(run)?;
    if stored.run.base_commit.as_deref() != Some(base.commit()) {
        return Err(RunProblem::OfRun("its base is not the one that it was recorded to start from".to_owned()));
    }
    let loaded = snapshot::load(ledger, run, &base, u64::MAX).await;
    let expected = loaded.map_err(|error| match error {
        CallError::Internal(cause) => RunProblem::OfRun(format!("its history cannot be read: {cause}")),
        error => error.into(),
    })?;
    let (recorded, parts) = {
        let (workspaces, run, expected) = (Arc::clone(workspaces), run.clone(), expected.clone());
        blocking(move || {
            let workspace = workspaces.get(&run)?;
            workspace.hide_removed(expected.removed())?;
            let drift = workspace.find_drift(&expected)?;
            if let Some(Drift { path, .. }) = drift.first() {
                let count = drift.len();
                let message = format!("{count} of its files, such as {path}, differ from the ledger: repair it");
                return Err(RunProblem::OfRun(message));
            }
            Ok((workspaces.base_of(&run)?, workspaces.base_parts(&run)?))
        })
        .await?
    };
    let mut references = vec![store_existing_base(objects, &recorded, parts).await?];
    let stored: HashSet<_> = ledger.stored_contents(run).await?.into_iter().collect();
    for (path, seq, sha256) in recorded_files(&expected) {
        if !stored.contains(&(seq, sha256)) {
            put_large(workspaces, objects, run, path, sha256).await?;
            references.push(ObjectName::Content(sha256).to_string());
        }
    }
    references.sort_unstable();
    references.dedup();
    Ok(RunFiles { base: Some(recorded), objects: references })
}

/// Returns the files that records wrote, with the record and the hash of each.
fn recorded_files(snapshot: &Snapshot) -> impl Iterator<Item = (&LogicalPath, u64, Sha256)> {
    snapshot.changed().filter_map(|(path, file)| match file.location {
        ContentLocation::Ledger { seq, .. } => Some((path, seq, file.sha256)),
        ContentLocation::Base { .. } => None,
    })
}

/// Puts a content from the tree.
async fn put_large(
    workspaces: &Arc<Workspaces>,
    objects: &Objects,
    run: &RunId,
    path: &LogicalPath,
    sha256: Sha256,
) -> Result<(), RunProblem> {
    let file = workspaces.open_file(run, &Workspaces::path_in_tree(path.as_str()))?;
    let size_bytes = file.metadata()?.len();
    objects.put_content(sha256, size_bytes, Box::new(file)).await?;
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunProblem> + Send + 'static,
) -> Result<T, RunProblem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| RunProblem::OfAll(StartError::failed("the files of a run", &error)))?
}
