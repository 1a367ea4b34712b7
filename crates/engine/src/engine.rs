//! The engine: what the services share, and how they append records. Where several nodes share a ledger, each owns some runs; a service
//! that is the only one owns all, without epochs.

pub(crate) mod keyed_requests;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use content::Objects;
use ledger::{Appended, ApprovalFilter, Entry, Epoch, Ledger, LedgerError, Records, StorageTotals, Taken};
use model::{ApprovalState, Outcome, RunId, Sha256};
use shared_pool::{Parties, Permit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use workspace::Workspaces;

use crate::admission::body_memory::RequestMemory;
use crate::admission::pools::{Pools, permit};
use crate::admission::tokens::Tokens;
use crate::call_error::refusals::shutting_down;
use crate::limits::Limits;
use crate::metrics::{self, CallMetrics, SPANS};
use crate::run::artifact_stamps::ArtifactStamps;
use crate::run::fsync_worker::FsyncWorker;
use crate::run::import_registry::ImportRegistry;
use crate::run::keyed::KeyedLocks;
use crate::run::open_runs::OpenRuns;
use crate::run::open_runs::fetches::RunFetches;
use crate::run::quota::NodeQuota;
use crate::{CallError, clock};

/// What the services share.
pub(crate) struct Engine {
    /// The ledger.
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Every run's files.
    pub(crate) workspaces: Arc<Workspaces>,
    /// Bases and large contents outside of this machine, if they are stored there.
    pub(crate) objects: Option<Objects>,
    /// Every limit.
    pub(crate) limits: Limits,
    /// Runs and bytes that all runs hold together.
    pub(crate) node: Arc<NodeQuota>,
    /// Runs that are open in this process.
    pub(crate) runs: OpenRuns,
    /// Runs whose files are being fetched from the object store.
    pub(crate) fetches: RunFetches,
    /// Runs whose source is being imported.
    pub(crate) imports: ImportRegistry,
    /// Whether a commit has failed, and none has succeeded since that needs space.
    commits_fail: AtomicBool,
    /// Artifacts of runs that the object store has.
    pub(crate) artifact_stamps: ArtifactStamps,
    /// Tokens of operators and runs.
    pub(crate) tokens: Tokens,
    /// Keyed requests under way.
    keyed_requests: KeyedLocks<Sha256>,
    /// What callers share, by kind of work.
    pub(crate) pools: Pools,
    /// Work that outlives its request: mutations and imports.
    pub(crate) tasks: TaskTracker,
    /// Syncs changed files after the answer.
    pub(crate) fsync_worker: FsyncWorker,
    /// Cancelled when the process shuts down: streams end, new work is refused.
    pub(crate) shutdown: CancellationToken,
}

impl Engine {
    /// Creates what the services share, and starts the fsync worker.
    pub(crate) fn new(
        limits: Limits,
        ledger: Arc<dyn Ledger>,
        workspaces: Arc<Workspaces>,
        objects: Option<Objects>,
        tokens: Tokens,
        held: StorageTotals,
        (tasks, shutdown): (TaskTracker, CancellationToken),
    ) -> Self {
        Self {
            fsync_worker: FsyncWorker::start(Arc::clone(&ledger)),
            ledger,
            workspaces,
            objects,
            node: NodeQuota::new(&limits, held),
            runs: OpenRuns::new(limits.max_live_runs),
            fetches: RunFetches::default(),
            imports: ImportRegistry::default(),
            commits_fail: AtomicBool::new(false),
            artifact_stamps: ArtifactStamps::default(),
            tokens,
            keyed_requests: KeyedLocks::default(),
            pools: Pools::new(&limits),
            tasks,
            shutdown,
            limits,
        }
    }
}

/// Why the ledger has not recorded entries.
#[derive(Debug)]
pub(crate) enum NotRecorded {
    /// It has rejected them: any outcome other than [`Appended::Recorded`]. Nothing is written.
    Rejected(Appended),
    /// It has failed.
    Failed(LedgerError),
}

impl From<LedgerError> for NotRecorded {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error)
    }
}

