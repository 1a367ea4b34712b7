//! Archives of closed runs: each is written to a store, read back, and only then replaces the run's data.
//!
//! The law of this crate: a run is read, and given to the engine to be marked; nothing here deletes a record.

#![expect(clippy::disallowed_types, reason = "settings contain paths; temporary files have no names")]

mod build;
mod store;

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use archive::ArchiveName;
use cluster::nodes::maintains;
use cluster::nodes::membership::Membership;
use content::Objects;
use engine::runs::{RunArchive, Runs};
use engine::{CallError, clock};
use ledger::{Ledger, Role};
use model::RunId;
use proofs::checkpoints::Checkpoints;
use tokio_util::sync::CancellationToken;

use cluster::objects::StoreError;

pub use store::ArchiveStore;

/// Closed runs per query.
const PAGE: u32 = 500;
/// The shortest and the longest time between two passes.
const PASS_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// The shortest and the longest time until a failed attempt is repeated.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_hours(1));

/// Why nothing can be archived in a database whose role cannot delete.
pub const NO_GRANT: &str = "the database does not permit to delete archived records: as the owner of the tables, execute \
    GRANT DELETE ON audit_record, record_path, call_reply, artifact, upload TO the role of the service";

/// Why a run was not archived. It stays whole.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFailure {
    /// The run cannot be archived now.
    #[error("the run's data cannot be read")]
    Run(#[from] CallError),
    /// The run's chain is broken. Nobody deletes the evidence.
    #[error("the run's audit is not intact: {0}")]
    Broken(String),
    /// The archived records could not be deleted.
    #[error("{NO_GRANT}")]
    NotPermitted,
    /// The temporary file cannot be written.
    #[error("the temporary file of the archive cannot be written")]
    Disk(#[source] io::Error),
    /// The written archive is not valid.
    #[error("the written archive is not valid")]
    Invalid(#[from] archive::ArchiveError),
    /// The store failed.
    #[error("the store of the archives failed")]
    Store(#[from] StoreError),
}

impl From<io::Error> for ArchiveFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Of the parser: the disk cannot fail in this manner.
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                Self::Broken(format!("a stored reply or approval cannot be read: {error}"))
            }
            _ => Self::Disk(error),
        }
    }
}

/// How an attempt to archive a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is archived, is not closed any more, or no checkpoint covers its last record yet.
    Done,
    /// It got another record meanwhile: it is still being read.
    Interrupted,
}

/// A repetition after failures.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    delay: Duration,
    until: Instant,
}

/// What archives are made of. Cheap to clone.
#[derive(Clone)]
pub struct ArchiveSource {
    /// The runs.
    pub runs: Arc<Runs>,
    /// Their records.
    pub ledger: Arc<dyn Ledger>,
    /// Their large contents, if those are not in the ledger.
    pub objects: Option<Objects>,
    /// The checkpoints that cover their records.
    pub checkpoints: Arc<Checkpoints>,
    /// This process as a node; `None` if the service is the only one.
    pub node: Option<Arc<Membership>>,
}

/// Archives closed runs, one at a time.
pub struct Archiver {
    source: ArchiveSource,
    store: ArchiveStore,
    /// The minimum time since a run was closed.
    after: Duration,
    /// The folder for temporary files, which have no names in it.
    temp_dir: PathBuf,
    /// Runs whose last attempt failed.
    failed: HashMap<RunId, Backoff>,
    /// The store, or the database, after a failure.
    paused: Option<Backoff>,
    /// Whether a run may be marked as archived and not be deleted yet. The start of the service completes earlier ones.
    has_unfinished: bool,
}

impl Backoff {
    /// Returns the next delay after a failure, which follows the failure `before`.
    fn after(before: Option<Self>) -> Self {
        let delay = before.map_or(BACKOFF.0, |before| (before.delay * 2).min(BACKOFF.1));
        Self { delay, until: Instant::now() + delay }
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.until
    }
}

impl Archiver {
    /// An archiver of the runs that were closed `after` ago, which has its temporary files in the data folder.
    pub fn new(source: ArchiveSource, store: ArchiveStore, after: Duration, data_dir: &Path) -> Self {
        let temp_dir = data_dir.to_owned();
        Self { source, store, after, temp_dir, failed: HashMap::new(), paused: None, has_unfinished: false }
    }

