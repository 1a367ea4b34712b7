//! The statements of the store, in the common dialect of both databases, and the readers of what they select.

use model::{RunId, RunState, Sha256};

use crate::packed::{self, record_columns};
use crate::rows::{self, content_columns, written_at};
use crate::statement::{Select, damaged, to_count};
use crate::{ClosedRunKey, StorageTotals, StoredRecord};

pub(crate) const CLOSED_BEFORE: Select<ClosedRunKey> = Select {
    sql: "SELECT closed_at, run_no, run_id FROM run \
    WHERE state = 'closed' AND closed_at <= $1 AND (closed_at, run_no) > ($2, $3) ORDER BY closed_at, run_no LIMIT $4",
    read: |row| Ok(ClosedRunKey { closed_at: row.text(0)?, run_no: row.int(1)?, run_id: rows::run_id(row, 2)? }),
};
pub(crate) const SET_DISK_USAGE: &str = "UPDATE run_head SET disk_bytes = $2, disk_files = $3 \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
pub(crate) const STORAGE_TOTALS: Select<StorageTotals> = Select {
    sql: "SELECT coalesce(sum(CASE state WHEN 'deleted' THEN 0 ELSE 1 END), 0), \
    CAST(coalesce(sum(CASE state WHEN 'deleted' THEN 0 ELSE disk_bytes END), 0) AS BIGINT), \
    CAST(coalesce(sum(CASE WHEN history_bytes > 0 THEN history_bytes ELSE 0 END), 0) AS BIGINT) FROM run JOIN run_head ON run_head.run_no = run.run_no",
    read: |row| {
        Ok(StorageTotals {
            runs: to_count(row.int(0)?),
            bytes: to_count(row.int(1)?),
            history_bytes: to_count(row.int(2)?),
        })
    },
};
pub(crate) const RUN_STATES: Select<(RunState, u64)> = Select {
    sql: "SELECT state, count(*) FROM run WHERE run_id <> '_service' GROUP BY state ORDER BY state",
    read: |row| Ok((rows::enum_value(&row.text(0)?, "run state")?, to_count(row.int(1)?))),
};
pub(crate) const PENDING_APPROVALS: Select<u64> =
    Select { sql: "SELECT count(*) FROM approval WHERE state = 'pending'", read: |row| row.int(0).map(to_count) };
/// Locks the row, and shows whether it exists.
pub(crate) const LOCK_RUN: &str = "UPDATE run SET needs_repair = needs_repair WHERE run_id = $1";
pub(crate) const SET_NEEDS_REPAIR: &str = "UPDATE run SET needs_repair = $2 WHERE run_id = $1";
pub(crate) const RUN_IDS: Select<(i64, RunId)> = Select {
    sql: "SELECT run_no, run_id FROM run WHERE run_no > $1 ORDER BY run_no LIMIT $2",
    read: |row| Ok((row.int(0)?, rows::run_id(row, 1)?)),
};
pub(crate) const LIVE_RUNS: Select<RunId> =
    Select { sql: "SELECT run_id FROM run WHERE state <> 'deleted' ORDER BY run_no", read: |row| rows::run_id(row, 0) };
pub(crate) const EXPIRED_RUNS: Select<RunId> = Select {
    sql: "SELECT run_id FROM run \
    WHERE expires_at IS NOT NULL AND closed_at IS NULL AND expires_at <= $1 ORDER BY expires_at",
    read: |row| rows::run_id(row, 0),
};
/// Finds the runs that have records one after the other, by the index.
pub(crate) const ORPHANED_RUNS: Select<u64> = Select {
    sql: "WITH RECURSIVE owner (run_no) AS (SELECT min(run_no) FROM audit_record \
    UNION ALL SELECT (SELECT min(a.run_no) FROM audit_record a WHERE a.run_no > owner.run_no) FROM owner \
      WHERE owner.run_no IS NOT NULL) \
    SELECT count(*) FROM owner WHERE run_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE run.run_no = owner.run_no)",
    read: |row| row.int(0).map(to_count),
};

