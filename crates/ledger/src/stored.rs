//! The values that the ledger returns.

use model::{Run, RunId, RunState, Sha256, Step, Usage};

use crate::Reply;

/// A recorded call.
#[derive(Clone, Debug)]
pub struct StoredCall {
    /// JSON text of the call's newest record; for an approved call, the record with its outcome. A later call that was
    /// refused because it reused the ID does not count.
    pub record: String,
    /// `seq` of the record that the reply belongs to; if there is no reply, of the first record with the ID.
    pub seq: u64,
    /// Hash of the record at `seq`.
    pub hash: Sha256,
    /// The tool that was called.
    pub tool: String,
    /// Hash of the call's canonical input.
    pub input_sha256: Sha256,
    /// The reply, if the call was a mutation.
    pub reply: Option<Reply>,
}

/// The pending steps of one record.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// The run.
    pub run_id: RunId,
    /// The record that the steps belong to.
    pub seq: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Which records to list. A record must match every member that is set.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of the HTTP API")]
pub struct RecordFilter {
    pub run: Option<RunId>,
    /// A tool, or the start of several tools' names followed by `*`.
    pub tool: Option<String>,
    pub decision: Option<String>,
    pub outcome: Option<String>,
    /// A path that the call read or wrote. A path that ends with `/` matches everything under it.
    pub path: Option<String>,
    /// Inclusive lower bound, in the time format of the records (RFC 3339, UTC).
    pub since: Option<String>,
    /// Exclusive upper bound.
    pub until: Option<String>,
}

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct StoredRecord {
    /// Its position among the records of all runs. Positions increase with time and may have gaps.
    pub position: i64,
    /// Its JSON text, including `hash`.
    pub text: String,
}

/// A run, with the members that the service does not return to callers.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// The total usage of its mutations.
    pub usage: Usage,
    /// Mount names and the directories that they map to.
    pub mount_paths: Vec<(String, String)>,
    /// Whether its tree was changed from outside while a change was pending.
    pub needs_repair: bool,
}

/// The number and total size of all runs that are not deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// Number of runs.
    pub runs: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Counts over all runs and approvals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of runs in each state; states without runs are omitted.
    pub runs: Vec<(RunState, u64)>,
    /// Number of pending approvals.
    pub pending_approvals: u64,
}

/// Connections to the database, without those that only write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Maximum number.
    pub max: usize,
    /// Connections in use.
    pub used: usize,
    /// Open connections that are not in use.
    pub idle: usize,
}

/// A run, read when none of its commits was in flight.
#[derive(Clone, Debug)]
pub struct SettledRun {
    /// The run.
    pub stored: StoredRun,
    /// Its pending journal entries, by `seq`.
    pub journal: Vec<JournalEntry>,
}
