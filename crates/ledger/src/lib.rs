//! What workspaced remembers.
//!
//! The law of this crate: the only SQL of the product is here, behind one trait with two backends, SQLite and
//! PostgreSQL, which one test suite holds to the same behaviour.

mod backend;
mod checkpoint;
mod error;
mod filter;
mod group;
mod migrate;
mod page;
mod postgres;
mod rows;
mod sqlite;
mod store;
mod verify;

use std::sync::Arc;

use async_trait::async_trait;
use model::{
    Approval, ApprovalId, ApprovalState, ArtifactId, ChainReport, Disk, DiskChange, Draft, ImportReport, LogicalPath,
    Record, Run, RunId, RunState, Sha256, Step, Token, TokenId, ToolCallId, Usage,
};

pub use checkpoint::{AdvancedHead, CheckpointLog, NewCheckpoint, StoredCheckpoint, StoredLeaf};
pub use error::{Fence, LedgerError};
pub use page::{PAGE_BYTES, Page, PageSize};

/// The setting that names the instance of the service that may write: see [`Ledger::take_over`].
pub const INSTANCE: &str = "instance";

/// The answer of every method.
pub type Result<T, E = LedgerError> = std::result::Result<T, E>;

/// One call as the ledger takes it: its record, and whatever becomes durable with it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record, before its place in the chain is known.
    pub draft: Draft,
    /// Hash of the call's canonical input: one ID is one call.
    pub input_sha256: Sha256,
    /// Whether the caller chose the ID, so that it may have been used before.
    pub client_supplied_id: bool,
    /// What a repetition of the call is answered. Only mutations have one.
    pub reply: Option<Reply>,
    /// What changes in the tree. The ledger keeps it until [`Ledger::prune`], and [`Ledger::content`] for longer.
    pub steps: Vec<Step>,
    /// The diff of the change.
    pub artifact: Option<Artifact>,
    /// The approval that the call asks for, with the call's input as JSON.
    pub approval: Option<(Approval, String)>,
    /// The approval that this record decides: it was pending, and is so no more, in the same transaction.
    pub approval_decision: Option<ApprovalDecision>,
    /// What the call adds to the run's usage.
    pub usage: Usage,
    /// By how much it changes what the run's tree holds.
    pub disk: DiskChange,
    /// What must hold in the transaction that records the call.
    pub preconditions: Preconditions,
}

/// What must hold when a call is recorded, however long ago it was checked at first. Nothing is needed by default.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    /// The run takes mutations.
    pub open_run: bool,
    /// The caller's token is neither revoked nor expired.
    pub token: Option<RequiredToken>,
}

/// A token that must be good when a call is recorded.
#[derive(Clone, Debug)]
pub struct RequiredToken {
    /// Which, of the entry's run.
    pub token_id: TokenId,
    /// When it ends, in the form of stored times.
    pub expires_at: Option<String>,
    /// The clock that says whether that has passed, in the same form.
    pub now: fn() -> String,
}

/// Why a call is not recorded: what it [needs](Needs) does not hold any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedPrecondition {
    /// The run is in a state that takes no mutations.
    Run(RunState),
    /// The caller's token was revoked, or has expired.
    Token,
}

impl Entry {
    /// Whether the first reply under its ID is the only one: a decision of an approval is another record of the same call.
    pub(crate) fn is_answered_once(&self) -> bool {
        self.client_supplied_id && self.reply.is_some() && self.approval_decision.is_none()
    }
}

/// How an approval is decided.
#[derive(Clone, Debug)]
pub struct ApprovalDecision {
    /// Which.
    pub approval_id: ApprovalId,
    /// What becomes of it.
    pub state: ApprovalState,
    /// Who decided; nobody, where its time was over.
    pub decided_by: Option<String>,
    /// What they noted.
    pub note: Option<String>,
}

/// A stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// JSON text of the body, without `seq` and `headHash`, which the record has.
    pub body: String,
}

/// The diff that a mutation left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its ID.
    pub artifact_id: ArtifactId,
    /// The diff.
    pub diff: Vec<u8>,
}