    /// Runs until `shutdown`. A run that is being archived then stays whole, and the next start archives it.
    #[boxed]
    pub async fn run(mut self, shutdown: CancellationToken) {
        let interval = (self.after / 10).clamp(PASS_INTERVAL.0, PASS_INTERVAL.1);
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = shutdown.cancelled() => return,
            }
            if self.paused.is_some_and(|paused| !paused.is_over()) {
                continue;
            }
            tokio::select! {
                passed = self.pass() => match passed {
                    Ok(()) => self.paused = None,
                    Err(error) => {
                        self.paused = Some(Backoff::after(self.paused));
                        count_failure(None, &error);
                    }
                },
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Archives every run that is due. Returns the first failure that concerns other runs too.
    async fn pass(&mut self) -> Result<(), ArchiveFailure> {
        if self.has_unfinished {
            self.check_permitted().await?;
            self.source.runs.finish_deletions().await?;
            self.has_unfinished = false;
        }
        let seconds = i64::try_from(self.after.as_secs()).unwrap_or(i64::MAX);
        let (until, mut after) = (clock::now_plus(seconds.saturating_neg()), None);
        loop {
            let page = self.source.ledger.closed_runs(&until, after.as_ref(), PAGE).await.map_err(CallError::from)?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            for ledger::ClosedRunKey { run_id, .. } in page {
                if self.failed.get(&run_id).is_some_and(|failed| !failed.is_over()) {
                    continue;
                }
                if !maintains(self.source.node.as_deref(), self.source.ledger.as_ref(), Role::Retention, &run_id)
                    .await
                    .map_err(CallError::from)?
                {
                    continue;
                }
                let attempt = self.archive(&run_id).await;
                if let Ok(Attempt::Done) = attempt {
                    self.failed.remove(&run_id);
                    continue;
                }
                // Also if the store fails, so that the next pass does not begin with a run that the store does not take.
                let backoff = Backoff::after(self.failed.get(&run_id).copied());
                self.failed.insert(run_id.clone(), backoff);
                match attempt {
                    Err(
                        error @ (ArchiveFailure::Store(_) | ArchiveFailure::Disk(_) | ArchiveFailure::NotPermitted),
                    ) => return Err(error),
                    Err(error) => count_failure(Some(&run_id), &error),
                    Ok(_) => {}
                }
            }
        }
        // Runs that were deleted in the meantime.
        self.failed.retain(|_, failed| failed.until.elapsed() < BACKOFF.1);
        Ok(())
    }

    /// Fails if the database does not permit to delete records: `deploy/roles.sql`, which may be executed at any time, revokes that.
    async fn check_permitted(&self) -> Result<(), ArchiveFailure> {
        let is_permitted = self.source.ledger.can_delete_archived().await.map_err(CallError::from)?;
        if is_permitted { Ok(()) } else { Err(ArchiveFailure::NotPermitted) }
    }

    /// Archives a run, unless it is not closed any more or no checkpoint covers its last record yet.
    async fn archive(&mut self, run: &RunId) -> Result<Attempt, ArchiveFailure> {
        let Some(closed) = self.source.runs.closed_run(run).await? else { return Ok(Attempt::Done) };
        self.check_permitted().await?;
        let (head_seq, head_hash) = (closed.run.head_seq, closed.run.head_hash);
        let built = build::build(&self.source, &closed, &self.temp_dir).await?;
        let Some(built) = built else { return Ok(Attempt::Done) };
        if self.source.runs.run(run).await?.head_seq != head_seq {
            return Ok(Attempt::Interrupted);
        }
        let name = ArchiveName { run_id: run.clone(), sha256: built.sha256 };
        let bytes = built.bytes;
        failpoint::hit("archive.built");
        self.store.put(&name, built).await?;
        failpoint::hit("archive.stored");
        self.store.read_back(&name, bytes).await?;
        failpoint::hit("archive.verified");
        let archive = RunArchive { uri: self.store.uri(&name), sha256: name.sha256, head_seq, head_hash };
        let (runs, described) = (Arc::clone(&self.source.runs), archive.clone());
        // A shutdown does not interrupt it between two of its steps.
        let work = async move { runs.mark_archived(closed, &described).await };
        self.has_unfinished = true;
        let marked = self.source.runs.detached(work).await;
        if marked.is_err() {
            self.check_permitted().await?;
        }
        let is_archived = marked?;
        self.has_unfinished = false;
        if !is_archived {
            // The run has other records by now, or was deleted: this is not its archive.
            if let Err(error) = self.store.delete(&name).await {
                let (archive, error) = (archive.uri, &error as &dyn Error);
                tracing::warn!(run.id = %run, archive, error, "an archive that is not needed could not be deleted");
            }
            return Ok(Attempt::Interrupted);
        }
        metrics::counter!("workspaced_archived_runs_total").increment(1);
        tracing::info!(run.id = %run, archive = archive.uri, bytes, "run archived");
        Ok(Attempt::Done)
    }
}

fn count_failure(run: Option<&RunId>, error: &ArchiveFailure) {
    metrics::counter!("workspaced_archive_errors_total").increment(1);
    let error = error as &dyn Error;
    if let Some(run) = run {
        tracing::error!(run.id = %run, error, "a run could not be archived; it stays as it is");
    } else {
        tracing::error!(error, "archiving of runs is interrupted; it is repeated later");
    }
}
