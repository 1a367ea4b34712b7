//! The engine: what every call works with.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Appended, AppendedAll, Entry, Ledger, RequiredToken, StorageTotals};
use model::{Code, Permission, Profiles, Refusal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::Workspaces;

use crate::CallError;
use crate::admission::body_memory::BodyMemory;
use crate::admission::bulkhead::RunBulkhead;
use crate::admission::rate_limit::Throttle;
use crate::admission::tokens::Tokens;
use crate::limits::Limits;
use crate::metrics::{self, CallMetrics};
use crate::runs::import_registry::Imports;
use crate::runs::open_runs::OpenRuns;
use crate::runs::quota::Node;
use crate::transaction::fsync_worker::FsyncWorker;

pub use crate::clock::{latest, new_approval_id, new_artifact_id, new_tool_call_id, now, now_plus, now_seconds};
pub use crate::runs::open_runs::OpenRun;

/// Runs, calls and transactions over a ledger and workspaces. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Parts>);

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What the engine consists of.
pub struct Parts {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Every run's files.
    pub workspaces: Arc<Workspaces>,
    /// The policy profiles that runs may name.
    pub profiles: Profiles,
    /// Every limit.
    pub limits: Limits,
    /// Runs and bytes that all runs hold together.
    pub node: Arc<Node>,
    /// Runs that are open in this process.
    pub runs: OpenRuns,
    /// Runs whose source is being imported.
    pub imports: Imports,
    /// Tokens of operators and runs.
    pub tokens: Tokens,
    /// Rate and concurrency limits by token.
    pub throttle: Throttle,
    /// Memory for request bodies.
    pub body_memory: BodyMemory,
    /// Permits for work on the disk, by kind of call.
    pub pools: ConcurrencyLimits,
    /// Work that outlives its request: mutations and imports.
    pub tasks: TaskTracker,
    /// Syncs changed files after the answer.
    pub syncer: FsyncWorker,
    /// Cancelled when the process shuts down: streams end, new work is refused.
    pub shutdown: CancellationToken,
}

/// Permits for work on the disk. A kind of call that takes all of its permits leaves the other kinds theirs.
pub struct ConcurrencyLimits {
    /// Cheap reads: `read_file`, `list_dir`.
    pub read: Semaphore,
    /// Expensive reads: searches and diffs.
    pub search: Semaphore,
    /// Exports. The client decides how long one takes.
    pub export: RunBulkhead,
    /// Mutations.
    pub write: Semaphore,
    /// Uploads of large files. The client decides how long one takes.
    pub receive: RunBulkhead,
    /// Imports of local folders and git repositories.
    pub import: Semaphore,
    /// Uploads of archives. The client decides how long one takes.
    pub upload: Semaphore,
}

/// The caller of one request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name in the audit: `run-token:{tokenId}` or `operator:{name}`.
    pub actor: String,
    /// What the caller may do in the run.
    pub permissions: BTreeSet<Permission>,
    /// The run token of the call, which must still be valid when the call is recorded.
    pub token: Option<RequiredToken>,
}

impl Engine {
    /// Creates the engine and starts its fsync worker. `held` is what all runs hold at the start.
    pub fn new(
        limits: Limits,
        profiles: Profiles,
        ledger: Arc<dyn Ledger>,
        workspaces: Arc<Workspaces>,
        tokens: Tokens,
        held: StorageTotals,
    ) -> Self {
        Self(Arc::new(Parts {
            syncer: FsyncWorker::start(Arc::clone(&ledger)),
            ledger,
            workspaces,
            profiles,
            node: Node::new(&limits, held),
            runs: OpenRuns::new(limits.max_live_runs),
            imports: Imports::default(),
            tokens,
            throttle: Throttle::new(&limits),
            body_memory: BodyMemory::new(limits.max_body_memory_bytes),
            pools: ConcurrencyLimits::new(&limits),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            limits,
        }))
    }
}

impl Engine {
    /// Records a call: the ledger's [`append`](ledger::Ledger::append), counted.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn append(&self, entry: Entry) -> ledger::Result<Appended> {
        let (numbers, started) = (CallMetrics::of(&entry.draft), Instant::now());
        failpoint::hit("record.begin");
        let appended = self.ledger.append(bounded(entry)).await?;
        if matches!(appended, Appended::Recorded(_)) {
            numbers.count(started.elapsed());
        }
        Ok(appended)
    }

    /// Records calls that stand or fall together, counted.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn append_all(&self, entries: Vec<Entry>) -> ledger::Result<AppendedAll> {
        let started = Instant::now();
        let numbers: Vec<_> = entries.iter().map(|entry| CallMetrics::of(&entry.draft)).collect();
        failpoint::hit("record.begin");
        let appended = self.ledger.append_all(entries.into_iter().map(bounded).collect()).await?;
        if matches!(appended, AppendedAll::Recorded(_)) {
            for numbers in numbers {
                numbers.count(started.elapsed());
            }
        }
        Ok(appended)
    }

    /// Refused unless calls can be taken.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE`.
    pub async fn ready(&self) -> Result<(), CallError> {
        if self.shutdown.is_cancelled() {
            return Err(Refusal::new(Code::Unavailable, "the service is about to end", "Ask another one.").into());
        }
        Ok(self.ledger.ping().await?)
    }

    /// Counts what the process holds.
    pub fn tell_holdings(&self) {
        metrics::holdings(self.runs.len(), self.imports.len());
    }
}

/// The entry with a record that does not repeat its call without a bound.
fn bounded(entry: Entry) -> Entry {
    Entry { draft: entry.draft.bounded(), ..entry }
}

impl ConcurrencyLimits {
    fn new(limits: &Limits) -> Self {
        Self {
            read: Semaphore::new(limits.read_concurrency),
            search: Semaphore::new(limits.search_concurrency),
            export: RunBulkhead::new("exports", limits.export_concurrency),
            write: Semaphore::new(limits.write_concurrency),
            receive: RunBulkhead::new("large uploads", limits.write_concurrency),
            import: Semaphore::new(limits.import_concurrency),
            upload: Semaphore::new(limits.import_concurrency),
        }
    }
}

/// There is no such run. Only operators hear it: a run token on another run is forbidden, whether or not it exists.
pub fn run_not_found() -> Refusal {
    Refusal::new(Code::RunNotFound, "there is no such run", "List the runs with GET /v1/runs.")
}

/// A look that was broken off because it had its time.
pub fn took_too_long(patience: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the call took longer than {} seconds and was broken off; nothing was changed", patience.as_secs()),
        "Ask for less at a time, or try again when the service is less busy.",
    )
}