/// What became of an entry.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every one is a record")]
pub enum Appended {
    /// It is durable.
    Recorded(Record),
    /// Its claimed ID belongs to an earlier call with another tool or input; nothing was written.
    Reused,
    /// The same call has a reply under its claimed ID already; nothing was written. The first attempt's commit was in doubt.
    Repeated,
    /// The approval that it decides is not pending any more; nothing was written.
    NotPending,
    /// What it needs does not hold any more; nothing was written.
    PreconditionFailed(FailedPrecondition),
}

/// What became of entries that stand or fall together.
#[derive(Clone, Debug)]
pub enum AppendedAll {
    /// All are durable; their records, in order.
    Recorded(Vec<Record>),
    /// The claimed ID of the entry at this place belongs to an earlier call with another tool or input; nothing was written.
    Reused(usize),
    /// The same call as the entry at this index has a reply under its claimed ID already; nothing was written.
    Repeated(usize),
    /// An approval that one of them decides is not pending any more; nothing was written.
    NotPending,
    /// What one of them needs does not hold any more; nothing was written.
    PreconditionFailed(FailedPrecondition),
}

/// A call that was recorded.
#[derive(Clone, Debug)]
pub struct StoredCall {
    /// JSON text of the call's newest record: of one that was approved, the record that tells its outcome. A later call
    /// that was refused the ID does not count.
    pub record: String,
    /// `seq` of the record that tells the reply; of the first one under the ID where there is no reply.
    pub seq: u64,
    /// Hash of the record at `seq`.
    pub hash: Sha256,
    /// Its tool.
    pub tool: String,
    /// Hash of its canonical input.
    pub input_sha256: Sha256,
    /// What it was answered, if it was a mutation.
    pub reply: Option<Reply>,
}

/// Steps that the ledger still keeps.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// The run.
    pub run_id: RunId,
    /// The record that they belong to.
    pub seq: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Which records to list. Everything that is set must hold.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the names are the contract's")]
pub struct RecordFilter {
    pub run: Option<RunId>,
    pub tool: Option<String>,
    pub decision: Option<String>,
    pub outcome: Option<String>,
    /// Read or written by the call; one that ends with `/` stands for all beneath it.
    pub path: Option<String>,
    /// Not before, RFC 3339 UTC in the records' own form.
    pub since: Option<String>,
    /// Before.
    pub until: Option<String>,
}

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct StoredRecord {
    /// Its place over all runs; grows with time, may have gaps.
    pub position: i64,
    /// Its JSON text, `hash` included.
    pub text: String,
}

/// A run and what only the service sees of it.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// What its mutations have used up.
    pub usage: Usage,
    /// Physical places of its mounts, by name.
    pub mount_paths: Vec<(String, String)>,
    /// Whether its tree was changed from outside while a change was pending.
    pub needs_repair: bool,
}

/// What all runs together hold that are not deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// How many there are.
    pub runs: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// A run once none of its commits is under way any more.
#[derive(Clone, Debug)]
pub struct SettledRun {
    /// The run.
    pub stored: StoredRun,
    /// Steps that were not forgotten yet, by `seq`.
    pub journal: Vec<JournalEntry>,
}