pub(crate) const TOKEN_HASHES: Select<Sha256> = Select {
    sql: "SELECT secret_sha256 FROM token WHERE secret_sha256 > $1 AND revoked = $2 \
    AND (expires_at IS NULL OR expires_at > $3) ORDER BY secret_sha256 LIMIT $4",
    read: |row| rows::sha256(&row.bytes(0)?),
};

pub(crate) const CHANGES: Select<StoredRecord> = Select {
    sql: concat!(
        "SELECT position, ",
        record_columns!(""),
        " FROM audit_record WHERE mutates AND outcome = 'ok' \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 ORDER BY seq LIMIT $3"
    ),
    read: rows::record,
};
pub(crate) const RECORD: Select<StoredRecord> = Select {
    sql: concat!(
        "SELECT position, ",
        record_columns!(""),
        " FROM audit_record WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2"
    ),
    read: rows::record,
};
pub(crate) const ARTIFACT: Select<Vec<u8>> = Select {
    sql: "SELECT diff, diff_bytes FROM artifact \
    WHERE artifact_id = $1 AND run_no = (SELECT run_no FROM run WHERE run_id = $2)",
    read: |row| packed::bytes(row, [0, 1])?.ok_or_else(|| damaged("diff")),
};
pub(crate) const UPLOAD: Select<Vec<u8>> = Select {
    sql: "SELECT bytes, raw_bytes FROM upload \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND sha256 = $2",
    read: |row| packed::bytes(row, [0, 1])?.ok_or_else(|| damaged("upload")),
};
/// Not a join: without statistics the planner would scan all contents.
pub(crate) const CONTENT: Select<Vec<u8>> = Select {
    sql: concat!(
        "WITH r AS (SELECT position FROM audit_record ",
        "WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2) SELECT ",
        content_columns!(),
        " FROM content c WHERE ",
        written_at!("(SELECT position FROM r)"),
        " AND c.sha256 = $3"
    ),
    read: |row| rows::content(row, [0, 1, 2, 3]),
};
/// `CROSS` lets SQLite begin with the records.
pub(crate) const STORED_CONTENTS: Select<(u64, Sha256)> = Select {
    sql: concat!(
        "SELECT r.seq, c.sha256 FROM audit_record r CROSS JOIN content c \
         WHERE r.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND ",
        written_at!("r.position")
    ),
    read: |row| Ok((u64::try_from(row.int(0)?).unwrap_or(0), rows::sha256(&row.bytes(1)?)?)),
};
pub(crate) const CHANGES_OF_PATH: Select<(StoredRecord, i64)> = Select {
    sql: concat!(
        "SELECT r.position, ",
        record_columns!("r."),
        ", r.seq FROM audit_record r \
    WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND r.seq <= $2 \
    AND EXISTS (SELECT 1 FROM record_path p WHERE p.position = r.position AND p.path = $3) \
    ORDER BY r.seq DESC LIMIT $4"
    ),
    read: |row| Ok((rows::record(row)?, row.int(4)?)),
};

pub(crate) const RUNS_WITH_STEPS: Select<RunId> = Select {
    sql: "SELECT run_id FROM run WHERE run_no IN (SELECT run_no FROM step) ORDER BY run_no",
    read: |row| rows::run_id(row, 0),
};
pub(crate) const DELETE_STEPS: &str = "DELETE FROM step WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// The next changes to purge in one transaction. Few, because other jobs wait for it.
pub(crate) const NEXT_PURGED: Select<(i64, i64)> = Select {
    sql: "SELECT seq, position FROM audit_record \
    WHERE mutates AND outcome = 'ok' AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 \
    ORDER BY seq LIMIT 32",
    read: |row| Ok((row.int(0)?, row.int(1)?)),
};
pub(crate) const PURGE: &str = concat!("DELETE FROM content AS c WHERE ", written_at!("$1"));
pub(crate) const SET_PURGED: &str = "UPDATE run SET purged_seq = $2 WHERE run_id = $1";
pub(crate) const PURGED: Select<i64> =
    Select { sql: "SELECT purged_seq FROM run WHERE run_id = $1", read: |row| row.int(0) };
