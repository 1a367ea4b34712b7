//! What a run has changed since the record that a change set is based on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{LogicalPath, Refusal, Sha256};

use crate::CallError;
use crate::engine::Engine;
use crate::run::changes::Changes;
use crate::run::known_versions::WrittenFiles;
use crate::run::open_run::OpenRun;
use crate::tool::changed_since::{ChangedSince, FileSince};
use crate::tool::earlier_calls::StoredContent;

/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Adds to `since` the changes of the files `named` since its record. The first record after it that has
    /// changed a file names the version that the file had at it. Of a file with a base, the first record after the one that made it counts.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the run has no such record; if the ledger or the disk fails.
    pub(crate) async fn load_changed_since(
        &self,
        run: &Arc<OpenRun>,
        named: &[LogicalPath],
        since: &mut ChangedSince,
    ) -> Result<(), CallError> {
        let named: BTreeSet<_> = named.iter().collect();
        let newest = self.ledger.run(&run.run_id).await?.map_or(0, |stored| stored.run.head_seq);
        if since.seq > newest {
            let message = format!("`basedOnSeq` is {}; the run's newest record is {newest}", since.seq);
            let hint = "Give the Workspaced-Seq of the archive or layer that the command had.";
            let actual = since.seq;
            let refusal = Refusal::invalid(message, hint);
            return Err(refusal
                .with_details(|details| (details.limit, details.actual) = (Some(newest), Some(actual)))
                .into());
        }
        let mut files: BTreeMap<LogicalPath, (FileSince, Option<Sha256>)> = BTreeMap::new();
        let mut changes = Changes::after(self.ledger.as_ref(), &run.run_id, since.seq);
        while let Some(record) = changes.next::<WrittenFiles>().await? {
            // A dry run has changed nothing.
            if record.paths_written.is_empty() {
                continue;
            }
            for file in record.files.into_iter().filter(|file| named.contains(&file.path)) {
                let made_base = since.bases.get(&file.path) == Some(&file.new_sha256);
                let made_base = made_base.then(|| file.path.clone());
                let changed = FileSince { before: file.old_sha256, last_seq: record.seq, base: None };
                let (changed, newest) = files.entry(file.path).or_insert((changed, None));
                (changed.last_seq, *newest) = (record.seq, file.new_sha256);
                if let Some(path) = made_base.filter(|_| changed.before != file.new_sha256) {
                    files.remove(&path);
                }
            }
        }
        let mut held_bytes = 0;
        for (path, (changed, newest)) in &mut files {
            let Some(before) = changed.before.filter(|before| since.with_contents && *newest != Some(*before)) else {
                continue;
            };
            // Together they are bounded as what a call may hold.
            let base = if held_bytes > run.rules.policy().max_call_bytes() {
                StoredContent::TooLarge
            } else {
                self.stored_content(run, path, before, NEWEST).await?
            };
            if let StoredContent::Bytes(bytes) = &base {
                held_bytes += bytes.len() as u64;
            }
            changed.base = Some(base);
        }
        since.files = files.into_iter().map(|(path, (changed, _))| (path, changed)).collect();
        Ok(())
    }
}
