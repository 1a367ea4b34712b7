//! The values that the ledger returns, and the pages of lists, which are limited by rows and by bytes.

use std::collections::BTreeMap;
use std::ops::Deref;

use model::{Approval, ApprovalState, By, Run, RunId, RunSort, RunState, Sha256, Step, Usage};
use serde::Serialize;

use crate::{Epoch, Reply};

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

/// The records of a run that have steps in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalledRun {
    /// The run.
    pub run: RunId,
    /// The epoch under which this process owns it, if the process is a node.
    pub epoch: Epoch,
    /// Their numbers, in order.
    pub seqs: Vec<u64>,
}

/// Which records to list. A record must match every member that is set.
#[derive(Clone, Debug, Default, Serialize)]
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
    /// The start of a path that the call read or wrote. Without an index beside a path that is not under it.
    pub path_prefix: Option<String>,
    /// The end of a path that the call read or wrote; `/NAME` is a whole name, also at the root. Without an index.
    pub path_suffix: Option<String>,
    /// The caller. No index has it: see [`LedgerPage::resume`](crate::LedgerPage::resume).
    pub actor: Option<String>,
    /// Whose call it is. Without an index.
    pub by: Option<By>,
    /// The code of a refusal. No index has it; in one run, only the records of calls that did not succeed are read.
    pub code: Option<String>,
    /// Labels of the record's run, each as `name:value`. Without an index.
    pub labels: Vec<String>,
    /// Whether the newest record comes first.
    pub newest_first: bool,
}

/// Which runs to list. A run must match every member that is set. Only the state has an index: see
/// [`LedgerPage::resume`](crate::LedgerPage::resume).
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are those of the HTTP API")]
pub struct RunFilter {
    pub state: Option<RunState>,
    /// The operator who created the run.
    pub created_by: Option<String>,
    /// Each as `name:value`.
    pub labels: Vec<String>,
    /// Exclusive lower bound, in the format of stored times.
    pub created_after: Option<String>,
    /// Exclusive upper bound.
    pub created_before: Option<String>,
    /// A text that the ID, a label, the source, the creator or the first prompt contains, in any letter case.
    pub text: Option<String>,
    /// Whether deleted runs are left out.
    pub without_deleted: bool,
    /// The order; `None` for that of creation.
    pub sort: Option<RunSort>,
    /// Whether the newest run comes first, or the one with the most.
    pub newest_first: bool,
}

/// Which approvals to list. An approval must match every member that is set. Only the state and the run have an index: see
/// [`LedgerPage::resume`](crate::LedgerPage::resume).
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are those of the HTTP API")]
pub struct ApprovalFilter {
    pub state: Option<ApprovalState>,
    pub run: Option<RunId>,
    /// The caller whose call requires the approval.
    pub actor: Option<String>,
    /// The start of the path of a file that the call would change.
    pub path_prefix: Option<String>,
    /// Exclusive lower bound, in the format of stored times.
    pub created_after: Option<String>,
    /// Exclusive upper bound.
    pub created_before: Option<String>,
    /// Whether the newest approval comes first.
    pub newest_first: bool,
}

impl From<RunState> for RunFilter {
    fn from(state: RunState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }
}

impl RunFilter {
    /// Whether `run` matches.
    pub fn matches(&self, run: &Run) -> bool {
        let created_by = run.created_by.as_ref().map(model::OperatorName::as_str);
        self.state.is_none_or(|state| state == run.state)
            && self.created_by.as_ref().is_none_or(|name| created_by == Some(name.as_str()))
            && has_labels(&run.labels, &self.labels)
            && is_between(&run.created_at, self.created_after.as_deref(), self.created_before.as_deref())
            && !(self.without_deleted && run.state == RunState::Deleted)
            && self.text.as_ref().is_none_or(|text| has_text(run, &text.to_lowercase()))
    }

    /// Whether a condition has no index.
    pub(crate) fn scans(&self) -> bool {
        let Self { created_by, labels, created_after, created_before, text, .. } = self;
        let is_searched = text.is_some() || created_by.is_some() || !labels.is_empty();
        is_searched || created_after.is_some() || created_before.is_some()
    }
}

impl ApprovalFilter {
    /// Whether `approval` matches the conditions without an index.
    pub(crate) fn matches(&self, approval: &Approval) -> bool {
        let is_under =
            |prefix: &String| approval.files.iter().any(|file| file.path.as_str().starts_with(prefix.as_str()));
        self.actor.as_ref().is_none_or(|actor| *actor == approval.actor)
            && self.path_prefix.as_ref().is_none_or(is_under)
            && is_between(&approval.created_at, self.created_after.as_deref(), self.created_before.as_deref())
    }

