//! The entries that callers append, one per call, and the results.

pub(crate) mod packed;
pub(crate) mod prepared;

use model::{
    Approval, ApprovalId, ApprovalState, ArtifactId, BudgetOverrides, DiskChange, Draft, OperatorName, Record,
    RunState, Sha256, Step, TokenId, Usage,
};

use crate::{Epoch, KeyedAnswer, RunChange, Upload};

/// One call to append: its record, and everything that becomes durable with it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record, before it has a `seq` and a hash.
    pub draft: Draft,
    /// Hash of the call's canonical input. Calls with the same ID must have the same hash.
    pub input_sha256: Sha256,
    /// Whether the client supplied the call's ID, so that an earlier call may have the same ID.
    pub client_supplied_id: bool,
    /// The reply to return if the call is repeated. Only mutations have one.
    pub reply: Option<Reply>,
    /// The file changes. They stay in the journal until [`Ledger::prune`](crate::Ledger::prune); the contents remain readable
    /// by [`Ledger::content`](crate::Ledger::content).
    pub steps: Vec<Step>,
    /// The diff of the change.
    pub artifact: Option<Artifact>,
    /// The approval that the call requests, with the call's input as JSON.
    pub approval: Option<(Approval, String)>,
    /// The decision on a pending approval, or an operator's vote for it, which is stored in the same transaction.
    pub approval_decision: Option<ApprovalDecision>,
    /// What the call adds to the run's usage.
    pub usage: Usage,
    /// The budget of the run, of which webhooks are notified.
    pub run_budget: Option<BudgetOverrides>,
    /// By how much the call changes the size of the run's tree.
    pub disk: DiskChange,
    /// The epoch under which this node owns the run; `None` for a process that has not joined as a node.
    pub epoch: Option<Epoch>,
    /// What must hold in the transaction that appends the entry.
    pub preconditions: Preconditions,
    /// The change of the run that the entry records.
    pub run_change: Option<RunChange>,
    /// The content that the entry records, with its number of bytes in `event_bytes`.
    pub upload: Option<Upload>,
    /// For an event, the number of bytes that it counts. An event whose ID, tool and input are those of an earlier one is a
    /// repetition.
    pub event_bytes: Option<u64>,
    /// The objects in the object store that the run refers to from then on, until it is deleted: names of contents, and what the names
    /// of a base's parts begin with.
    pub objects: Vec<String>,
    /// The answer to the keyed request that the entry records, with the current time: RFC 3339 UTC with microseconds.
    pub keyed_answer: Option<(KeyedAnswer, String)>,
}

impl Entry {
    /// Returns the entry of a call without file changes, reply and preconditions.
    pub fn new(draft: Draft, input_sha256: Sha256) -> Self {
        Self {
            draft,
            input_sha256,
            client_supplied_id: false,
            reply: None,
            steps: Vec::new(),
            artifact: None,
            approval: None,
            approval_decision: None,
            usage: Usage::default(),
            run_budget: None,
            disk: DiskChange::default(),
            epoch: None,
            preconditions: Preconditions::default(),
            run_change: None,
            upload: None,
            event_bytes: None,
            objects: Vec::new(),
            keyed_answer: None,
        }
    }

    /// Returns whether the entry is a duplicate if a reply is already stored under the call's ID. A decision on an approval is
    /// never one: it adds a second record to the same call.
    pub(crate) fn is_deduplicated(&self) -> bool {
        self.client_supplied_id && self.reply.is_some() && self.approval_decision.is_none()
    }
}

/// What must hold in the transaction that appends an entry, although the service has checked it before. Empty by default.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    /// The run accepts mutations.
    pub open_run: bool,
    /// The caller's token is neither revoked nor expired.
    pub token: Option<RequiredToken>,
}

/// A token that must be valid when an entry is appended.
#[derive(Clone, Debug)]
pub struct RequiredToken {
    /// The token.
    pub holder: TokenHolder,
    /// When it expires, in the format of stored times.
    pub expires_at: Option<String>,
    /// Returns the current time in the same format.
    pub now: fn() -> String,
}

/// The token of a [`RequiredToken`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenHolder {
    /// A token of the entry's run.
    Run(TokenId),
    /// An operator's token, by its hash.
    Operator(Sha256),
}

/// The bound of a run's events that an append would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventQuota {
    /// Whether the bound is on bytes rather than on the number of events.
    pub is_bytes: bool,
    /// The bound.
    pub limit: u64,
    /// What the run would have.
    pub actual: u64,
}

/// The precondition that did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedPrecondition {
    /// The run is in a state that accepts no mutations.
    Run(RunState),
    /// The caller's token is revoked or expired.
    Token,
}

/// The decision on an approval.
#[derive(Clone, Debug)]
pub struct ApprovalDecision {
    /// The approval.
    pub approval_id: ApprovalId,
    /// Its new state; `Pending` if other operators must approve as well.
    pub state: ApprovalState,
    /// The operator who approves. Each approves once.
    pub voter: Option<OperatorName>,
    /// The operator who decided; `None` if it expired.
    pub decided_by: Option<String>,
    /// The person for whom that operator decided.
    pub on_behalf_of: Option<String>,
    /// Their note.
    pub note: Option<String>,
}

/// A stored reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body as JSON, without `seq` and `headHash`, which come from the record.
    pub body: String,
}

/// The diff of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its ID.
    pub artifact_id: ArtifactId,
    /// The diff.
    pub diff: Vec<u8>,
}

/// The result of appending entries in one transaction. Only `Recorded` writes anything.
#[derive(Clone, Debug)]
pub enum Appended {
    /// All entries are durable; their records, in order.
    Recorded(Vec<Record>),
    /// An earlier call with another tool or input has the client-supplied ID of the entry at this index.
    Reused(usize),
    /// The call of the entry at this index already has a reply under its client-supplied ID.
    Repeated(usize),
    /// An approval to decide is no longer pending.
    NotPending,
    /// A precondition of one of the entries does not hold.
    PreconditionFailed(FailedPrecondition),
    /// A [`RunChange`] or an [`Upload`] has no effect: the run is in that state, the token is revoked, or the content is
    /// stored.
    Unchanged,
    /// The run has no token to revoke.
    NoSuchToken,
    /// The run would have more events than it may have.
    EventQuotaExceeded(EventQuota),
}