/// What the service remembers. Every method is one transaction: all of it is durable, or none.
#[async_trait]
pub trait Ledger: CheckpointLog + Send + Sync {
    /// Stores a new run with its first token.
    async fn create_run(&self, run: &StoredRun, token: &Token) -> Result<()>;
    /// Ends a run's preparation: sets base commit and import report, and what the tree holds by it; state `open`. False where
    /// it is not preparing any more.
    async fn open_run(&self, run: &RunId, base_commit: &str, import: &ImportReport) -> Result<bool>;
    /// Sets a run's state; `closed_at` is set the first time that one is given. One that is deleted stays so.
    async fn set_run_state(&self, run: &RunId, state: RunState, closed_at: Option<&str>) -> Result<()>;
    /// Marks a run as changed from outside, or as settled.
    async fn set_needs_repair(&self, run: &RunId, needs_repair: bool) -> Result<()>;
    /// Sets what a run's tree holds; `None` where it is to be counted again.
    async fn set_disk_usage(&self, run: &RunId, disk: Option<Disk>) -> Result<()>;
    /// Runs that have files and whose files nobody has counted.
    async fn runs_without_disk_usage(&self) -> Result<Vec<RunId>>;
    /// What all runs that are not deleted hold.
    async fn storage_totals(&self) -> Result<StorageTotals>;
    /// One run.
    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>>;
    /// Runs in order of creation, behind `after`; each with its position for a cursor. One that cannot be read is left out.
    async fn runs(&self, state: Option<RunState>, after: Option<i64>, size: PageSize) -> Result<Page<(i64, Run)>>;
    /// The IDs of all runs behind `after`, in order of creation, each with its position; also of those whose head somebody
    /// has removed.
    async fn run_ids(&self, after: i64, limit: u32) -> Result<Vec<(i64, RunId)>>;
    /// How many runs have records, but are not there themselves, which only somebody past the ledger can have done.
    async fn orphaned_runs(&self) -> Result<u64>;
    /// Every run's ID whose files should be there: all but deleted ones.
    async fn live_runs(&self) -> Result<Vec<RunId>>;
    /// Runs that should have closed by themselves at `now`, RFC 3339 UTC.
    async fn expired_runs(&self, now: &str) -> Result<Vec<RunId>>;

    /// Stores a token.
    async fn create_token(&self, token: &Token) -> Result<()>;
    /// The token with this secret's hash.
    async fn token(&self, secret_sha256: &Sha256) -> Result<Option<Token>>;
    /// Hashes of tokens that are not revoked and have not expired at `now`, RFC 3339 UTC, in their order behind `after`.
    async fn token_hashes(&self, after: &Sha256, now: &str, limit: u32) -> Result<Vec<Sha256>>;
    /// Revokes a token; false where the run has none of that ID.
    async fn revoke_token(&self, run: &RunId, token: &TokenId) -> Result<bool>;

    /// Appends `entry` as its run's next record. Calls that wait at the same time share one commit.
    async fn append(&self, entry: Entry) -> Result<Appended>;
    /// Appends `entries`, which are of one run and claim no ID twice, as its next records: all in one transaction, or none.
    async fn append_all(&self, entries: Vec<Entry>) -> Result<AppendedAll>;
    /// The first call under an ID.
    async fn call(&self, run: &RunId, id: &ToolCallId) -> Result<Option<StoredCall>>;
    /// Records behind `after` that pass `filter`, in order.
    async fn records(&self, filter: &RecordFilter, after: Option<i64>, size: PageSize) -> Result<Page<StoredRecord>>;
    /// The record `seq` of a run.
    async fn record(&self, run: &RunId, seq: u64) -> Result<Option<StoredRecord>>;
    /// Records behind `since_seq` of a run's mutations that went well (dry runs too), in order.
    async fn changes(&self, run: &RunId, since_seq: u64, size: PageSize) -> Result<Page<StoredRecord>>;
    /// The newest record, up to `at_seq`, of a mutation of the run that went well and wrote exactly `path`; a dry run
    /// writes nothing.
    async fn last_change(&self, run: &RunId, path: &LogicalPath, at_seq: u64) -> Result<Option<StoredRecord>>;
    /// Checks a run's whole chain, and that what is indexed is what is hashed.
    async fn verify(&self, run: &RunId) -> Result<ChainReport>;
    /// The diff of an artifact.
    async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Option<Vec<u8>>>;
    /// The position of the newest record, told again whenever it grows.
    fn newest_position(&self) -> tokio::sync::watch::Receiver<i64>;

