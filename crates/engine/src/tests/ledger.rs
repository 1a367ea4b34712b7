//! A ledger that fails at one of its calls.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ledger::{
    AdvancedHead, Appended, ApprovalFilter, CheckpointLog, ClosedRunKey, ConnectionCounts, DeliveryAttempt,
    DueDelivery, EachRecord, Entry, Epoch, GivenUp, JournalEntry, JournalledRun, KeyedAnswer, KeyedAnswers, Ledger,
    LedgerError, LedgerPage, NewCheckpoint, Node, NodeIdentity, NodeLog, ObjectLog, PageSize, RecordData, RecordFilter,
    Result, Role, RunFilter, RunOwner, SettledRun, StorageTotals, StoredCall, StoredCheckpoint, StoredLeaf, StoredNode,
    StoredRecord, StoredRun, Summary, Taken, TakenRole, WebhookLog,
};
use model::{
    Approval, ApprovalId, ArtifactId, ChainReport, Disk, Fork, LogicalPath, OperatorName, OperatorToken, Record, Run,
    RunId, Sha256, Token, ToolCallId, WebhookDelivery, WebhookEvent, WebhookMessage,
};

/// How a call of the ledger fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureMode {
    /// It does nothing.
    Unavailable,
    /// It takes effect, and the caller does not learn it.
    InDoubt,
    /// Before it, the run is taken from this node, and given back.
    Moved,
}

/// Passes calls to a real ledger. The call with the armed number fails.
pub(crate) struct FailingLedger {
    inner: Arc<dyn Ledger>,
    calls: AtomicU64,
    fail_at: AtomicU64,
    mode: Mutex<FailureMode>,
    /// The run that moves.
    moving: Mutex<Option<RunId>>,
    has_failed: AtomicBool,
    /// The other node that owns each run that is to be taken, if there is one.
    other: Mutex<Option<RunOwner>>,
    /// What is looked at before records are appended.
    observer: Mutex<Option<Observer>>,
}

type Observer = Box<dyn Fn() + Send>;

impl FailingLedger {
    pub(crate) fn new(inner: Arc<dyn Ledger>) -> Self {
        let (calls, fail_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let mode = Mutex::new(FailureMode::Unavailable);
        let (moving, other, has_failed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { inner, calls, fail_at, mode, moving, has_failed, other, observer: Mutex::default() }
    }

    /// Calls `observer` before records are appended.
    pub(crate) fn observe(&self, observer: impl Fn() + Send + 'static) {
        *self.observer.lock().unwrap() = Some(Box::new(observer));
    }

    /// Makes the call number `number` from now on fail, counted from 0.
    pub(crate) fn arm(&self, number: u64, mode: FailureMode) {
        self.has_failed.store(false, Ordering::SeqCst);
        *self.mode.lock().unwrap() = mode;
        self.calls.store(0, Ordering::SeqCst);
        self.fail_at.store(number, Ordering::SeqCst);
    }

    /// As [`arm`](Self::arm). `run` is the run that moves, if it does.
    pub(crate) fn arm_for(&self, run: &RunId, number: u64, mode: FailureMode) {
        *self.moving.lock().unwrap() = Some(run.clone());
        self.arm(number, mode);
    }

    /// Lets `other` be the owner of each run that is to be taken.
    pub(crate) fn set_other(&self, other: Option<RunOwner>) {
        *self.other.lock().unwrap() = other;
    }

    /// Takes the run from this node.
    pub(crate) async fn lose(&self, run: &RunId) {
        if let Some(owner) = self.inner.owner(run).await.unwrap() {
            self.inner.give_back(&[(run.clone(), owner.epoch)]).await.unwrap();
        }
    }

    /// Lets all calls pass. Returns whether one has failed.
    pub(crate) fn disarm(&self) -> bool {
        self.fail_at.store(u64::MAX, Ordering::SeqCst);
        self.has_failed.load(Ordering::SeqCst)
    }

    async fn pass<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        if self.calls.fetch_add(1, Ordering::SeqCst) != self.fail_at.load(Ordering::SeqCst) {
            return call.await;
        }
        self.has_failed.store(true, Ordering::SeqCst);
        let (mode, moving) = (*self.mode.lock().unwrap(), self.moving.lock().unwrap().clone());
        match (mode, moving) {
            (FailureMode::InDoubt, _) => {
                call.await?;
                Err(LedgerError::InDoubt("armed".into()))
            }
            (FailureMode::Moved, Some(run)) => {
                self.lose(&run).await;
                call.await
            }
            (FailureMode::Unavailable | FailureMode::Moved, _) => Err(LedgerError::Unavailable("armed".into())),
        }
    }
}

#[async_trait]
impl CheckpointLog for FailingLedger {
    async fn advanced_heads(&self, after: i64, to: i64) -> Result<Vec<AdvancedHead>> {
        self.pass(self.inner.advanced_heads(after, to)).await
    }

