//! What callers append: one entry per call, and the possible outcomes.

use model::{
    Approval, ApprovalId, ApprovalState, ArtifactId, DiskChange, Draft, Record, RunState, Sha256, Step, TokenId, Usage,
};

/// One call to append: its record, and everything that becomes durable with it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record, before it has a `seq` and a hash.
    pub draft: Draft,
    /// Hash of the call's canonical input. Calls with the same ID must have the same hash.
    pub input_sha256: Sha256,
    /// Whether the client chose the call's ID, so that an earlier call may have it too.
    pub client_supplied_id: bool,
    /// The answer to repeat when the call is repeated. Only mutations have one.
    pub reply: Option<Reply>,
    /// The file changes. They stay in the journal until [`Ledger::prune`](crate::Ledger::prune); the contents remain readable
    /// by [`Ledger::content`](crate::Ledger::content).
    pub steps: Vec<Step>,
    /// The diff of the change.
    pub artifact: Option<Artifact>,
    /// The approval that the call requests, with the call's input as JSON.
    pub approval: Option<(Approval, String)>,
    /// The decision on a pending approval, which is stored in the same transaction.
    pub approval_decision: Option<ApprovalDecision>,
    /// What the call adds to the run's usage.
    pub usage: Usage,
    /// By how much the call changes the size of the run's tree.
    pub disk: DiskChange,
    /// What must hold in the transaction that appends the entry.
    pub preconditions: Preconditions,
}

impl Entry {
    /// Returns whether a reply that is already stored under the call's ID makes this entry a duplicate. A decision on an
    /// approval adds a second record to the same call, so it is not a duplicate.
    pub(crate) fn is_answered_once(&self) -> bool {
        self.client_supplied_id && self.reply.is_some() && self.approval_decision.is_none()
    }
}

/// What must hold in the transaction that appends an entry, even if the service checked it before. Empty by default.
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
    /// The token, which belongs to the entry's run.
    pub token_id: TokenId,
    /// When it expires, in the format of stored times.
    pub expires_at: Option<String>,
    /// Returns the current time in the same format.
    pub now: fn() -> String,
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
    /// Its new state.
    pub state: ApprovalState,
    /// Who decided; `None` if it expired.
    pub decided_by: Option<String>,
    /// Their note.
    pub note: Option<String>,
}

/// A stored answer.
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

/// The outcome of appending entries in one transaction. Only `Recorded` writes anything.
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
}