    /// Whether a condition has no index.
    pub(crate) fn scans(&self) -> bool {
        let Self { state: _, run: _, actor, path_prefix, created_after, created_before, newest_first: _ } = self;
        actor.is_some() || path_prefix.is_some() || created_after.is_some() || created_before.is_some()
    }
}

/// Whether a run is found by `text`, which is in lower case.
fn has_text(run: &Run, text: &str) -> bool {
    let (source, prompt) = (run.source.origin().unwrap_or_default(), run.prompt.as_deref().unwrap_or_default());
    let creator = run.created_by.as_ref().map_or("", |name| name.as_str());
    let labels = run.labels.iter().map(|(name, value)| format!("{name}:{value}"));
    let mut texts = [run.run_id.as_str(), source, creator, prompt].map(str::to_owned).into_iter().chain(labels);
    texts.any(|one| one.to_lowercase().contains(text))
}

/// Whether `labels` has each of `wanted`, which are `name:value`.
pub(crate) fn has_labels(labels: &BTreeMap<String, String>, wanted: &[String]) -> bool {
    let is = |wanted: &str, name: &str, value: &str| {
        wanted.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')) == Some(value)
    };
    wanted.iter().all(|wanted| labels.iter().any(|(name, value)| is(wanted, name, value)))
}

fn is_between(time: &str, after: Option<&str>, before: Option<&str>) -> bool {
    after.is_none_or(|after| time > after) && before.is_none_or(|before| time < before)
}

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct StoredRecord {
    /// Its position among the records of all runs. Positions increase with time and may have gaps.
    pub position: i64,
    /// Its JSON text, including `hash`; `null` if it is damaged so that it cannot be decompressed.
    pub text: String,
}

/// What a record wrote besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// The content of a file after the call.
    Content {
        /// Its digest.
        sha256: Sha256,
        /// The content.
        bytes: Vec<u8>,
    },
    /// The diff of the call.
    Diff {
        /// The artifact's ID.
        artifact_id: String,
        /// The diff.
        bytes: Vec<u8>,
    },
    /// Content that the caller uploaded.
    Upload {
        /// Its digest.
        sha256: Sha256,
        /// The content.
        bytes: Vec<u8>,
    },
    /// The reply of the call.
    Reply(Reply),
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

/// The number and total size of all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// Number of runs that are not deleted.
    pub runs: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of the history of all runs, also of what is left of deleted ones.
    pub history_bytes: u64,
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

/// A closed run, and its position in the list of closed runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedRunKey {
    /// When it was closed, RFC 3339 UTC.
    pub closed_at: String,
    /// Its number in the database, which orders runs that were closed at one time.
    pub run_no: i64,
    /// The run.
    pub run_id: RunId,
}

/// A run, read when none of its commits was in flight.
#[derive(Clone, Debug)]
pub struct SettledRun {
    /// The run.
    pub stored: StoredRun,
    /// Its pending journal entries, by `seq`.
    pub journal: Vec<JournalEntry>,
}

/// The default limit of a page in bytes.
const DEFAULT_BYTES: u64 = 4 << 20;

/// The limits of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Maximum number of rows.
    pub rows: u32,
    /// The page ends with the row at which its stored texts reach this many bytes. It has at least one row, regardless of the
    /// size of that row.
    pub bytes: u64,
}

impl PageSize {
    /// No limits.
    pub(crate) const UNLIMITED: Self = Self { rows: u32::MAX, bytes: u64::MAX };

    /// Returns a size of at most `rows` rows and 4 MiB.
    pub fn rows(rows: u32) -> Self {
        Self { rows, bytes: DEFAULT_BYTES }
    }

    /// Returns the same size with another limit in bytes.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the `LIMIT` to query with: one row more than the page may have, which shows whether another page follows.
    pub(crate) fn query_limit(self) -> i64 {
        i64::from(self.rows) + 1
    }
}

impl From<u32> for PageSize {
    fn from(rows: u32) -> Self {
        Self::rows(rows)
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Whether another page follows.
    pub more: bool,
    /// The position after which the next page continues, if it is not that of the last item: a search stops after a bounded
    /// number of rows, whether they match or not.
    pub resume: Option<i64>,
}

impl<T> LedgerPage<T> {
    /// Returns the page with each item converted.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> LedgerPage<U> {
        LedgerPage { items: self.items.into_iter().map(convert).collect(), more: self.more, resume: self.resume }
    }
}

impl<T> LedgerPage<(i64, T)> {
    /// Returns the position after which the next page begins; `None` if this is the last one.
    pub fn next(&self) -> Option<i64> {
        let last = self.items.last().map(|(position, _)| *position);
        self.resume.or(last).filter(|_| self.more)
    }
}

impl<T> Deref for LedgerPage<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for LedgerPage<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}
