//! Comparing the folder of a run with the ledger before it is opened: whether its tree belongs to the history that the ledger has, and
//! whether the journal has everything that it lacks.
//!
//! The folder notes which records its tree has ([`TreeNote`]). A record of a chain is identified by its hash, which depends on every record
//! before it, so that two histories with the record that the note names are the same up to there.

use async_recursion::async_recursion as boxed;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;

use ledger::{Epoch, JournalEntry, Ledger, SettledRun};
use model::{Record, Run, RunId};
use workspace::{ChainPoint, FolderState, TreeNote, Workspaces};

use super::recorded_base::recorded_base;
use crate::CallError;
use crate::engine::Engine;
use crate::history::content_history;
use crate::run::changes::Changes;

/// What the folder of a run is to the history in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderHistory {
    /// There is no folder here.
    Missing,
    /// Its tree has every change that the journal does not have.
    Current,
    /// Its tree is older than the journal reaches back, or another node may have changed the run since.
    Outdated,
    /// Its tree has changes that the ledger does not have: this is the last record that its note names.
    Diverged(ChainPoint),
}

impl Engine {
    /// Compares the folder of `run` with `settled`. If several nodes share the ledger, this one owns the run under `epoch`, and the
    /// ledger knows from now on that it may change a folder that is current.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(super) async fn folder_history(
        &self,
        run: &RunId,
        epoch: Option<Epoch>,
        settled: &SettledRun,
    ) -> Result<FolderHistory, CallError> {
        let found =
            compare_folder(self.ledger.as_ref(), &self.workspaces, &settled.stored.run, &settled.journal).await?;
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        match found {
            FolderHistory::Current => {}
            // Not one that was ever opened: another import under the same ID has left it.
            FolderHistory::Diverged(_) if self.blocking(move || Ok(workspaces.is_unfinished(&id)?)).await? => {
                return Ok(FolderHistory::Outdated);
            }
            FolderHistory::Diverged(_) | FolderHistory::Missing | FolderHistory::Outdated => return Ok(found),
        }
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        let Some(epoch) = epoch else {
            let noted = self.blocking(move || Ok(workspaces.noted_epoch(&id)?)).await?;
            return Ok(match noted {
                // Nodes have used the database before, and another one may have been the last.
                Some(noted) if !self.ledger.current_epochs(run).await?.contains(&noted) => FolderHistory::Outdated,
                Some(_) | None => found,
            });
        };
        let epochs = self.ledger.current_epochs(run).await?;
        if *epochs.end() != epoch.number() {
            return Err(CallError::Moved(run.clone()));
        }
        let is_opened = epochs.start() == epochs.end();
        let state = self.blocking(move || Ok(workspaces.own_folder(&id, &epochs)?)).await?;
        match state {
            FolderState::Current => {}
            // The process that imported it has ended before it could confirm it. An import under the same ID may have another base.
            FolderState::Unfinished if self.has_recorded_base(&settled.stored.run).await? => {
                let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
                self.blocking(move || Ok(workspaces.confirm_owned(&id, epoch.number())?)).await?;
            }
            FolderState::Unfinished | FolderState::Outdated => return Ok(FolderHistory::Outdated),
            FolderState::Missing => return Ok(FolderHistory::Missing),
        }
        if !is_opened {
            // After the note in the folder, and before anything in it changes.
            self.ledger.open_files(run, epoch).await?;
        }
        Ok(found)
    }

    /// Whether the folder of `run` has the base that the run started from.
    async fn has_recorded_base(&self, run: &Run) -> Result<bool, CallError> {
        let Some(recorded) = recorded_base(self.ledger.as_ref(), run).await? else { return Ok(false) };
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.run_id.clone());
        self.blocking(move || match workspaces.base_of(&id) {
            Ok(found) => Ok(found == recorded),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        })
        .await
    }
}

/// Compares the folder of a run with its history in the ledger, regardless of which node may have changed it.
///
/// # Errors
///
/// If the ledger or the disk fails.
#[boxed]
pub async fn compare_folder(
    ledger: &dyn Ledger,
    workspaces: &Arc<Workspaces>,
    run: &Run,
    journal: &[JournalEntry],
) -> Result<FolderHistory, CallError> {
    let (all, id) = (Arc::clone(workspaces), run.run_id.clone());
    let read = tokio::task::spawn_blocking(move || all.tree_note(&id)).await;
    let TreeNote { synced, begun } = match read.map_err(|error| CallError::Internal(Box::new(error)))? {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(FolderHistory::Missing);
        }
        noted => noted?,
    };
    for point in [begun, synced] {
        if !is_in_chain(ledger, run, point).await? {
            return Ok(FolderHistory::Diverged(begun));
        }
    }
    let is_current = synced.seq == run.head_seq || reaches_back(ledger, &run.run_id, synced.seq, journal).await?;
    Ok(if is_current { FolderHistory::Current } else { FolderHistory::Outdated })
}

/// Whether the run's chain has this record.
async fn is_in_chain(ledger: &dyn Ledger, run: &Run, point: ChainPoint) -> Result<bool, CallError> {
    if point.seq >= run.head_seq || point.seq == 0 {
        return Ok(point.seq == 0 || (point.seq, point.hash) == (run.head_seq, run.head_hash));
    }
    Ok(hash_of(ledger, run, point.seq).await? == Some(point))
}

/// Whether the journal has every change after the record `seq`.
async fn reaches_back(ledger: &dyn Ledger, run: &RunId, seq: u64, journal: &[JournalEntry]) -> Result<bool, CallError> {
    let pending: HashSet<u64> = journal.iter().map(|entry| entry.seq).collect();
    let mut changes = Changes::after(ledger, run, seq);
    while let Some(record) = changes.next::<Record>().await? {
        // A dry run has written nothing.
        if !record.paths_written.is_empty() && !pending.contains(&record.seq) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn hash_of(ledger: &dyn Ledger, run: &Run, seq: u64) -> Result<Option<ChainPoint>, CallError> {
    let stored = ledger.record(&run.run_id, seq).await?;
    let record = stored.map(|stored| content_history::parse(&stored.text)).transpose()?;
    Ok(record.and_then(|record| record.hash).map(|hash| ChainPoint { seq, hash }))
}
