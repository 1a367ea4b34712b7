//! The statements of nodes and owners, and the readers of what they select. The two databases have different names for their clock.

use std::ops::RangeInclusive;

use crate::node::{Epoch, Node, RunOwner, StoredNode};
use crate::statement::{RowReader, Select, to_count};
use crate::{JournalledRun, Result, rows};

/// The statements that read the clock of a database.
pub(crate) struct NodeSql {
    /// Makes `$2` the instance, if the present one is `$3` and no node is alive. `$1` is the name of the setting.
    pub(crate) take_over: &'static str,
    pub(crate) live_nodes: Select<i64>,
    /// Stores the process `$2` of the node `$1`, if `$4` is the newest one. `$3` is its address, `$5` the validity of its heartbeat in
    /// milliseconds.
    pub(crate) register: &'static str,
    /// Makes the heartbeat of the process `$2` of the node `$1` valid for `$3` milliseconds. If it was not valid, the database was
    /// probably away, or its clock was set, also for others: those that expire at about the same time become valid for as long, so that
    /// their runs stay where they are.
    pub(crate) heartbeat: &'static str,
    pub(crate) leave: &'static str,
    /// Selects the nodes that own runs, or whose heartbeat expires in more than `$1` milliseconds, which may be negative.
    pub(crate) nodes: Select<StoredNode>,
    pub(crate) owner: Select<Ownership>,
    /// Makes the process `$3` of the node `$2` the owner of the run `$1`, if its epoch is `$4`. It has not opened the run's files yet.
    pub(crate) take_run: &'static str,
    /// Leaves all runs of the process `$2` of the node `$1` without an owner, except those that the JSON list `$3` names.
    pub(crate) give_back_except: &'static str,
    /// Selects the epochs of the runs that the JSON list `$3` names and the process `$2` of the node `$1` owns, with the numbers of the
    /// records that the journal has, or without one. Every run belongs to a process that is no node: `$1` is empty then.
    pub(crate) journalled: Select<JournalledRun>,
    pub(crate) role: Select<Ownership>,
    /// As [`take_run`](Self::take_run), for the role `$1`, whose epoch is 0 if it has never been taken.
    pub(crate) take_role: &'static str,
}

/// What a run or a role belongs to.
pub(crate) struct Ownership {
    /// The present owner, or the last one.
    node: Option<Node>,
    pub(crate) epoch: Epoch,
    url: Option<String>,
    expires_in_ms: i64,
}

impl Ownership {
    /// Reads the owner, the epoch, the owner's address and in how many milliseconds its heartbeat expires.
    fn read(row: &dyn RowReader) -> Result<Self> {
        Ok(Self {
            node: rows::node(row, [0, 1])?,
            epoch: Epoch(to_count(row.int(2)?)),
            url: row.maybe_text(3)?,
            expires_in_ms: row.maybe_int(4)?.unwrap_or(0),
        })
    }

    pub(crate) fn owner(self) -> Option<RunOwner> {
        let Self { node, epoch, url, expires_in_ms } = self;
        Some(RunOwner { node: node?, epoch, url, expires_in_ms })
    }
}

fn read_node(row: &dyn RowReader) -> Result<StoredNode> {
    let node = Node { node_id: row.text(0)?, incarnation: to_count(row.int(1)?) };
    let (url, started_at_ms, expires_in_ms) = (row.text(2)?, row.int(3)?, row.int(4)?);
    Ok(StoredNode { node, url, started_at_ms, expires_in_ms, owned_runs: to_count(row.int(5)?) })
}

/// Reads a run with one of its records that the journal has.
fn read_journalled(row: &dyn RowReader) -> Result<JournalledRun> {
    let (epoch, seq) = (Epoch(to_count(row.int(1)?)), row.maybe_int(2)?.map(to_count));
    Ok(JournalledRun { run: rows::run_id(row, 0)?, epoch, seqs: seq.into_iter().collect() })
}