impl Engine {
    /// Records entries of one run, and at most one of another chain, all or none, and counts the calls.
    pub(crate) async fn record(&self, entries: Vec<Entry>) -> Result<Records, NotRecorded> {
        let started = Instant::now();
        let calls: Vec<_> = entries.iter().map(|entry| CallMetrics::of(&entry.draft)).collect();
        // A record must not repeat an input of unbounded size.
        let bounded = |entry: Entry| Entry { draft: entry.draft.bounded(), ..entry };
        failpoint::hit("record.begin");
        let span = tracing::trace_span!(target: SPANS, "commit", records = calls.len());
        let (entries, unopened) = self.under_epoch(entries.into_iter().map(bounded).collect()).await?;
        let epoch = entries.iter().find_map(|entry| entry.epoch);
        let appended = self.ledger.append(entries).instrument(span).await;
        if let Some((run, epoch)) = unopened {
            self.give_back_without_files(&run, epoch).await;
        }
        if let (Err(LedgerError::RunMoved(run)), Some(epoch)) = (&appended, epoch) {
            self.runs.lose(run, epoch);
        }
        if matches!(appended, Err(LedgerError::Unavailable(_))) {
            self.commits_fail.store(true, Ordering::Relaxed);
        }
        let records = match appended? {
            Appended::Recorded(records) => records,
            rejected => return Err(NotRecorded::Rejected(rejected)),
        };
        match (&calls[..], &records[..]) {
            ([call], [record]) => call.add_to_span(record),
            _ => calls.iter().zip(&*records).for_each(|(call, record)| call.span_of_batch_item(record)),
        }
        for call in calls {
            call.count(started.elapsed());
        }
        self.count_history(&records);
        // Reads are recorded also on a full disk, in the space that is reserved for them.
        if records.iter().any(|record| record.mutates && record.outcome == Outcome::Ok) {
            self.commits_fail.store(false, Ordering::Relaxed);
        }
        Ok(records)
    }

    /// Counts what appended records have added to the history of their run.
    fn count_history(&self, records: &Records) {
        self.node.add_history(records.history.added_bytes);
        let Some(last) = records.last() else { return };
        if let Some(run) = self.runs.get(&last.run_id) {
            run.history.set(records.history.bytes, last.seq);
        }
    }

    /// Runs `work` as a separate task, which continues if the client disconnects: a change must not stay journalled but not
    /// applied.
    ///
    /// # Errors
    ///
    /// As for `work`. A panic is an internal error of this call only.
    pub(crate) fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, CallError>> + Send {
        // Boxed before another future contains it: each of those that lead to the request would be as large, and be copied with it. And
        // of one type for each answer: the runtime's code for a task is compiled for each type of work.
        let work: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(work);
        let (memory, parties) = (RequestMemory::current(), Parties::current());
        let work = async move {
            let done = work.await;
            drop(memory);
            done
        };
        let task = self.tasks.spawn(parties.scope(work.instrument(tracing::Span::current())));
        async move { task.await.map_err(|error| CallError::Internal(Box::new(error)))? }
    }

    /// Runs `work` on a thread that may block.
    ///
    /// # Errors
    ///
    /// As for `work`. A panic is an internal error of this call only.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let span = tracing::Span::current();
        // Of one type for each answer, as above.
        let work: Box<dyn FnOnce() -> _ + Send> = Box::new(work);
        let task = tokio::task::spawn_blocking(move || span.in_scope(work));
        task.await.map_err(|error| CallError::Internal(Box::new(error)))?
    }

    /// Takes a permit for a read. Cheap reads never wait for expensive ones.
    pub(crate) async fn read_permit(&self, is_expensive: bool) -> Permit {
        permit(if is_expensive { &self.pools.search } else { &self.pools.read }).await
    }

    /// Takes a permit for a mutation, so that a disk that hangs blocks a bounded number of threads.
    pub(crate) async fn write_permit(&self) -> Permit {
        permit(&self.pools.write).await
    }

    /// Checks whether the service accepts calls, and whether a change would be recorded.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE`.
    pub(crate) async fn check_ready(&self) -> Result<(), CallError> {
        if self.shutdown.is_cancelled() {
            return Err(shutting_down().into());
        }
        self.ledger.ping().await?;
        if self.commits_fail.load(Ordering::Relaxed) {
            self.ledger.probe().await?;
            self.commits_fail.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Updates the gauges that need the database: runs by state, pending approvals.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn record_ledger_gauges(&self) -> ledger::Result<()> {
        let summary = self.ledger.summary().await?;
        let pending = ApprovalFilter { state: Some(ApprovalState::Pending), ..ApprovalFilter::default() };
        let oldest = self.ledger.approvals(&pending, None, 1.into()).await?;
        let oldest_seconds = oldest.first().map_or(0.0, |(_, approval)| clock::seconds_since(&approval.created_at));
        metrics::set_summary(&summary, oldest_seconds);
        Ok(())
    }

    /// Reads again what all runs hold together, which other nodes change too.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn refresh_totals(&self) -> ledger::Result<()> {
        self.node.set_held(&self.ledger.storage_totals().await?);
        Ok(())
    }

    /// Reads again what the history of all runs takes, of which the deletion, the archive and the collector give some back.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn refresh_history(&self) -> ledger::Result<()> {
        self.node.set_history(self.ledger.storage_totals().await?.history_bytes);
        Ok(())
    }

    /// Updates the gauges that need no database: open runs, imports, permits, disk usage, connections to the database.
    pub(crate) fn record_gauges(&self) {
        metrics::set_gauges(self.runs.len(), self.imports.len());
        metrics::set_runs_bytes(self.node.bytes(), self.node.history_bytes());
        metrics::set_connections(self.ledger.connections());
        for pool in self.pools.all().into_iter().chain([self.ledger.page_queries()]) {
            metrics::set_permits(pool);
        }
    }
}

