//! The service: what every call works with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Appended, AppendedAll, Entry, Ledger, RequiredToken, StorageTotals};
use model::{Code, Permission, Profiles, Refusal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::Workspaces;

use crate::CallError;
use crate::answer_memory::AnswerMemory;
use crate::body_memory::BodyMemory;
use crate::checkpoints::Checkpoints;
use crate::config::{Config, Limits};
use crate::imports::Imports;
use crate::live::LiveRuns;
use crate::places::Places;
use crate::quota::Node;
use crate::syncer::Syncer;
use crate::telemetry::{self, CallNumbers};
use crate::throttle::Throttle;
use crate::tokens::Tokens;

pub(crate) use crate::clock::{latest, new_approval_id, new_artifact_id, new_tool_call_id, now, now_plus, now_seconds};
pub(crate) use crate::live::LiveRun;

/// The service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Inner>);

/// What the service holds.
pub(crate) struct Inner {
    /// What is remembered.
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Every run's files.
    pub(crate) workspaces: Arc<Workspaces>,
    /// The profiles that runs may name.
    pub(crate) profiles: Profiles,
    /// Every bound.
    pub(crate) limits: Limits,
    /// What all runs together hold.
    pub(crate) node: Arc<Node>,
    /// Runs that are open in this process.
    pub(crate) runs: LiveRuns,
    /// Runs whose source is coming in.
    pub(crate) imports: Imports,
    /// Who may call.
    pub(crate) tokens: Tokens,
    /// How much each of them may.
    pub(crate) throttle: Throttle,
    /// How many bytes of bodies may be in memory at a time.
    pub(crate) body_memory: BodyMemory,
    /// And how many of answers.
    pub(crate) answer_memory: AnswerMemory,
    /// The same for answers to callers without a token: a quarter as many.
    pub(crate) open_answer_memory: AnswerMemory,
    /// How many calls may use the disk at a time, by what they do there.
    pub(crate) pools: Pools,
    /// Work that outlives its request: mutations, which finish even when the caller has gone.
    pub(crate) tasks: TaskTracker,
    /// Signs where the chains of all runs stand.
    pub(crate) checkpoints: Checkpoints,
    /// Syncs changed files behind the answers.
    pub(crate) syncer: Syncer,
    /// Cancelled when the process is about to end: streams end, new work is refused.
    pub(crate) shutdown: CancellationToken,
}

/// Places at the disk. One kind of call that takes all of its own leaves the others theirs.
pub(crate) struct Pools {
    /// Quick looks: `read_file`, `list_dir`.
    pub(crate) read: Semaphore,
    /// Long looks: searches, diffs.
    pub(crate) search: Semaphore,
    /// Exports, which take as long as whoever takes them in.
    pub(crate) export: Places,
    /// Mutations.
    pub(crate) write: Semaphore,
    /// Large files on their way into a run, which take as long as whoever sends them.
    pub(crate) receive: Places,
    /// Imports of what is on this machine or fetched by it.
    pub(crate) import: Semaphore,
    /// Imports of archives, which take as long as whoever sends them.
    pub(crate) upload: Semaphore,
}

/// Who calls, and for which run.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// As the audit names it: `run-token:{tokenId}` or `operator:{name}`.
    pub(crate) actor: String,
    /// What the caller may do in the run.
    pub(crate) permissions: BTreeSet<Permission>,
    /// What was called with, where that can end before the call is recorded.
    pub(crate) token: Option<RequiredToken>,
}

impl Service {
    /// Puts the service together, and starts what runs beside the calls.
    pub(crate) fn new(
        config: &Config,
        ledger: Arc<dyn Ledger>,
        workspaces: Arc<Workspaces>,
        tokens: Tokens,
        checkpoints: Checkpoints,
        held: StorageTotals,
    ) -> Self {
        let limits = config.limits.clone();
        Self(Arc::new(Inner {
            syncer: Syncer::start(Arc::clone(&ledger)),
            ledger,
            workspaces,
            profiles: config.profiles.clone(),
            node: Node::new(&limits, held),
            runs: LiveRuns::new(limits.max_live_runs),
            imports: Imports::default(),
            tokens,
            checkpoints,
            throttle: Throttle::new(&limits),
            body_memory: BodyMemory::new(limits.max_body_memory_bytes),
            answer_memory: AnswerMemory::new(limits.max_answer_memory_bytes),
            open_answer_memory: AnswerMemory::new(limits.max_answer_memory_bytes / 4),
            pools: Pools::new(&limits),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            limits,
        }))
    }
}

impl Service {
    /// Records a call: the ledger's [`append`](ledger::Ledger::append), counted.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub(crate) async fn append(&self, entry: Entry) -> ledger::Result<Appended> {
        let (numbers, started) = (CallNumbers::of(&entry.draft), Instant::now());
        failpoint::hit("record.begin");
        let appended = self.0.ledger.append(bounded(entry)).await?;
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
    pub(crate) async fn append_all(&self, entries: Vec<Entry>) -> ledger::Result<AppendedAll> {
        let started = Instant::now();
        let numbers: Vec<_> = entries.iter().map(|entry| CallNumbers::of(&entry.draft)).collect();
        failpoint::hit("record.begin");
        let appended = self.0.ledger.append_all(entries.into_iter().map(bounded).collect()).await?;
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
    pub(crate) async fn ready(&self) -> Result<(), CallError> {
        if self.0.shutdown.is_cancelled() {
            return Err(Refusal::new(Code::Unavailable, "the service is about to end", "Ask another one.").into());
        }
        Ok(self.0.ledger.ping().await?)
    }

    /// Counts what the process holds.
    pub(crate) fn tell_holdings(&self) {
        telemetry::holdings(self.0.runs.len(), self.0.imports.len());
    }
}

/// The entry with a record that does not repeat its call without a bound.
fn bounded(entry: Entry) -> Entry {
    Entry { draft: entry.draft.bounded(), ..entry }
}

impl Pools {
    fn new(limits: &Limits) -> Self {
        Self {
            read: Semaphore::new(limits.read_threads),
            search: Semaphore::new(limits.search_threads),
            export: Places::new("exports", limits.export_threads),
            write: Semaphore::new(limits.write_threads),
            receive: Places::new("large uploads", limits.write_threads),
            import: Semaphore::new(limits.import_threads),
            upload: Semaphore::new(limits.import_threads),
        }
    }
}

/// There is no such run. Only operators hear it: a run token on another run is forbidden, whether or not it exists.
pub(crate) fn run_not_found() -> Refusal {
    Refusal::new(Code::RunNotFound, "there is no such run", "List the runs with GET /v1/runs.")
}

/// A look that was broken off because it had its time.
pub(crate) fn took_too_long(patience: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the call took longer than {} seconds and was broken off; nothing was changed", patience.as_secs()),
        "Ask for less at a time, or try again when the service is less busy.",
    )
}
