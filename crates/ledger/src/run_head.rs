//! The head of a run's chain, as appends read it.

use model::{Disk, PeopleCounts, RunState, Sha256, Usage};

use crate::statement::{RowReader, to_count};
use crate::{Epoch, HistoryQuota, Node, Result, rows};

/// Selects what [`RunHead::read`] reads.
macro_rules! select_head {
    ($rest:literal) => {
        select_head!("", $rest)
    };
    // `$more` are further columns, each with a comma before it.
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT run_id, run.run_no, state, head_seq, head_hash, mutations, denied, pending_approvals, files_touched, ",
            "insertions, deletions, files_deleted, bytes, disk_bytes, disk_files, events, event_bytes, expires_at, ",
            "owner_node, owner_incarnation, epoch, history_bytes, max_history_bytes, max_records, people_records, people_mutations",
            $more,
            " FROM run JOIN run_head ON run_head.run_no = run.run_no ",
            $rest
        )
    };
}

pub(crate) use select_head;

/// The head of a run's chain, with the counters that each record updates.
#[derive(Clone, Debug)]
pub(crate) struct RunHead {
    pub(crate) run_no: i64,
    pub(crate) state: RunState,
    /// When the run expires, RFC 3339 UTC.
    pub(crate) expires_at: Option<String>,
    pub(crate) seq: u64,
    pub(crate) hash: Sha256,
    pub(crate) mutations: u64,
    pub(crate) denied: u64,
    /// Records that are not by the agent, and the mutations among them.
    pub(crate) people: PeopleCounts,
    pub(crate) pending_approvals: u64,
    pub(crate) usage: Usage,
    /// The disk usage, if it is known.
    pub(crate) disk: Option<Disk>,
    /// Events and uploads.
    pub(crate) events: u64,
    pub(crate) event_bytes: u64,
    /// The process that owns the run, and the epoch under which it does.
    pub(crate) owner: Option<Node>,
    pub(crate) epoch: Epoch,
    /// Bytes that its calls have added to the database, and those of the objects that it refers to.
    pub(crate) history_bytes: u64,
    pub(crate) history_quota: HistoryQuota,
    /// Whether the head differs from the stored one.
    pub(crate) changed: bool,
    /// Whether `state` differs from the stored one.
    pub(crate) state_changed: bool,
}

impl RunHead {
    /// How many columns [`read`](Self::read) reads. Those that a query selects besides follow them.
    pub(crate) const COLUMNS: usize = 26;

    /// Reads a row of [`select_head`].
    pub(crate) fn read(row: &dyn RowReader) -> Result<Self> {
        let count = |column| row.int(column).map(to_count);
        Ok(Self {
            run_no: row.int(1)?,
            state: rows::enum_value(&row.text(2)?, "run state")?,
            seq: count(3)?,
            hash: rows::sha256(&row.bytes(4)?)?,
            mutations: count(5)?,
            denied: count(6)?,
            pending_approvals: count(7)?,
            usage: rows::usage(row, 8)?,
            disk: rows::disk(row, 13)?,
            events: count(15)?,
            event_bytes: count(16)?,
            expires_at: row.maybe_text(17)?,
            owner: rows::node(row, [18, 19])?,
            epoch: Epoch(count(20)?),
            history_bytes: count(21)?,
            history_quota: HistoryQuota::stored(row.maybe_int(22)?, row.maybe_int(23)?),
            people: PeopleCounts { calls: count(24)?, mutations: count(25)? },
            changed: false,
            state_changed: false,
        })
    }
}