/// Whether the heartbeat of the row `$node` is valid at `$now`. One that expires after twice its lease was sent before the clock of the
/// database was set back. It is no sign of life: a node that is alive sends the next one within its lease.
macro_rules! is_valid {
    ($node:literal, $now:literal) => {
        concat!(
            "(",
            $node,
            ".expires_at_ms > ",
            $now,
            " AND ",
            $node,
            ".expires_at_ms <= ",
            $now,
            " + 2 * ",
            $node,
            ".lease_ms)"
        )
    };
}

/// In how many milliseconds the heartbeat of the row `node` expires.
macro_rules! expires_in {
    ($now:literal) => {
        concat!(
            "CASE WHEN node.expires_at_ms <= ",
            $now,
            " + 2 * node.lease_ms THEN node.expires_at_ms - ",
            $now,
            " ELSE 0 END"
        )
    };
}

/// Whether the node that `$owner` names is alive at `$now`.
macro_rules! is_alive {
    ($owner:literal, $now:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM node AS alive WHERE alive.node_id = ",
            $owner,
            ".owner_node AND alive.incarnation = ",
            $owner,
            ".owner_incarnation AND ",
            is_valid!("alive", $now),
            ")"
        )
    };
}

/// Whether `$3` is the newest process of the node `$2`, and alive at `$now`. After an outage of the database nobody is, until the first
/// [heartbeat](NodeSql::heartbeat), which gives all who were alive before the time for theirs.
macro_rules! may_take {
    ($now:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM node AS own WHERE own.node_id = $2 AND own.incarnation = $3 AND ",
            is_valid!("own", $now),
            ")"
        )
    };
}

/// The statements, with the expression for the current time in milliseconds since 1970, and the query of the JSON list `$3`.
macro_rules! node_sql {
    ($now:literal, $listed:literal) => {
        NodeSql {
            take_over: concat!(
                "INSERT INTO setting (name, value) SELECT $1, $2 \
                 WHERE NOT EXISTS (SELECT 1 FROM node WHERE ",
                is_valid!("node", $now),
                ") ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE setting.value = $3"
            ),
            live_nodes: Select { sql: concat!("SELECT count(*) FROM node WHERE ", is_valid!("node", $now)), read: |row| row.int(0) },
            register: concat!(
                "INSERT INTO node (node_id, incarnation, url, started_at_ms, expires_at_ms, lease_ms) VALUES ($1, $2, $3, ",
                $now,
                ", ",
                $now,
                " + $5, $5) ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, url = excluded.url, \
                 started_at_ms = excluded.started_at_ms, expires_at_ms = excluded.expires_at_ms, \
                 lease_ms = excluded.lease_ms WHERE node.incarnation = $4"
            ),
            heartbeat: concat!(
                "UPDATE node SET expires_at_ms = ",
                $now,
                " + $3, lease_ms = $3 WHERE (node_id = $1 AND incarnation = $2) OR (NOT ",
                is_valid!("node", $now),
                " AND EXISTS (SELECT 1 FROM node AS own WHERE own.node_id = $1 AND own.incarnation = $2 AND NOT ",
                is_valid!("own", $now),
                " AND node.expires_at_ms >= own.expires_at_ms - $3))"
            ),
            leave: concat!("UPDATE node SET expires_at_ms = ", $now, " WHERE node_id = $1 AND incarnation = $2"),
            nodes: Select { sql: concat!(
                "SELECT * FROM (SELECT node_id, incarnation, url, started_at_ms, ",
                expires_in!($now),
                " AS expires_in_ms, (SELECT count(*) FROM run_head WHERE owner_node = node.node_id \
                 AND owner_incarnation = node.incarnation) AS owned_runs FROM node) AS listed \
                 WHERE expires_in_ms > $1 OR owned_runs > 0 ORDER BY node_id"
            ), read: read_node },
            owner: Select { sql: concat!(
                "SELECT h.owner_node, h.owner_incarnation, h.epoch, node.url, ",
                expires_in!($now),
                " FROM run JOIN run_head h ON h.run_no = run.run_no LEFT JOIN node ON node.node_id = h.owner_node \
                 AND node.incarnation = h.owner_incarnation WHERE run.run_id = $1"
            ), read: Ownership::read },
            take_run: concat!(
                "UPDATE run_head SET owner_node = $2, owner_incarnation = $3, epoch = epoch + 1, \
                 files_epoch = CASE WHEN unopened_epoch = epoch THEN files_epoch ELSE epoch END, unopened_epoch = epoch + 1 \
                 WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND epoch = $4 AND NOT ",
                is_alive!("run_head", $now),
                " AND ",
                may_take!($now)
            ),
            give_back_except: concat!(
                "UPDATE run_head SET owner_node = NULL, owner_incarnation = NULL \
                 WHERE owner_node = $1 AND owner_incarnation = $2 \
                 AND run_no NOT IN (SELECT run_no FROM run WHERE run_id IN (",
                $listed,
                "))"
            ),
            journalled: Select { sql: concat!(
                "SELECT DISTINCT run.run_id, h.epoch, step.seq FROM run JOIN run_head h ON h.run_no = run.run_no \
                 LEFT JOIN step ON step.run_no = run.run_no \
                 WHERE (CAST($1 AS TEXT) = '' OR (h.owner_node = $1 AND h.owner_incarnation = $2)) AND run.run_id IN (",
                $listed,
                ") ORDER BY run.run_id, step.seq"
            ), read: read_journalled },
            role: Select { sql: concat!(
                "SELECT r.owner_node, r.owner_incarnation, r.epoch, node.url, ",
                expires_in!($now),
                " FROM node_role r LEFT JOIN node ON node.node_id = r.owner_node AND node.incarnation = r.owner_incarnation \
                 WHERE r.role = $1"
            ), read: Ownership::read },
            take_role: concat!(
                "INSERT INTO node_role (role, owner_node, owner_incarnation, epoch) SELECT $1, $2, $3, 1 WHERE ",
                may_take!($now),
                " ON CONFLICT (role) DO UPDATE SET owner_node = excluded.owner_node, \
                 owner_incarnation = excluded.owner_incarnation, epoch = node_role.epoch + 1 \
                 WHERE node_role.epoch = $4 AND NOT ",
                is_alive!("node_role", $now)
            ),
        }
    };
}

