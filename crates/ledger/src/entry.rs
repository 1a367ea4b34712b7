//! The entries that callers append, one per call, what they change beside files, and the results.

use std::collections::BTreeMap;
use std::ops::Deref;

use model::{
    Approval, ApprovalId, ApprovalState, ApprovalVote, ArtifactId, BudgetOverrides, By, DiskChange, Draft,
    ImportReport, LogicalPath, OperatorName, OperatorToken, Quota, Record, Sha256, Step, Token, TokenId, Usage,
};

use crate::error::FailedPrecondition;
use crate::node::Epoch;
use crate::statement::to_count;

/// One call to append: its record, and everything that becomes durable with it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record, before it has a `seq` and a hash.
    pub draft: Draft,
    /// Hash of the call's canonical input; zero if nothing compares it. Calls with the same ID must have the same hash.
    pub input_sha256: Sha256,
    /// Whether the client supplied the call's ID, so that an earlier call may have the same ID.
    pub client_supplied_id: bool,
    /// Whether the call only reads. Such a record is on disk shortly after its commit, whose caller does not wait for the disk.
    pub only_reads: bool,
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
    pub approval_decision: Option<DecidedApproval>,
    /// What the call adds to the run's usage.
    pub usage: Usage,
    /// The budget of the run, of which webhooks are notified.
    pub run_budget: Option<BudgetOverrides>,
    /// By how much the call changes the size of the run's tree.
    pub disk: DiskChange,
    /// By how much the call changes the size of the files that the run has written.
    pub own_disk: DiskChange,
    /// Whose call counts: that of the agent, also where a person has approved it and is the actor.
    pub by: By,
    /// The epoch under which this node owns the run; `None` for a process that has not joined as a node.
    pub epoch: Option<Epoch>,
    /// Whether any node may append the entry, whichever owns the run: it says what was done with the run elsewhere, and changes none of
    /// its files.
    pub is_of_any_owner: bool,
    /// What must hold in the transaction that appends the entry.
    pub preconditions: Preconditions,
    /// The change of the run that the entry records.
    pub run_change: Option<RunTransition>,
    /// The change of an operator that the entry of the service's own chain records.
    pub operator_change: Option<Box<OperatorChange>>,
    /// The content that the entry records, with its number of bytes in `event_bytes`.
    pub upload: Option<UploadedContent>,
    /// For an event, the number of bytes that it counts. An event whose ID, tool and input are those of an earlier one is a
    /// repetition.
    pub event_bytes: Option<u64>,
    /// The objects in the object store that the run refers to from then on, until it is deleted: contents, and the folder of its base's
    /// index, which names the contents of the base.
    pub objects: Vec<EntryObject>,
    /// The paths whose content before the call was an object that they [held](ObjectHolder::Path). They have it no longer.
    pub left_paths: Vec<LogicalPath>,
    /// The answer to the keyed request that the entry records, with the current time: RFC 3339 UTC with microseconds.
    pub keyed_answer: Option<(KeyedAnswer, String)>,
}

impl Entry {
    /// Returns the entry of a call without file changes, reply and preconditions.
    pub fn new(draft: Draft, input_sha256: Sha256) -> Self {
        Self {
            by: draft.made_by(),
            draft,
            input_sha256,
            client_supplied_id: false,
            only_reads: false,
            reply: None,
            steps: Vec::new(),
            artifact: None,
            approval: None,
            approval_decision: None,
            usage: Usage::default(),
            run_budget: None,
            disk: DiskChange::default(),
            own_disk: DiskChange::default(),
            epoch: None,
            is_of_any_owner: false,
            preconditions: Preconditions::default(),
            run_change: None,
            operator_change: None,
            upload: None,
            event_bytes: None,
            objects: Vec::new(),
            left_paths: Vec::new(),
            keyed_answer: None,
        }
    }

    /// Returns whether the entry is a duplicate if a reply is already stored under the call's ID. A decision on an approval is
    /// never one: it adds a second record to the same call.
    pub(crate) fn is_deduplicated(&self) -> bool {
        self.client_supplied_id && self.reply.is_some() && self.approval_decision.is_none()
    }
}

/// An object of the object store that an entry refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryObject {
    /// The name of a content, or the folder of a base's index.
    pub name: String,
    /// The [reservation](crate::ObjectLog::reserve_object) under which it was put.
    pub reservation: i64,
    /// What it counts in the history of the run: its size, or nothing for a base.
    pub size_bytes: u64,
    /// What needs it.
    pub holder: ObjectHolder,
}

