//! The state that an archive or a layer has: its files with the times of the records that last changed them, and the newest record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Refusal, RunId, Sha256};
use serde::Deserialize;
use workspace::{EntryTime, EntryTimes, TreeExport};

use crate::clock::micros_of;
use crate::run::changes::{ChangeRecord, Changes};
use crate::run::open_run::OpenRun;
use crate::runs::Runs;
use crate::{CallError, reconcile};

/// An archive that is ready to be written.
pub(crate) struct ArchiveExport {
    /// The files.
    pub(crate) export: TreeExport,
    /// Their times.
    pub(crate) times: EntryTimes,
    /// Whether it has only what has changed since a record.
    pub(crate) is_layer: bool,
    /// The record at which the tree has this state, and its hash.
    pub(crate) head: (u64, Sha256),
}

impl Runs {
    /// Begins an export of the tree, or of what has changed in it after the record `since`, with the times of its files.
    ///
    /// A file must never come with the time of another version: whoever builds from the archive would take what was made of that version
    /// for new. So the run is locked while the tree is listed and the newest records are read.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the run has no record `since`; if the ledger or the disk fails.
    pub(crate) async fn begin_archive(
        &self,
        run: &Arc<OpenRun>,
        since: Option<u64>,
        cancel: Arc<AtomicBool>,
    ) -> Result<ArchiveExport, CallError> {
        let created = match self.engine.ledger.run(&run.run_id).await? {
            Some(stored) => micros_of(&stored.run.created_at),
            None => None,
        };
        // Most entries have it: whole seconds need no extended header.
        let created = EntryTime(created.unwrap_or_default() / 1_000_000 * 1_000_000);
        let mut times = EntryTimes { changed: BTreeMap::new(), created };
        // Most records are read before the run is locked.
        let read_to = self.add_times(&run.run_id, since.unwrap_or(0), &mut times).await?;
        let locked = reconcile::lock_consistent(&self.engine, run).await?;
        self.add_times(&run.run_id, read_to, &mut times).await?;
        let head = self.engine.ledger.run(&run.run_id).await?;
        let head = head.map_or((0, Sha256::ZERO), |stored| (stored.run.head_seq, stored.run.head_hash));
        if let Some(since) = since.filter(|since| *since > head.0) {
            return Err(no_such_record(since, head.0).into());
        }
        let open_run = Arc::clone(run);
        let begin = move || {
            let export = match since {
                None => open_run.workspace.begin_export(&open_run.rules, &cancel)?,
                Some(_) => open_run.workspace.begin_layer(&open_run.rules, times.changed.keys(), &cancel)?,
            };
            Ok(ArchiveExport { export, times, is_layer: since.is_some(), head })
        };
        let mut archive = self.engine.blocking(begin).await?;
        drop(locked);
        let open_run = Arc::clone(run);
        let settle = move || {
            archive.export.leave_out_secrets(&open_run.rules)?;
            Ok(archive)
        };
        self.engine.blocking(settle).await
    }

    /// Adds the times of the records after `since`. Returns the last of them.
    async fn add_times(&self, run: &RunId, since: u64, times: &mut EntryTimes) -> Result<u64, CallError> {
        let mut changes = Changes::after(self.engine.ledger.as_ref(), run, since);
        while let Some(record) = changes.next::<TimedChange>().await? {
            let Some(time) = micros_of(&record.timestamp) else { continue };
            times.changed.extend(record.paths_written.into_iter().map(|path| (path, EntryTime(time))));
        }
        Ok(changes.since())
    }
}

fn no_such_record(since: u64, newest: u64) -> Refusal {
    let message = format!("`since` is {since}; the run's newest record is {newest}");
    let hint = "Give the Workspaced-Seq of an earlier archive of this run, or omit `since` for the whole tree.";
    Refusal::invalid(message, hint)
        .with_details(|details| (details.limit, details.actual) = (Some(newest), Some(since)))
}

/// The part of a record that says when it has written which paths. The rest is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TimedChange {
    seq: u64,
    timestamp: String,
    paths_written: Vec<LogicalPath>,
}

impl ChangeRecord for TimedChange {
    fn seq(&self) -> u64 {
        self.seq
    }
}