    async fn append_checkpoint(&self, new: NewCheckpoint) -> Result<()> {
        self.pass(self.inner.append_checkpoint(new)).await
    }

    async fn latest_checkpoint(&self) -> Result<Option<StoredCheckpoint>> {
        self.pass(self.inner.latest_checkpoint()).await
    }

    async fn checkpoints(&self, size: u64, limit: u32) -> Result<Vec<StoredCheckpoint>> {
        self.pass(self.inner.checkpoints(size, limit)).await
    }

    async fn leaves(&self, run: Option<&RunId>, from: u64, limit: u32) -> Result<Vec<StoredLeaf>> {
        self.pass(self.inner.leaves(run, from, limit)).await
    }

    async fn covering_leaf(&self, run: &RunId, seq: u64, size: u64) -> Result<Option<StoredLeaf>> {
        self.pass(self.inner.covering_leaf(run, seq, size)).await
    }

    async fn node_hashes(&self, indexes: &[u64]) -> Result<HashMap<u64, Sha256>> {
        self.pass(self.inner.node_hashes(indexes)).await
    }

    async fn record_range(
        &self,
        run: &RunId,
        first: u64,
        last: u64,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        self.pass(self.inner.record_range(run, first, last, size)).await
    }
}

#[async_trait]
impl WebhookLog for FailingLedger {
    async fn set_webhooks(&self, webhooks: &[(String, Vec<WebhookEvent>)]) -> Result<()> {
        self.pass(self.inner.set_webhooks(webhooks)).await
    }

    async fn notify(&self, message: &WebhookMessage) -> Result<()> {
        self.pass(self.inner.notify(message)).await
    }

    async fn enqueue_refused_calls(&self, webhook: &str) -> Result<bool> {
        self.pass(self.inner.enqueue_refused_calls(webhook)).await
    }

    async fn due_deliveries(&self, webhook: &str, now: &str, limit: u32) -> Result<Vec<DueDelivery>> {
        self.pass(self.inner.due_deliveries(webhook, now, limit)).await
    }

    async fn record_attempt(&self, due: &DueDelivery, attempt: DeliveryAttempt) -> Result<()> {
        self.pass(self.inner.record_attempt(due, attempt)).await
    }

    async fn deliveries(
        &self,
        webhook: &str,
        newest_first: bool,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, WebhookDelivery)>> {
        self.pass(self.inner.deliveries(webhook, newest_first, after, size)).await
    }

    async fn redeliver(&self, webhook: &str, message_id: &str, now: &str) -> Result<Option<WebhookDelivery>> {
        self.pass(self.inner.redeliver(webhook, message_id, now)).await
    }

    async fn pending_deliveries(&self) -> Result<Vec<(String, u64)>> {
        self.pass(self.inner.pending_deliveries()).await
    }

    async fn give_up_deliveries(&self, webhook: &str, before: &str) -> Result<GivenUp> {
        self.pass(self.inner.give_up_deliveries(webhook, before)).await
    }