/// What needs an object of a run. Its reference ends with the last of its holders, unless one of them is the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectHolder {
    /// The run, until it is deleted.
    Run,
    /// A path, until it has another content.
    Path(LogicalPath),
}

impl ObjectHolder {
    /// Returns the name under which a holder other than the run is stored.
    pub(crate) fn stored_name(&self) -> Option<Sha256> {
        match self {
            Self::Run => None,
            Self::Path(path) => Some(Sha256::of(path.as_str().as_bytes())),
        }
    }
}

/// The bounds of a run's history, of its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuota {
    /// Bytes of the rows in the database, and of objects.
    pub max_bytes: u64,
    /// Records.
    pub max_records: u64,
}

/// The bound of a run's history that an append would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryExcess {
    /// Whether the bound is on bytes rather than on the number of records.
    pub is_bytes: bool,
    /// The bound.
    pub limit: u64,
    /// What the run would have.
    pub actual: u64,
}

impl HistoryQuota {
    /// Bytes for the refusals of a run whose quota is used up.
    pub const RESERVE_BYTES: u64 = 1 << 20;
    /// Records for the refusals of a run whose quota is used up.
    pub const RESERVE_RECORDS: u64 = 100;

    /// Returns the bounds of a policy's quota.
    pub fn of(quota: &Quota) -> Self {
        Self { max_bytes: quota.max_history_bytes, max_records: quota.max_records }
    }

    /// Returns the stored bounds. Runs of earlier versions have none, and the defaults apply.
    pub(crate) fn stored(max_bytes: Option<i64>, max_records: Option<i64>) -> Self {
        let default = Self::of(&Quota::default());
        Self {
            max_bytes: max_bytes.map_or(default.max_bytes, to_count),
            max_records: max_records.map_or(default.max_records, to_count),
        }
    }

    /// Returns the bound that a history of this size exceeds, with or without the reserve.
    pub fn exceeded(&self, bytes: u64, records: u64, reserve: bool) -> Option<HistoryExcess> {
        let (more_bytes, more_records) = if reserve { (Self::RESERVE_BYTES, Self::RESERVE_RECORDS) } else { (0, 0) };
        if records > self.max_records.saturating_add(more_records) {
            return Some(HistoryExcess { is_bytes: false, limit: self.max_records, actual: records });
        }
        let is_over = bytes > self.max_bytes.saturating_add(more_bytes);
        is_over.then_some(HistoryExcess { is_bytes: true, limit: self.max_bytes, actual: bytes })
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

/// The decision on an approval.
#[derive(Clone, Debug)]
pub struct DecidedApproval {
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
    /// The votes that have decided; `None` if none had to.
    pub votes: Option<Vec<ApprovalVote>>,
    /// How many records after the decision's own the changes of the person who decided begin; `None` if there are none.
    pub edits_after: Option<u64>,
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
    Recorded(Records),
    /// An earlier call with another tool or input has the client-supplied ID of the entry at this index.
    Reused(usize),
    /// The call of the entry at this index already has a reply under its client-supplied ID.
    Repeated(usize),
    /// An approval to decide is no longer pending.
    NotPending,
    /// A precondition of one of the entries does not hold.
    PreconditionFailed(FailedPrecondition),
    /// A [`RunTransition`] or an [`UploadedContent`] has no effect: the run is in that state, the token is revoked, or the content is
    /// stored.
    Unchanged,
    /// The run has no token to revoke.
    NoSuchToken,
    /// The run would have more events than it may have.
    EventQuotaExceeded(EventQuota),
    /// The run's history would exceed its quota.
    HistoryQuotaExceeded(HistoryExcess),
}

/// The records of appended entries, in order.
#[derive(Clone, Debug)]
pub struct Records {
    pub(crate) records: Vec<Record>,
    /// What they added to the history of their run.
    pub history: HistoryUse,
}

/// The bytes of a run's history after an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryUse {
    /// Those that the append added.
    pub added_bytes: u64,
    /// All of them.
    pub bytes: u64,
}

impl Deref for Records {
    type Target = Vec<Record>;

    fn deref(&self) -> &Vec<Record> {
        &self.records
    }
}

impl From<Records> for Vec<Record> {
    fn from(records: Records) -> Self {
        records.records
    }
}

impl IntoIterator for Records {
    type Item = Record;
    type IntoIter = std::vec::IntoIter<Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.into_iter()
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = &'a Record;
    type IntoIter = std::slice::Iter<'a, Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.iter()
    }
}

