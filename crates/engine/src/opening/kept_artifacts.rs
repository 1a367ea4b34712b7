//! `artifacts/` of runs in the object store. Programs beside the service write there, so that no call tells of a change: a node looks at
//! the folders now and then, and before it gives its runs back.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use content::{Objects, ReservedObject};
use ledger::{EntryObject, LedgerError, ObjectHolder, RecordFilter};
use model::{RunId, RunState, Sha256};
use serde_json::Value;
use workspace::ArtifactBundle;

use crate::CallError;
use crate::engine::Engine;
use crate::engine::NotRecorded;
use crate::history::content_history;
use crate::run::artifact_stamps::Looked;
use crate::run::lifecycle;

/// The largest archive of a run's artifacts that is kept.
const MAX_BYTES: u64 = 1 << 30;

/// Which artifacts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those that have not changed since the last look: a file that grows is not stored again and again.
    Unchanging,
    /// All, because this node ends.
    All,
}

impl Engine {
    /// Puts the artifacts of this node's runs that were not kept yet into the object store, and records them. Does nothing in a service
    /// that is the only one: its folder is the only copy that anybody opens. An error of one run is logged.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn keep_artifacts(&self, keep: Keep) -> Result<(), CallError> {
        let (Some(node), Some(objects)) = (self.ledger.node(), &self.objects) else { return Ok(()) };
        let workspaces = Arc::clone(&self.workspaces);
        let stamps = move || {
            let mut stamps = HashMap::new();
            for folder in workspaces.folders()? {
                if let Some(stamp) = workspaces.artifacts_stamp(&folder.run)? {
                    stamps.insert(folder.run, stamp);
                }
            }
            Ok(stamps)
        };
        let stamps = self.blocking(stamps).await?;
        self.artifact_stamps.0.lock().retain(|run, _| stamps.contains_key(run));
        for (run, stamp) in stamps {
            let last = self.artifact_stamps.0.lock().insert(run.clone(), Looked { stamp, is_kept: false });
            let last = last.filter(|last| last.stamp == stamp);
            if last.is_some_and(|last| last.is_kept) {
                self.artifact_stamps.0.lock().insert(run, Looked { stamp, is_kept: true });
                continue;
            }
            if last.is_none() && keep == Keep::Unchanging {
                continue;
            }
            let owner = self.ledger.owner(&run).await?;
            let Some(stored) = self.ledger.run(&run).await?.filter(|stored| stored.run.state != RunState::Deleted)
            else {
                continue;
            };
            if stored.run.base_commit.is_none() || owner.is_none_or(|owner| owner.node != *node) {
                continue;
            }
            match self.keep_artifacts_of(&run, objects).await {
                Ok(()) => drop(self.artifact_stamps.0.lock().insert(run, Looked { stamp, is_kept: true })),
                Err(error) => {
                    tracing::warn!(run.id = %run, error = &error as &dyn std::error::Error, "artifacts could not be kept yet");
                }
            }
        }
        Ok(())
    }

    async fn keep_artifacts_of(&self, run: &RunId, objects: &Objects) -> Result<(), CallError> {
        let bundle = self.bundle_artifacts(run).await?;
        let ArtifactBundle { sha256, size_bytes, content } = bundle;
        if self.recorded_artifacts(run).await?.is_some_and(|(recorded, _)| recorded == sha256) {
            return Ok(());
        }
        let ReservedObject { reference, reservation } =
            objects.put_content(sha256, size_bytes, Box::new(content)).await?;
        let mut entry = lifecycle::artifacts_kept(run, sha256, size_bytes);
        entry.objects.push(EntryObject { name: reference, reservation, size_bytes, holder: ObjectHolder::Run });
        match self.record(vec![entry]).await {
            Ok(_) | Err(NotRecorded::Rejected(_)) => Ok(()),
            Err(NotRecorded::Failed(error)) => {
                if let LedgerError::RunMoved(_) = error {
                    // The node that has the run does not have these artifacts: the folder here stays for them.
                    tracing::warn!(run.id = %run, "the run has moved before its newest artifacts were kept");
                }
                Err(error.into())
            }
        }
    }

    async fn bundle_artifacts(&self, run: &RunId) -> Result<ArtifactBundle, CallError> {
        let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || Ok(workspaces.bundle_artifacts(&run, MAX_BYTES)?)).await
    }

    /// Whether the folder of `run` here has artifacts that none of its newest records names.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn has_unkept_artifacts(&self, run: &RunId) -> Result<bool, CallError> {
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        if self.blocking(move || Ok(workspaces.artifacts_stamp(&id)?)).await?.is_none() {
            return Ok(false);
        }
        let bundle = self.bundle_artifacts(run).await?;
        for stored in self.ledger.records(&records_of(run), None, 1000.into()).await?.iter() {
            if sha256_of(&content_history::parse(&stored.text)?.input.unwrap_or_default()) == Some(bundle.sha256) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the hash and the size of the artifacts that the newest record names; `None` if none were kept.
    async fn recorded_artifacts(&self, run: &RunId) -> Result<Option<(Sha256, u64)>, CallError> {
        let page = self.ledger.records(&records_of(run), None, 1.into()).await?;
        let Some(stored) = page.first() else { return Ok(None) };
        let input = content_history::parse(&stored.text)?.input.unwrap_or_default();
        let size = input.get("sizeBytes").and_then(Value::as_u64);
        Ok(sha256_of(&input).zip(size))
    }

    /// Opens the artifacts of a run that were kept last; `None` if there are none, or the store has lost them, which is logged.
    ///
    /// # Errors
    ///
    /// If the ledger or the store fails.
    pub(crate) async fn kept_artifacts_of(&self, run: &RunId) -> Result<Option<Box<dyn Read + Send>>, CallError> {
        let Some(objects) = &self.objects else { return Ok(None) };
        let Some((sha256, size_bytes)) = self.recorded_artifacts(run).await? else { return Ok(None) };
        let content = objects.content(sha256, size_bytes).await?;
        if content.is_none() {
            tracing::error!(run.id = %run, %sha256, "the artifacts of a run are missing from the object store");
        }
        Ok(content.map(|content| -> Box<dyn Read + Send> { Box::new(content) }))
    }
}

fn sha256_of(input: &serde_json::Map<String, Value>) -> Option<Sha256> {
    Sha256::parse(input.get("sha256")?.as_str()?).ok()
}

/// The records of kept artifacts of a run, newest first.
fn records_of(run: &RunId) -> RecordFilter {
    RecordFilter {
        run: Some(run.clone()),
        tool: Some(lifecycle::KEEP_ARTIFACTS.to_owned()),
        newest_first: true,
        ..RecordFilter::default()
    }
}
