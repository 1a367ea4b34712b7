//! The ledger: everything that workspaced stores in a database.
//!
//! All SQL is in this crate. Other crates use one trait, [`Ledger`], with two backends: SQLite and PostgreSQL. The same tests run
//! on both.

mod backend;
mod by_address;
mod chain;
mod checkpoint;
mod commit_queue;
mod dump;
mod entry;
mod entry_rows;
mod error;
mod filter;
mod insert;
mod migrate;
mod newest_versions;
mod node;
mod packed;
mod postgres;
mod record_reader;
mod rows;
mod run_head;
mod sqlite;
mod statement;
mod store;
mod stored;
mod verify;

use async_trait::async_trait;
use model::{
    Approval, ApprovalId, ArtifactId, ChainReport, Disk, Fork, LogicalPath, OperatorName, OperatorToken, Record,
    RecordStats, Run, RunId, Sha256, Token, ToolCallId,
};
use shared_pool::SharedPool;

pub use by_address::{
    begin_load, check_postgres_url, database_address, open, open_snapshot, open_to_read, open_with, restore_target,
    schema,
};
pub use checkpoint::{AdvancedHead, CheckpointLog, NewCheckpoint, StoredCheckpoint, StoredLeaf};
pub use dump::{CopiedRun, DatabaseLoad, DatabaseSnapshot, DumpPart, RestoreTarget, SnapshotContents};
pub use entry::{
    Appended, Artifact, DecidedApproval, Entry, EntryObject, EventQuota, Expiry, HistoryExcess, HistoryQuota,
    HistoryUse, KeyedAnswer, ObjectHolder, OperatorChange, Preconditions, Records, Reply, RequiredToken, RunTransition,
    TokenHolder, UploadedContent,
};
pub use error::{FailedPrecondition, Fence, LedgerError};
pub use newest_versions::NewestVersion;
pub use node::{Epoch, Node, NodeIdentity, Role, RunOwner, StoredNode, Taken, TakenRole};
pub use postgres::AddressReader;
pub use record_reader::RecordReader;
pub use store::keyed_answers::KeyedAnswers;
pub use store::nodes::NodeLog;
pub use store::objects::{CLAIM_VALIDITY, ObjectLog};
pub use store::stats::StatsFilter;
pub use store::webhooks::{DeliveryAttempt, DueDelivery, GivenUp, WebhookLog};
pub use stored::{
    ApprovalFilter, ClosedRunKey, ConnectionCounts, JournalEntry, JournalledRun, LedgerPage, PageSize, RecordData,
    RecordFilter, RunFilter, SettledRun, StorageTotals, StoredCall, StoredRecord, StoredRun, Summary,
};

/// The setting that names the service instance that may write to the database: see [`Ledger::take_over`].
pub const INSTANCE: &str = "instance";

/// The result of every method.
pub type Result<T, E = LedgerError> = std::result::Result<T, E>;

