//! The times of the files in an archive: those of the records that last changed them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, RunId};
use serde::Deserialize;
use workspace::{EntryTime, EntryTimes, TreeExport};

use crate::clock::micros_of;
use crate::run::changes::{ChangeRecord, Changes};
use crate::run::open_run::OpenRun;
use crate::runs::Runs;
use crate::{CallError, reconcile};

impl Runs {
    /// Begins an export of the tree, with the times of its files.
    ///
    /// A file must never come with the time of another version: whoever builds from the archive would take what was made of that version
    /// for new. So the run is locked while the tree is listed and the newest records are read.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub async fn begin_archive(
        &self,
        run: &Arc<OpenRun>,
        cancel: Arc<AtomicBool>,
    ) -> Result<(TreeExport, EntryTimes), CallError> {
        let created = match self.engine.ledger.run(&run.run_id).await? {
            Some(stored) => micros_of(&stored.run.created_at),
            None => None,
        };
        // Most entries have it: whole seconds need no extended header.
        let created = EntryTime(created.unwrap_or_default() / 1_000_000 * 1_000_000);
        let mut times = EntryTimes { changed: BTreeMap::new(), created };
        // Most records are read before the run is locked.
        let read_to = self.add_times(&run.run_id, 0, &mut times).await?;
        let locked = reconcile::lock_consistent(&self.engine, run).await?;
        self.add_times(&run.run_id, read_to, &mut times).await?;
        let open_run = Arc::clone(run);
        let export =
            self.engine.blocking(move || Ok(open_run.workspace.begin_export(&open_run.rules, &cancel)?)).await?;
        drop(locked);
        Ok((export, times))
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