/// The maximum time that a run waits for the calls that used it when it was lost to another node.
const LOST_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Makes this node the owner of a run, and returns its epoch; `None` if this service is the only one.
    ///
    /// # Errors
    ///
    /// `RunMoved` if another node owns the run and is alive; `Unavailable` while calls still use the run as it was before this node
    /// lost it; otherwise if the ledger fails.
    pub(crate) async fn take_run(&self, run: &RunId) -> ledger::Result<Option<Epoch>> {
        if self.ledger.node().is_none() {
            return Ok(None);
        }
        let ended = tokio::time::timeout(LOST_TIMEOUT, self.runs.until_lost_calls_end(run)).await;
        ended.map_err(|_| LedgerError::Unavailable("earlier calls still use the run".into()))?;
        match self.ledger.take_run(run).await? {
            Taken::Owned(epoch) => Ok(Some(epoch)),
            Taken::OwnedBy(owner) => {
                tracing::debug!(run.id = %run, owner = %owner.node, "another node owns the run");
                Err(LedgerError::RunMoved(run.clone()))
            }
        }
    }

    /// Whether this process, or an earlier one of the same node, is the last owner of a run. Always true in a service that is the only
    /// one.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn was_of_this_node(&self, run: &RunId) -> ledger::Result<bool> {
        let Some(node) = self.ledger.node() else { return Ok(true) };
        Ok(self.ledger.owner(run).await?.is_some_and(|owner| owner.node.node_id == node.node_id))
    }

    /// Leaves the open runs that no call uses without an owner, so that other nodes can take them. Returns how many. Later calls that
    /// reach this node take them again. Changes that are not synced yet stay in the journal: the next owner repeats them.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn give_back_runs(&self) -> ledger::Result<usize> {
        let idle = self.runs.remove_idle();
        if !idle.is_empty() {
            self.ledger.give_back(&idle).await?;
        }
        Ok(idle.len())
    }

    /// As [`give_back_runs`](Self::give_back_runs), also for the runs of this node that are not open, except those that it imports.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn give_back_unused_runs(&self) -> ledger::Result<()> {
        self.runs.remove_idle();
        let mut used = self.runs.ids();
        used.extend(self.imports.ids());
        self.ledger.give_back_except(&used).await
    }

    /// Returns `entries`, all of one run but for those of any owner, each with an epoch. Those of calls that have opened the run have one:
    /// what they say is true only under that epoch. The others depend on what the ledger checks when it appends them: if the run is not
    /// open here, returns it with its epoch.
    pub(crate) async fn under_epoch(
        &self,
        mut entries: Vec<Entry>,
    ) -> ledger::Result<(Vec<Entry>, Option<(RunId, Epoch)>)> {
        if self.ledger.node().is_none() {
            return Ok((entries, None));
        }
        let lacks = |entry: &Entry| entry.epoch.is_none() && !entry.is_of_any_owner;
        let lacking = entries.iter().find(|entry| lacks(entry)).map(|entry| entry.draft.run_id.clone());
        let Some(run) = lacking else { return Ok((entries, None)) };
        let (epoch, is_open) = match self.runs.get(&run) {
            Some(open_run) => (open_run.epoch, true),
            None => (self.take_run(&run).await?, false),
        };
        for entry in entries.iter_mut().filter(|entry| lacks(entry)) {
            entry.epoch = epoch;
        }
        Ok((entries, epoch.filter(|_| !is_open).map(|epoch| (run, epoch))))
    }

    /// Leaves a run without an owner that this node has taken to record something, and whose files it does not have: another node may.
    pub(crate) async fn give_back_without_files(&self, run: &RunId, epoch: Epoch) {
        let given_back = async {
            if self.fetches.is_fetching(run) || self.has_unopened_files(run).await? != Some(false) {
                return Ok(());
            }
            Ok::<_, CallError>(self.ledger.give_back(&[(run.clone(), epoch)]).await?)
        };
        if let Err(error) = given_back.await {
            tracing::warn!(run.id = %run, error = &error as &dyn Error, "a run without files stays with this node");
        }
    }

    /// Whether the folder here has the files of a run whose owner has not opened them; `None` if it may have.
    pub(crate) async fn has_unopened_files(&self, run: &RunId) -> Result<Option<bool>, CallError> {
        let epochs = self.ledger.current_epochs(run).await?;
        if epochs.start() == epochs.end() {
            return Ok(None);
        }
        let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || Ok(Some(workspaces.has_files_of(&run, &epochs)?))).await
    }
}