/// What receives the records of [`Ledger::verify_each`].
pub type EachRecord<'a> = dyn for<'r> FnMut(&'r Record) + Send + 'a;

/// The database of the service. Unless its documentation says otherwise, a method is one transaction.
#[async_trait]
pub trait Ledger: CheckpointLog + KeyedAnswers + NodeLog + ObjectLog + WebhookLog + Send + Sync {
    /// Stores a new run with its first token, and appends `entries`: its first records, and for a fork that of the run that it is
    /// made from. Returns them.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is a run with this ID; `CreationRejected` if a precondition of the entries does not hold; or as
    /// for [`append`](Self::append).
    async fn create_run(&self, run: &StoredRun, token: &Token, entries: Vec<Entry>) -> Result<Vec<Record>>;
    /// Sets or clears, at `now` (RFC 3339, UTC), the mark that a run's tree was changed from outside. One that was not marked is
    /// announced to webhooks, once if several callers mark it at the same time.
    ///
    /// # Errors
    ///
    /// `NoSuchRun`.
    async fn set_needs_repair(&self, run: &RunId, needs_repair: bool, now: &str) -> Result<()>;
    /// Sets the disk usage of a run.
    async fn set_disk_usage(&self, run: &RunId, disk: Disk) -> Result<()>;
    /// Returns the number and total size of all runs that are not deleted, and the size of the history of all runs.
    async fn storage_totals(&self) -> Result<StorageTotals>;
    /// Counts the runs in each state and the pending approvals.
    async fn summary(&self) -> Result<Summary>;
    /// Returns the permits of queries for pages.
    fn page_queries(&self) -> &SharedPool;
    /// Returns the number of connections in use. No transaction.
    fn connections(&self) -> ConnectionCounts;
    /// Returns a run.
    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>>;
    /// Lists the runs after `after` that match `filter` in order of creation, each with its position for a cursor. Unreadable
    /// runs are skipped. Of runs that are created while a caller reads page after page, the pages may lack some.
    async fn runs(&self, filter: &RunFilter, after: Option<i64>, size: PageSize) -> Result<LedgerPage<(i64, Run)>>;
    /// Returns the newest `limit` forks of a run, the newest first.
    async fn forks(&self, run: &RunId, limit: u32) -> Result<Vec<Fork>>;
    /// Lists the IDs of all chains after `after` in order of creation, each with its position: those of runs, including runs whose head
    /// row was removed from the database, and the [service's own](RunId::service).
    async fn run_ids(&self, after: i64, limit: u32) -> Result<Vec<(i64, RunId)>>;
    /// Returns the number of runs that have records but no row of their own. Only direct access to the database can remove it.
    async fn orphaned_runs(&self) -> Result<u64>;
    /// Returns the runs that are not deleted. Their files must exist.
    async fn live_runs(&self) -> Result<Vec<RunId>>;
    /// Returns the runs that are not closed and expired at or before `now` (RFC 3339, UTC).
    async fn expired_runs(&self, now: &str) -> Result<Vec<RunId>>;

    /// Returns the token whose secret has this hash.
    async fn token(&self, secret_sha256: &Sha256) -> Result<Option<Token>> {
        Ok(self.tokens(std::slice::from_ref(secret_sha256)).await?.pop())
    }
    /// Returns the tokens whose secrets have these hashes, in no particular order.
    async fn tokens(&self, secrets_sha256: &[Sha256]) -> Result<Vec<Token>>;
    /// Lists the secret hashes after `after` of the tokens that are valid at `now` (RFC 3339, UTC), in order.
    async fn token_hashes(&self, after: &Sha256, now: &str, limit: u32) -> Result<Vec<Sha256>>;

    /// Appends the [change of an operator](Entry::operator_change) to the [service's own chain](RunId::service), for which `entry` must
    /// be. Changes of all processes are made one after the other. Returns false, and stores nothing, if no operator of that name is
    /// valid.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if a new operator has the name, in any letter case, of one that is not revoked, if the token is known, or if the
    /// key has an answer that has not expired; `CreationRejected` if a precondition of the entry does not hold.
    async fn change_operator(&self, entry: Entry) -> Result<bool>;
    /// Lists the operators after `after` in order of creation, each with its position, revoked ones included.
    async fn operators(&self, after: i64, limit: u32) -> Result<Vec<(i64, OperatorToken)>>;
    /// Returns the newest operator of that name, in any letter case.
    async fn operator(&self, name: &OperatorName) -> Result<Option<OperatorToken>>;

    /// Appends `entries`, all or none, as consecutive records of one run, beside which there may be one [of any
    /// owner](Entry::is_of_any_owner) in another chain. No two may have the same client-supplied ID.
    /// Concurrent appends share a commit.
    ///
    /// # Errors
    ///
    /// `NoSuchRun`; `RunMoved` if this process has [joined](NodeLog::join) as a node and does not own the run under the epoch of each
    /// entry; `ObjectNotReserved` if an object of an entry is not; `AlreadyExists` if the operator has an answer under the key of an entry's [`KeyedAnswer`] that has not expired.
    async fn append(&self, entries: Vec<Entry>) -> Result<Appended>;
    /// Returns the first call with this ID.
    async fn call(&self, run: &RunId, id: &ToolCallId) -> Result<Option<StoredCall>>;
    /// Lists the records after `after` that match `filter`, in order. With a condition that no index has, a page may have fewer items than
    /// asked for, or none, although more follow: go on at [`LedgerPage::resume`]. Oldest first over all runs, the list ends before a position that
    /// a commit in flight may still take, so that a caller that continues after its last record misses none. Newest first, it has
    /// every committed record; what a commit in flight adds among them is on no later page. The records of one run are complete in
    /// either order.
    async fn records(
        &self,
        filter: &RecordFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>>;
    /// Counts the records that match `filter`, by run, outcome and reason.
    async fn record_stats(&self, filter: &StatsFilter) -> Result<RecordStats>;
    /// Returns the record `seq` of a run.
    async fn record(&self, run: &RunId, seq: u64) -> Result<Option<StoredRecord>>;
    /// Lists the records after `since_seq` of a run's successful mutations, dry runs included, in order.
    async fn changes(&self, run: &RunId, since_seq: u64, size: PageSize) -> Result<LedgerPage<StoredRecord>>;
    /// Returns the newest record, up to `at_seq`, of a successful mutation of the run that wrote exactly `path`. Dry runs write
    /// nothing.
    async fn last_change(&self, run: &RunId, path: &LogicalPath, at_seq: u64) -> Result<Option<StoredRecord>>;
    /// Verifies a run's hash chain, and that the indexed columns and stored diffs agree with the hashed records.
    async fn verify(&self, run: &RunId) -> Result<ChainReport> {
        self.verify_each(run, &mut |_| ()).await
    }
    /// Verifies a run as [`verify`](Self::verify) does, and passes every valid record to `each`, in order.
    async fn verify_each(&self, run: &RunId, each: &mut EachRecord<'_>) -> Result<ChainReport>;
    /// Returns the diff of an artifact.
    async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Option<Vec<u8>>>;
    /// Returns the content with this digest that was uploaded to a run.
    async fn upload(&self, run: &RunId, sha256: &Sha256) -> Result<Option<Vec<u8>>>;
    /// Returns a receiver of the newest settled position, which is notified when it grows: every record up to there is visible, and
    /// none will be added. A commit of this process reaches it at once unless a commit of another process is in flight; a commit of
    /// another process reaches it shortly afterwards.
    fn newest_position(&self) -> tokio::sync::watch::Receiver<i64>;

    /// Waits until no commit to the tables of operators is in flight, on any connection of any process. After
    /// [`LedgerError::InDoubt`] later reads return the outcome of the commit.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `InDoubt` while a commit is still in flight.
    async fn settle_operators(&self) -> Result<()>;
    /// Waits until no commit of `run` is in flight, on any connection of any process, then reads the run and its pending
    /// journal. After [`LedgerError::InDoubt`] this read returns the outcome of the commit.
    ///
    /// # Errors
    ///
    /// `Unavailable` while a commit is still in flight.
    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>>;
    /// Returns the pending steps of one run or of all runs, by run and `seq`. A commit in flight may add more.
    async fn pending_journal(&self, run: Option<&RunId>) -> Result<Vec<JournalEntry>>;
    /// Returns the runs that have pending steps.
    async fn runs_with_pending_journal(&self) -> Result<Vec<RunId>>;
    /// Returns which records of `runs` have steps in the journal. Leaves out the runs that another process owns.
    async fn journalled(&self, runs: &[RunId]) -> Result<Vec<JournalledRun>>;
    /// Removes the steps of these records from the journal, once their files are synced. Several transactions if there are
    /// many.
    async fn prune(&self, done: &[(RunId, u64)]) -> Result<()>;
    /// Returns the content with this hash that record `seq` of a run wrote. `None` if the record did not write it, if it was
    /// staged in a file, or if the record was written by a version that did not store contents.
    async fn content(&self, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Option<Vec<u8>>>;
    /// Returns what the newest record that wrote a path has left there, for every path that records of the run have written, in no order.
    async fn newest_versions(&self, run: &RunId) -> Result<Vec<NewestVersion>>;
    /// Returns the record and the hash of each content of a run that [`content`](Self::content) returns, in no order.
    async fn stored_contents(&self, run: &RunId) -> Result<Vec<(u64, Sha256)>>;
    /// Lists the closed runs after `after` that were closed at or before `until` (RFC 3339, UTC), in the order of that time.
    async fn closed_runs(&self, until: &str, after: Option<&ClosedRunKey>, limit: u32) -> Result<Vec<ClosedRunKey>>;
    /// Returns what record `seq` of a run wrote besides itself: contents, its diff, an upload and its reply.
    async fn record_data(&self, run: &RunId, seq: u64) -> Result<Vec<RecordData>>;
    /// Removes the journal and the stored contents of a deleted run, and of an archived run the archived records with everything
    /// that belongs to them, in several transactions. If it is interrupted, call it again.
    ///
    /// # Errors
    ///
    /// `Internal` if the run is not deleted.
    async fn purge_content(&self, run: &RunId) -> Result<()>;
    /// Returns whether a run that is not deleted refers to `object` by an entry's [`objects`](Entry::objects).
    async fn is_object_referenced(&self, object: &str) -> Result<bool>;
    /// Returns whether the database permits [`purge_content`](Self::purge_content) to delete the records of archived runs: an
    /// append-only role does not.
    async fn can_delete_archived(&self) -> Result<bool>;
    /// Returns the deleted runs that still have contents or steps, and the archived runs that still have archived records.
    async fn unpurged_runs(&self) -> Result<Vec<RunId>>;

    /// Returns an approval.
    async fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>>;
    /// Returns the input, as JSON, of the call that requested an approval.
    async fn approval_input(&self, id: &ApprovalId) -> Result<Option<String>>;
    /// Lists the approvals after `after` that match `filter` in order of creation, each with its position for a cursor. Unreadable
    /// ones are skipped. Of approvals that are requested while a caller reads page after page, the pages may lack some.
    async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, Approval)>>;
    /// Lists the pending approvals that expired at or before `now` (RFC 3339, UTC). To expire one, append an entry with an
    /// [`DecidedApproval`].
    async fn expired_approvals(&self, now: &str, size: PageSize) -> Result<LedgerPage<Approval>>;

    /// Returns the value of a setting, which persists across restarts.
    async fn setting(&self, name: &str) -> Result<Option<String>>;
    /// Stores the value of a setting unless it has one. Returns the stored value.
    async fn set_setting_once(&self, name: &str, value: &str) -> Result<String>;

    /// Makes `instance` the only service instance that may write to the database, if the current one is `known` (`None`: no
    /// instance yet). Returns false if it is another. From then on, commits fail with [`LedgerError::Fenced`] as soon as
    /// another instance has taken over. The name is stored as the setting [`INSTANCE`].
    ///
    /// # Errors
    ///
    /// `Fenced` while a [node](NodeLog::join) is alive.
    async fn take_over(&self, known: Option<&str>, instance: &str) -> Result<bool>;

    /// Checks that the database responds and accepts writes.
    async fn ping(&self) -> Result<()>;
    /// Commits a change that means nothing, which shows whether a change of a run would be committed.
    async fn probe(&self) -> Result<()>;
    /// Commits everything that was submitted, then closes the database.
    async fn close(&self);
}

/// Verifies the chain of `run`, or of every run, and passes each report to `on_report`. Returns whether all are intact.
///
/// # Errors
///
/// If the database fails, or `run` does not exist.
pub async fn verify_all(
    ledger: &dyn Ledger,
    run: Option<&RunId>,
    mut on_report: impl FnMut(&ChainReport),
) -> Result<bool> {
    if let Some(run) = run {
        let report = ledger.verify(run).await?;
        on_report(&report);
        return Ok(report.intact);
    }
    let (mut after, mut intact) = (0, true);
    loop {
        let page = ledger.run_ids(after, 100).await?;
        let Some((last, _)) = page.last() else { return Ok(intact) };
        after = *last;
        for (_, run) in page {
            let report = ledger.verify(&run).await?;
            on_report(&report);
            intact &= report.intact;
        }
    }
}