    async fn prune_deliveries(&self, before: &str) -> Result<()> {
        self.pass(self.inner.prune_deliveries(before)).await
    }
}

#[async_trait]
impl KeyedAnswers for FailingLedger {
    async fn keyed_answer(&self, operator: &str, key_sha256: &Sha256, now: &str) -> Result<Option<KeyedAnswer>> {
        self.pass(self.inner.keyed_answer(operator, key_sha256, now)).await
    }

    async fn delete_expired_answers(&self, now: &str) -> Result<()> {
        self.pass(self.inner.delete_expired_answers(now)).await
    }
}

#[async_trait]
impl ObjectLog for FailingLedger {
    async fn reserve_object(&self, object: &str) -> Result<Option<i64>> {
        self.pass(self.inner.reserve_object(object)).await
    }

    async fn claim_object(&self, object: &str, claim: &str, unused_for: Duration) -> Result<bool> {
        self.pass(self.inner.claim_object(object, claim, unused_for)).await
    }

    async fn renew_claim(&self, object: &str, claim: &str) -> Result<bool> {
        self.pass(self.inner.renew_claim(object, claim)).await
    }

    async fn end_claim(&self, object: &str, claim: &str) -> Result<()> {
        self.pass(self.inner.end_claim(object, claim)).await
    }

    async fn end_references(&self) -> Result<u64> {
        self.pass(self.inner.end_references()).await
    }
}

#[async_trait]
impl NodeLog for FailingLedger {
    async fn join(
        &self,
        identity: &NodeIdentity,
        known: Option<&str>,
        instance: &str,
        lease: Duration,
    ) -> Result<Option<Node>> {
        self.pass(self.inner.join(identity, known, instance, lease)).await
    }

    fn node(&self) -> Option<&Node> {
        self.inner.node()
    }

    async fn heartbeat(&self, lease: Duration) -> Result<bool> {
        self.pass(self.inner.heartbeat(lease)).await
    }

    async fn leave(&self) -> Result<()> {
        self.pass(self.inner.leave()).await
    }

    async fn nodes(&self) -> Result<Vec<StoredNode>> {
        self.pass(self.inner.nodes()).await
    }

    async fn owner(&self, run: &RunId) -> Result<Option<RunOwner>> {
        self.pass(self.inner.owner(run)).await
    }

    async fn current_epochs(&self, run: &RunId) -> Result<RangeInclusive<u64>> {
        self.pass(self.inner.current_epochs(run)).await
    }

    async fn open_files(&self, run: &RunId, epoch: Epoch) -> Result<()> {
        self.pass(self.inner.open_files(run, epoch)).await
    }

    async fn take_run(&self, run: &RunId) -> Result<Taken> {
        let other = self.other.lock().unwrap().clone();
        if let Some(other) = other
            && self.inner.owner(run).await?.is_none()
        {
            return Ok(Taken::OwnedBy(other));
        }
        self.pass(self.inner.take_run(run)).await
    }

    async fn give_back(&self, runs: &[(RunId, Epoch)]) -> Result<()> {
        self.pass(self.inner.give_back(runs)).await
    }

    async fn give_back_except(&self, kept: &[RunId]) -> Result<()> {
        self.pass(self.inner.give_back_except(kept)).await
    }

    async fn take_role(&self, role: Role) -> Result<TakenRole> {
        self.pass(self.inner.take_role(role)).await
    }

    async fn give_back_role(&self, role: Role, epoch: Epoch) -> Result<()> {
        self.pass(self.inner.give_back_role(role, epoch)).await
    }
}

#[async_trait]
impl Ledger for FailingLedger {
    async fn create_run(&self, run: &StoredRun, token: &Token, entries: Vec<Entry>) -> Result<Vec<Record>> {
        self.pass(self.inner.create_run(run, token, entries)).await
    }

