//! What the caller of a mutation has seen of the files that it changes.

use ledger::{RecordFilter, RecordReader};
use model::{LogicalPath, RunId};

use crate::CallError;
use crate::engine::Engine;
use crate::history::content_history;
use crate::run::open_run::OpenRun;
use crate::run::seen_versions::SeenVersion;
use crate::run::seen_versions::{Given, given_by};

/// The most records of a path that are searched. Beyond, the caller has to read the file once more.
const MAX_RECORDS: usize = 20_000;

impl Engine {
    /// Returns what `actor` was last given of `path` in the run.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn seen_version(
        &self,
        run: &OpenRun,
        actor: &str,
        path: &LogicalPath,
    ) -> Result<SeenVersion, CallError> {
        if let Some(known) = run.seen_versions.get(actor, path) {
            return Ok(known);
        }
        let given = self.last_given(&run.run_id, actor, path).await?;
        run.seen_versions.put(actor, path, given);
        // A call that was recorded meanwhile is newer.
        Ok(run.seen_versions.get(actor, path).unwrap_or(given.version))
    }

    async fn last_given(&self, run: &RunId, actor: &str, path: &LogicalPath) -> Result<Given, CallError> {
        let filter = RecordFilter {
            run: Some(run.clone()),
            outcome: Some("ok".to_owned()),
            path: Some(path.to_string()),
            ..RecordFilter::default()
        };
        let never = Given { seq: 0, version: SeenVersion::Never };
        let mut given = never;
        let mut records = RecordReader::new(self.ledger.as_ref(), filter);
        for _ in 0..MAX_RECORDS {
            let Some(stored) = records.next().await? else { return Ok(given) };
            let record = content_history::parse(&stored.text)?;
            if record.actor == actor
                && let Some((_, version)) = given_by(&record).find(|(other, _)| *other == path)
            {
                given = Given { seq: record.seq, version };
            }
        }
        Ok(never)
    }
}