pub(crate) const SQLITE: NodeSql =
    node_sql!("CAST(unixepoch('subsec') * 1000 AS INTEGER)", "SELECT value FROM json_each($3)");
pub(crate) const POSTGRES: NodeSql = node_sql!(
    "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    "SELECT jsonb_array_elements_text(CAST($3 AS jsonb))"
);

pub(crate) const INCARNATION: Select<i64> =
    Select { sql: "SELECT incarnation FROM node WHERE node_id = $1", read: |row| row.int(0) };
pub(crate) const GIVE_BACK: &str = "UPDATE run_head SET owner_node = NULL, owner_incarnation = NULL \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND owner_node = $2 AND owner_incarnation = $3 AND epoch = $4";
pub(crate) const GIVE_BACK_ROLE: &str = "UPDATE node_role SET owner_node = NULL, owner_incarnation = NULL \
    WHERE role = $1 AND owner_node = $2 AND owner_incarnation = $3 AND epoch = $4";
/// Notes that the process `$3` of the node `$2` opens the files of the run `$1`, which it owns under the epoch `$4`.
pub(crate) const OPEN_FILES: &str = "UPDATE run_head SET files_epoch = NULL, unopened_epoch = NULL \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND owner_node = $2 AND owner_incarnation = $3 AND epoch = $4";
/// The first and the last of the [current epochs](super::NodeLog::current_epochs) of the run `$1`.
pub(crate) const CURRENT_EPOCHS: Select<RangeInclusive<u64>> = Select {
    sql: "SELECT CASE WHEN unopened_epoch = epoch THEN files_epoch ELSE epoch END, epoch \
    FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)",
    read: |row| Ok(to_count(row.int(0)?)..=to_count(row.int(1)?)),
};
/// Changes nothing. Locks the head of the run `$1`, if the process `$3` of the node `$2` owns it.
pub(crate) const LOCK_OWNED: &str = "UPDATE run_head SET epoch = epoch \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND owner_node = $2 AND owner_incarnation = $3";
/// Makes `$2` the instance, if the present one is `$3`. `$1` is the name of the setting.
pub(crate) const SET_INSTANCE: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE setting.value = $3";