    async fn set_needs_repair(&self, run: &RunId, needs_repair: bool, now: &str) -> Result<()> {
        self.pass(self.inner.set_needs_repair(run, needs_repair, now)).await
    }

    async fn set_disk_usage(&self, run: &RunId, disk: Disk) -> Result<()> {
        self.pass(self.inner.set_disk_usage(run, disk)).await
    }

    async fn summary(&self) -> Result<Summary> {
        self.pass(self.inner.summary()).await
    }

    fn page_queries(&self) -> &shared_pool::SharedPool {
        self.inner.page_queries()
    }

    fn connections(&self) -> ConnectionCounts {
        self.inner.connections()
    }

    async fn storage_totals(&self) -> Result<StorageTotals> {
        self.pass(self.inner.storage_totals()).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>> {
        self.pass(self.inner.run(run)).await
    }

    async fn runs(&self, filter: &RunFilter, after: Option<i64>, size: PageSize) -> Result<LedgerPage<(i64, Run)>> {
        self.pass(self.inner.runs(filter, after, size)).await
    }

    async fn forks(&self, run: &RunId, limit: u32) -> Result<Vec<Fork>> {
        self.pass(self.inner.forks(run, limit)).await
    }

    async fn run_ids(&self, after: i64, limit: u32) -> Result<Vec<(i64, RunId)>> {
        self.pass(self.inner.run_ids(after, limit)).await
    }

    async fn orphaned_runs(&self) -> Result<u64> {
        self.pass(self.inner.orphaned_runs()).await
    }

    async fn live_runs(&self) -> Result<Vec<RunId>> {
        self.pass(self.inner.live_runs()).await
    }

    async fn expired_runs(&self, now: &str) -> Result<Vec<RunId>> {
        self.pass(self.inner.expired_runs(now)).await
    }

    async fn tokens(&self, secrets_sha256: &[Sha256]) -> Result<Vec<Token>> {
        self.pass(self.inner.tokens(secrets_sha256)).await
    }

    async fn token_hashes(&self, after: &Sha256, now: &str, limit: u32) -> Result<Vec<Sha256>> {
        self.pass(self.inner.token_hashes(after, now, limit)).await
    }

    async fn change_operator(&self, entry: Entry) -> Result<bool> {
        self.pass(self.inner.change_operator(entry)).await
    }

    async fn settle_operators(&self) -> Result<()> {
        self.pass(self.inner.settle_operators()).await
    }

    async fn operators(&self, after: i64, limit: u32) -> Result<Vec<(i64, OperatorToken)>> {
        self.pass(self.inner.operators(after, limit)).await
    }

    async fn operator(&self, name: &OperatorName) -> Result<Option<OperatorToken>> {
        self.pass(self.inner.operator(name)).await
    }

    async fn append(&self, entries: Vec<Entry>) -> Result<Appended> {
        if let Some(observer) = &*self.observer.lock().unwrap() {
            observer();
        }
        self.pass(self.inner.append(entries)).await
    }

    async fn call(&self, run: &RunId, id: &ToolCallId) -> Result<Option<StoredCall>> {
        self.pass(self.inner.call(run, id)).await
    }

    async fn records(
        &self,
        filter: &RecordFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        self.pass(self.inner.records(filter, after, size)).await
    }

    async fn record(&self, run: &RunId, seq: u64) -> Result<Option<StoredRecord>> {
        self.pass(self.inner.record(run, seq)).await
    }

    async fn changes(&self, run: &RunId, since_seq: u64, size: PageSize) -> Result<LedgerPage<StoredRecord>> {
        self.pass(self.inner.changes(run, since_seq, size)).await
    }

    async fn newest_versions(&self, run: &RunId) -> Result<Vec<ledger::NewestVersion>> {
        self.pass(self.inner.newest_versions(run)).await
    }

    async fn last_change(&self, run: &RunId, path: &LogicalPath, at_seq: u64) -> Result<Option<StoredRecord>> {
        self.pass(self.inner.last_change(run, path, at_seq)).await
    }

    async fn verify_each(&self, run: &RunId, each: &mut EachRecord<'_>) -> Result<ChainReport> {
        self.pass(self.inner.verify_each(run, each)).await
    }

    async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Option<Vec<u8>>> {
        self.pass(self.inner.artifact(run, id)).await
    }

    async fn upload(&self, run: &RunId, sha256: &Sha256) -> Result<Option<Vec<u8>>> {
        self.pass(self.inner.upload(run, sha256)).await
    }

    fn newest_position(&self) -> tokio::sync::watch::Receiver<i64> {
        self.inner.newest_position()
    }

    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        self.pass(self.inner.settled_run(run)).await
    }