/// A change of the entry's run. A change that would have no effect is not recorded: the append returns
/// [`Appended::Unchanged`](Appended::Unchanged).
#[derive(Clone, Debug)]
pub enum RunTransition {
    /// Opens a run that is being prepared: sets its base commit, its import report and the size of its tree.
    Open {
        /// The base commit.
        base_commit: String,
        /// The import report.
        import: ImportReport,
    },
    /// Closes a run that is being prepared: its import has failed, as the report says.
    FailImport {
        /// When, RFC 3339 UTC.
        at: String,
        /// The import report.
        import: ImportReport,
    },
    /// Stores the import report of a run that is being prepared and whose import begins again.
    ResumeImport {
        /// The import report.
        import: ImportReport,
    },
    /// Closes the run, unless it is closed or deleted.
    Close {
        /// When, RFC 3339 UTC. Stored unless the run has such a time.
        at: String,
    },
    /// Closes a run that expires at this time, RFC 3339 UTC, unless it is closed or deleted, or another time is stored meanwhile.
    Expire {
        /// The time that has passed.
        expires_at: String,
    },
    /// Deletes the run, unless it is deleted. It stays deleted.
    Delete {
        /// When, as for [`Close`](Self::Close).
        at: String,
    },
    /// Marks a closed run as archived, if its head is still the archived one. It is deleted then, and stays archived.
    Archive {
        /// When, RFC 3339 UTC.
        at: String,
        /// The archive.
        uri: String,
        /// `seq` of the last archived record.
        head_seq: u64,
        /// The hash of that record.
        head_hash: Sha256,
    },
    /// Stores another token of the run, which must not be deleted.
    IssueToken(Token),
    /// Revokes a token of the run, unless it is revoked.
    RevokeToken(TokenId),
    /// Revokes every token of the run, which must not be deleted.
    RevokeAllTokens,
    /// Notes that a fork of the run, which must not be deleted, is made.
    Fork,
    /// Notes that the changes of a fork, which must not be deleted, are merged into its parent up to its record `seq`.
    Merge {
        /// The number of that record.
        seq: u64,
    },
    /// Replaces the labels or the expiry time of a run that is not deleted. A closed run has no expiry time to replace.
    Update {
        /// The new labels.
        labels: Option<BTreeMap<String, String>>,
        /// The new expiry time.
        expires_at: Option<Expiry>,
    },
}

/// When a run expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// RFC 3339 UTC.
    At(String),
}

impl From<Expiry> for Option<String> {
    fn from(expiry: Expiry) -> Self {
        match expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(time),
        }
    }
}

/// Content that a caller uploaded, stored by its digest.
#[derive(Clone, Debug)]
pub struct UploadedContent {
    /// The digest, which is that of `bytes`.
    pub sha256: Sha256,
    /// The content.
    pub bytes: Vec<u8>,
}

/// A change of an operator.
#[derive(Clone, Debug)]
pub enum OperatorChange {
    /// Stores an operator.
    Create {
        /// The operator with its token.
        token: OperatorToken,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Replaces the token of a valid operator.
    ReplaceToken {
        /// The operator with its new token.
        token: OperatorToken,
        /// When the present token ends, RFC 3339 UTC.
        ends_at: String,
        /// Whether the present token is valid until then, and earlier ones until they end. Otherwise `ends_at` is the current time, at
        /// which every token of the operator is revoked.
        is_valid_until: bool,
        /// The answer to the keyed request for it, with the current time.
        answer: Option<(KeyedAnswer, String)>,
    },
    /// Revokes a valid operator with every token of it. Its earlier votes for pending approvals no longer count.
    Revoke {
        /// The operator's name, in any letter case.
        name: OperatorName,
        /// When, RFC 3339 UTC.
        at: String,
    },
}

/// The answer to a creation under a key. It has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedAnswer {
    /// The operator that chose the key.
    pub operator: String,
    /// Hash of the key.
    pub key_sha256: Sha256,
    /// Hash of the request, by which a repetition is known from another request.
    pub request_sha256: Sha256,
    /// The answer as JSON.
    pub answer: String,
    /// When the key may be used for another request, RFC 3339 UTC with microseconds.
    pub expires_at: String,
}