    /// Waits until no commit of `run` is under way, by whichever process and on whichever connection it was begun, then reads
    /// the run and its pending steps in one transaction. After a commit that was in doubt, this is the read that knows its
    /// outcome.
    ///
    /// # Errors
    ///
    /// `Unavailable` while the doubt lasts.
    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>>;
    /// Steps that were not forgotten yet, of one run or of all, by run and `seq`. A commit that is in doubt may add more.
    async fn pending_journal(&self, run: Option<&RunId>) -> Result<Vec<JournalEntry>>;
    /// Runs with steps that were not forgotten yet.
    async fn runs_with_pending_journal(&self) -> Result<Vec<RunId>>;
    /// Forgets steps whose files are synced.
    async fn prune(&self, done: &[(RunId, u64)]) -> Result<()>;
    /// The bytes with this hash that record `seq` of a run left in a file. `None` where it left none such, where they were
    /// staged in a file, or where the record is older than the keeping of contents.
    async fn content(&self, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Option<Vec<u8>>>;
    /// Removes what the records of a deleted run left in files, and its steps. This is the one method of more than one
    /// transaction: what is interrupted is finished by calling it again.
    ///
    /// # Errors
    ///
    /// Also where the run is not deleted.
    async fn purge_content(&self, run: &RunId) -> Result<()>;
    /// Deleted runs that still have contents or steps.
    async fn unpurged_runs(&self) -> Result<Vec<RunId>>;

    /// One approval.
    async fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>>;
    /// The input of the call that waits for an approval, as JSON.
    async fn approval_input(&self, id: &ApprovalId) -> Result<Option<String>>;
    /// Approvals in order of creation, behind `after`.
    async fn approvals(
        &self,
        state: Option<ApprovalState>,
        run: Option<&RunId>,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<Page<(i64, Approval)>>;
    /// ApprovalDecision a pending approval; false where it is not pending any more.
    async fn decide_approval(
        &self,
        id: &ApprovalId,
        state: ApprovalState,
        decided_by: Option<&str>,
        note: Option<&str>,
    ) -> Result<bool>;

    /// Approvals that are pending although their time is up at `now`, RFC 3339 UTC. An entry that [`ApprovalDecision`] them makes
    /// each an expired one, with its record.
    async fn expired_approvals(&self, now: &str, size: PageSize) -> Result<Page<Approval>>;

    /// A value that the service keeps across starts.
    async fn setting(&self, name: &str) -> Result<Option<String>>;
    /// Stores such a value where it has none; returns the one that is stored.
    async fn set_setting_once(&self, name: &str, value: &str) -> Result<String>;

    /// Makes `instance` the name under which the database is written to, where it is `known` now (`None`: no name yet); false
    /// where it is another. From then on every commit of this ledger is refused with [`LedgerError::Fenced`] as soon as the
    /// database has another instance's name. The name is stored as the setting [`INSTANCE`].
    async fn take_over(&self, known: Option<&str>, instance: &str) -> Result<bool>;

    /// Gives back memory that is held for speed alone. For times when nobody calls.
    async fn rest(&self) -> Result<()>;
    /// Whether the store answers.
    async fn ping(&self) -> Result<()>;
    /// Lets what was handed in become durable, then ends.
    async fn close(&self);
}

/// Opens the ledger at `url` (`sqlite://PATH` or `postgres://…`) and brings its tables up to date.
///
/// # Errors
///
/// Where the store cannot be opened, is newer than this program, its migrations were changed, or (SQLite) another process
/// has it open.
pub async fn open(url: &str) -> Result<Arc<dyn Ledger>> {
    if let Some(path) = url.strip_prefix("sqlite://") {
        let path = std::path::PathBuf::from(path);
        let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open(&path)).await;
        let sqlite = opened.map_err(|error| LedgerError::Internal(Box::new(error)))??;
        return Ok(Arc::new(store::Store(sqlite)));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(store::Store(postgres::Postgres::open(url).await?)));
    }
    Err(LedgerError::Internal("a database URL starts with sqlite://, postgres:// or postgresql://".into()))
}

/// Checks the chain of `run`, or of every run, and tells each report as it comes. True where all are intact.
///
/// # Errors
///
/// Where the store fails, or there is no such run.
pub async fn verify_all(ledger: &dyn Ledger, run: Option<&RunId>, mut tell: impl FnMut(&ChainReport)) -> Result<bool> {
    if let Some(run) = run {
        let report = ledger.verify(run).await?;
        tell(&report);
        return Ok(report.intact);
    }
    let (mut after, mut intact) = (0, true);
    loop {
        let page = ledger.run_ids(after, 100).await?;
        let Some((last, _)) = page.last() else { return Ok(intact) };
        after = *last;
        for (_, run) in page {
            let report = ledger.verify(&run).await?;
            tell(&report);
            intact &= report.intact;
        }
    }
}