    async fn pending_journal(&self, run: Option<&RunId>) -> Result<Vec<JournalEntry>> {
        self.pass(self.inner.pending_journal(run)).await
    }

    async fn runs_with_pending_journal(&self) -> Result<Vec<RunId>> {
        self.pass(self.inner.runs_with_pending_journal()).await
    }

    async fn journalled(&self, runs: &[RunId]) -> Result<Vec<JournalledRun>> {
        self.pass(self.inner.journalled(runs)).await
    }

    async fn prune(&self, done: &[(RunId, u64)]) -> Result<()> {
        self.pass(self.inner.prune(done)).await
    }

    async fn content(&self, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Option<Vec<u8>>> {
        self.pass(self.inner.content(run, seq, sha256)).await
    }

    async fn stored_contents(&self, run: &RunId) -> Result<Vec<(u64, Sha256)>> {
        self.pass(self.inner.stored_contents(run)).await
    }

    async fn purge_content(&self, run: &RunId) -> Result<()> {
        self.pass(self.inner.purge_content(run)).await
    }

    async fn closed_runs(&self, until: &str, after: Option<&ClosedRunKey>, limit: u32) -> Result<Vec<ClosedRunKey>> {
        self.pass(self.inner.closed_runs(until, after, limit)).await
    }

    async fn record_data(&self, run: &RunId, seq: u64) -> Result<Vec<RecordData>> {
        self.pass(self.inner.record_data(run, seq)).await
    }

    async fn is_object_referenced(&self, object: &str) -> Result<bool> {
        self.pass(self.inner.is_object_referenced(object)).await
    }

    async fn can_delete_archived(&self) -> Result<bool> {
        self.pass(self.inner.can_delete_archived()).await
    }

    async fn unpurged_runs(&self) -> Result<Vec<RunId>> {
        self.pass(self.inner.unpurged_runs()).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>> {
        self.pass(self.inner.approval(id)).await
    }

    async fn approval_input(&self, id: &ApprovalId) -> Result<Option<String>> {
        self.pass(self.inner.approval_input(id)).await
    }

    async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, Approval)>> {
        self.pass(self.inner.approvals(filter, after, size)).await
    }

    async fn expired_approvals(&self, now: &str, size: PageSize) -> Result<LedgerPage<Approval>> {
        self.pass(self.inner.expired_approvals(now, size)).await
    }

    async fn setting(&self, name: &str) -> Result<Option<String>> {
        self.pass(self.inner.setting(name)).await
    }

    async fn set_setting_once(&self, name: &str, value: &str) -> Result<String> {
        self.pass(self.inner.set_setting_once(name, value)).await
    }

    async fn take_over(&self, known: Option<&str>, instance: &str) -> Result<bool> {
        self.pass(self.inner.take_over(known, instance)).await
    }

    async fn ping(&self) -> Result<()> {
        self.pass(self.inner.ping()).await
    }

    async fn record_stats(&self, filter: &ledger::StatsFilter) -> Result<model::RecordStats> {
        self.pass(self.inner.record_stats(filter)).await
    }

    async fn probe(&self) -> Result<()> {
        self.pass(self.inner.probe()).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