/// A subquery for each run, because a join would scan all records. Includes a change that was in flight when its run was deleted.
pub(crate) const UNPURGED: Select<RunId> = Select {
    sql: "SELECT run_id FROM run WHERE state = 'deleted' AND (purged_seq < coalesce((\
      SELECT r.seq FROM audit_record r WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = run.run_no \
      ORDER BY r.seq DESC LIMIT 1), 0) \
    OR archived_seq >= (SELECT r.seq FROM audit_record r WHERE r.run_no = run.run_no ORDER BY r.seq LIMIT 1)) ORDER BY run_no",
    read: |row| rows::run_id(row, 0),
};
pub(crate) const DELETE_ARCHIVED_APPROVALS: &str = "DELETE FROM approval WHERE run_no = \
    (SELECT run_no FROM run WHERE run_id = $1 AND archived_seq IS NOT NULL)";
/// The next archived records to delete in one transaction.
pub(crate) const NEXT_ARCHIVED: Select<i64> = Select {
    sql: "SELECT position FROM audit_record r JOIN run ON run.run_no = r.run_no \
    WHERE run_id = $1 AND seq <= archived_seq ORDER BY seq LIMIT 32",
    read: |row| row.int(0),
};
/// What is deleted of the archived record at a position, in this order: the record itself at last.
pub(crate) const DELETE_ARCHIVED: [&str; 6] = [
    PURGE,
    "DELETE FROM artifact WHERE position = $1",
    "DELETE FROM upload WHERE position = $1",
    "DELETE FROM call_reply WHERE position = $1",
    "DELETE FROM record_path WHERE position = $1",
    "DELETE FROM audit_record WHERE position = $1",
];

pub(crate) const APPROVAL_INPUT: Select<String> =
    Select { sql: "SELECT input FROM approval WHERE approval_id = $1", read: |row| row.text(0) };

/// Locks the head of a run, as every transaction does before it changes other rows of the run.
pub(crate) const LOCK_HEAD: &str = "UPDATE run_head SET epoch = epoch \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// Subtracts the objects of a run from its history, before its references are deleted.
pub(crate) const GIVE_BACK_OBJECTS: &str = "UPDATE run_head SET history_bytes = history_bytes - (\
      SELECT CAST(coalesce(sum(size_bytes), 0) AS BIGINT) FROM object_reference o WHERE o.run_no = run_head.run_no) \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
pub(crate) const DELETE_OBJECT_PATHS: &str = "DELETE FROM object_path \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// Subtracts the contents that the record at the position `$2` wrote from the history of its run, before they are deleted.
pub(crate) const GIVE_BACK_CONTENT: &str = concat!(
    "UPDATE run_head SET history_bytes = history_bytes - (SELECT CAST(coalesce(sum(length(c.bytes) + 8 * 3 + 32), 0) AS BIGINT) \
      FROM content c WHERE ",
    written_at!("$2"),
    ") WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)"
);
/// Sets the history of an archived run to the records that are left: those after the archived ones.
pub(crate) const SET_ARCHIVED_HISTORY: &str = "UPDATE run_head SET history_bytes = (\
      SELECT CAST(coalesce(sum(length(body) + coalesce(length(packed), 0)), 0) AS BIGINT) FROM audit_record r \
      WHERE r.run_no = run_head.run_no) \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1 AND archived_seq IS NOT NULL)";
pub(crate) const OBJECT_REFERENCE: Select<RunId> = Select {
    sql: "SELECT run_id FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE object = $1 AND state <> 'deleted' LIMIT 1",
    read: |row| rows::run_id(row, 0),
};
pub(crate) const DELETE_OBJECT_REFERENCES: &str = "DELETE FROM object_reference \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";

pub(crate) const SETTING: Select<String> =
    Select { sql: "SELECT value FROM setting WHERE name = $1", read: |row| row.text(0) };
pub(crate) const SET_SETTING: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
