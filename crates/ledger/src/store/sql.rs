//! The statements of the store, in the common dialect of both databases.

use crate::rows::packed::record_columns;
use crate::rows::{content_columns, select_voters, written_at};

pub(crate) const INSERT_RUN: &str = "INSERT INTO run (run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, \
    body, import_report, mount_paths, labels) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
pub(crate) const INSERT_HEAD: &str = "INSERT INTO run_head (run_no, head_seq, head_hash, mutations, denied, pending_approvals, \
    files_touched, insertions, deletions, files_deleted, bytes, disk_bytes, disk_files, owner_node, owner_incarnation, epoch, \
    max_history_bytes, max_records) \
    SELECT run_no, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, 0), $16, $17, $18 FROM run WHERE run_id = $1";
/// The row of the service's own chain, created at `$2`. A deleted run is in no list of runs to open, close, measure or purge.
pub(crate) const INSERT_SERVICE_CHAIN: &str = "INSERT INTO run (run_id, state, created_at, closed_at, needs_repair, body, \
    import_report, mount_paths) VALUES ($1, 'deleted', $2, $2, $3, '{}', '{}', '{}') ON CONFLICT (run_id) DO NOTHING";
pub(crate) const INSERT_SERVICE_HEAD: &str = "INSERT INTO run_head (run_no, head_seq, head_hash, mutations, denied, \
    pending_approvals, files_touched, insertions, deletions, files_deleted, bytes) \
    SELECT run_no, 0, $2, 0, 0, 0, 0, 0, 0, 0, 0 FROM run WHERE run_id = $1 ON CONFLICT (run_no) DO NOTHING";
pub(crate) const INSERT_TOKEN: &str = "INSERT INTO token (run_no, secret_sha256, token_id, permissions, expires_at, revoked) \
    SELECT run_no, $2, $3, $4, $5, $6 FROM run WHERE run_id = $1";
pub(crate) const OPEN_RUN: &str = "UPDATE run SET base_commit = $2, import_report = $3, state = 'open' \
    WHERE run_id = $1 AND state = 'preparing'";
pub(crate) const FAIL_IMPORT: &str = "UPDATE run SET closed_at = $2, import_report = $3, state = 'closed' \
    WHERE run_id = $1 AND state = 'preparing'";
pub(crate) const RESUME_IMPORT: &str = "UPDATE run SET import_report = $2 WHERE run_id = $1 AND state = 'preparing'";
pub(crate) const SET_STATE: &str = "UPDATE run SET state = CASE state WHEN 'deleted' THEN state ELSE $2 END, \
    closed_at = coalesce(closed_at, $3) WHERE run_id = $1";
pub(crate) const ARCHIVE_RUN: &str = "UPDATE run SET state = 'deleted', archived_at = $2, archive_uri = $3, archived_seq = $4 \
    WHERE run_id = $1 AND state = 'closed'";
pub(crate) const CLOSED_BEFORE: &str = "SELECT closed_at, run_no, run_id FROM run \
    WHERE state = 'closed' AND closed_at <= $1 AND (closed_at, run_no) > ($2, $3) ORDER BY closed_at, run_no LIMIT $4";
pub(crate) const SET_LABELS: &str = "UPDATE run SET labels = $2 WHERE run_id = $1";
pub(crate) const SET_EXPIRY: &str = "UPDATE run SET expires_at = $2 WHERE run_id = $1";
pub(crate) const SET_DISK_USAGE: &str = "UPDATE run_head SET disk_bytes = $2, disk_files = $3 \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
pub(crate) const CLEAR_DISK_USAGE: &str = "UPDATE run_head SET disk_bytes = NULL, disk_files = NULL \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
pub(crate) const RUNS_WITHOUT_DISK_USAGE: &str = "SELECT run_id FROM run JOIN run_head ON run_head.run_no = run.run_no \
    WHERE state <> 'deleted' AND base_commit IS NOT NULL AND disk_bytes IS NULL ORDER BY run.run_no";
pub(crate) const STORAGE_TOTALS: &str = "SELECT coalesce(sum(CASE state WHEN 'deleted' THEN 0 ELSE 1 END), 0), \
    CAST(coalesce(sum(CASE state WHEN 'deleted' THEN 0 ELSE disk_bytes END), 0) AS BIGINT), \
    CAST(coalesce(sum(CASE WHEN history_bytes > 0 THEN history_bytes ELSE 0 END), 0) AS BIGINT) FROM run JOIN run_head ON run_head.run_no = run.run_no";
pub(crate) const RUN_STATES: &str =
    "SELECT state, count(*) FROM run WHERE run_id <> '_service' GROUP BY state ORDER BY state";
pub(crate) const PENDING_APPROVALS: &str = "SELECT count(*) FROM approval WHERE state = 'pending'";
/// Locks the row, and shows whether it exists.
pub(crate) const LOCK_RUN: &str = "UPDATE run SET needs_repair = needs_repair WHERE run_id = $1";
pub(crate) const SET_NEEDS_REPAIR: &str = "UPDATE run SET needs_repair = $2 WHERE run_id = $1";
pub(crate) const RUN_IDS: &str = "SELECT run_no, run_id FROM run WHERE run_no > $1 ORDER BY run_no LIMIT $2";
pub(crate) const LIVE_RUNS: &str = "SELECT run_id FROM run WHERE state <> 'deleted' ORDER BY run_no";
pub(crate) const EXPIRED_RUNS: &str = "SELECT run_id FROM run \
    WHERE expires_at IS NOT NULL AND closed_at IS NULL AND expires_at <= $1 ORDER BY expires_at";
/// Finds the runs that have records one after the other, by the index.
pub(crate) const ORPHANED_RUNS: &str = "WITH RECURSIVE owner (run_no) AS (SELECT min(run_no) FROM audit_record \
    UNION ALL SELECT (SELECT min(a.run_no) FROM audit_record a WHERE a.run_no > owner.run_no) FROM owner \
      WHERE owner.run_no IS NOT NULL) \
    SELECT count(*) FROM owner WHERE run_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE run.run_no = owner.run_no)";

/// Ends with the list of hashes in parentheses.
pub(crate) const TOKENS: &str = "SELECT run_id, token_id, secret_sha256, permissions, token.expires_at, revoked FROM token \
    JOIN run ON run.run_no = token.run_no WHERE secret_sha256 IN";
pub(crate) const TOKEN_HASHES: &str = "SELECT secret_sha256 FROM token WHERE secret_sha256 > $1 AND revoked = $2 \
    AND (expires_at IS NULL OR expires_at > $3) ORDER BY secret_sha256 LIMIT $4";
pub(crate) const REVOKE_TOKEN: &str = "UPDATE token SET revoked = $3 \
    WHERE token_id = $2 AND run_no = (SELECT run_no FROM run WHERE run_id = $1)";

/// Selects what [`rows::operator`](crate::rows::operator) reads.
macro_rules! select_operator {
    ($rest:literal) => {
        concat!(
            "SELECT operator_no, name, secret_sha256, scopes, created_at, created_by, expires_at, revoked_at ",
            "FROM operator_token ",
            $rest
        )
    };
}
pub(crate) const INSERT_OPERATOR: &str = "INSERT INTO operator_token (name, secret_sha256, scopes, created_at, created_by, \
    expires_at) VALUES ($1, $2, $3, $4, $5, $6)";
pub(crate) const OPERATORS: &str = select_operator!("WHERE operator_no > $1 ORDER BY operator_no LIMIT $2");
/// The newest of the name.
pub(crate) const OPERATOR: &str = select_operator!("WHERE lower(name) = lower($1) ORDER BY operator_no DESC LIMIT 1");
/// Revokes the token in force, and replaced ones that have not expired.
pub(crate) const REVOKE_OPERATOR: &str = "UPDATE operator_token SET revoked_at = $2 WHERE lower(name) = lower($1) \
    AND (revoked_at IS NULL OR (revoked_at = expires_at AND revoked_at > $2))";
/// Revokes the operator: its votes for pending approvals no longer count.
pub(crate) const WITHDRAW_OPERATOR: &str = "UPDATE operator_token SET revoked_at = $2, withdrawn_at = $2 \
    WHERE lower(name) = lower($1) AND (revoked_at IS NULL OR (revoked_at = expires_at AND revoked_at > $2))";
/// The names of the tokens that were made since `$1`, and who made each.
pub(crate) const OPERATOR_ORIGINS: &str =
    "SELECT name, created_by FROM operator_token WHERE created_at > $1 ORDER BY operator_no";
/// Ends the token in force at `$2`, until which it is valid.
pub(crate) const END_OPERATOR_TOKEN: &str = "UPDATE operator_token \
    SET revoked_at = $2, expires_at = $2 WHERE lower(name) = lower($1) AND revoked_at IS NULL";
/// Inserts the successor of a token that ends at `$7`.
pub(crate) const INSERT_OPERATOR_TOKEN: &str = "INSERT INTO operator_token (name, secret_sha256, scopes, created_at, \
    created_by, expires_at) SELECT $1, $2, $3, $4, $5, $6 \
    WHERE EXISTS (SELECT 1 FROM operator_token WHERE lower(name) = lower($1) AND revoked_at = $7)";

/// Selects the columns that [`rows::call`](crate::rows::call) reads.
pub(crate) const CALL: &str = concat!(
    "WITH earliest AS (SELECT a.seq, a.tool, a.input_sha256, a.mutates, a.run_no, a.tool_call_id, a.position \
      FROM audit_record a \
      WHERE a.tool_call_id = $1 AND a.run_no = (SELECT run_no FROM run WHERE run_id = $2) ORDER BY a.seq LIMIT 1), \
    replied AS (\
      SELECT a.seq, a.position FROM earliest JOIN audit_record a ON a.tool_call_id = earliest.tool_call_id \
      AND a.run_no = earliest.run_no AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 \
      JOIN call_reply c ON c.position = a.position WHERE earliest.mutates ORDER BY a.seq LIMIT 1), \
    found AS (\
      SELECT coalesce(replied.seq, earliest.seq) AS seq, earliest.tool, earliest.input_sha256, replied.position AS replied, \
        coalesce(replied.position, earliest.position) AS position, \
        (SELECT a.position FROM audit_record a WHERE a.tool_call_id = earliest.tool_call_id AND a.run_no = earliest.run_no \
          AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 ORDER BY a.seq DESC LIMIT 1) AS newest \
      FROM earliest LEFT JOIN replied ON 1 = 1) \
    SELECT found.seq, found.tool, found.input_sha256, c.status, c.body, c.body_bytes, c.packed, ",
    record_columns!("n."),
    ", ",
    record_columns!("r."),
    " FROM found LEFT JOIN call_reply c ON c.position = found.replied \
    JOIN audit_record n ON n.position = found.newest JOIN audit_record r ON r.position = found.position"
);
pub(crate) const CHANGES: &str = concat!(
    "SELECT position, ",
    record_columns!(""),
    " FROM audit_record WHERE mutates AND outcome = 'ok' \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 ORDER BY seq LIMIT $3"
);
pub(crate) const RECORD: &str = concat!(
    "SELECT position, ",
    record_columns!(""),
    " FROM audit_record WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2"
);
pub(crate) const ARTIFACT: &str = "SELECT diff, diff_bytes FROM artifact \
    WHERE artifact_id = $1 AND run_no = (SELECT run_no FROM run WHERE run_id = $2)";
pub(crate) const UPLOAD: &str = "SELECT bytes, raw_bytes FROM upload \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND sha256 = $2";
/// Not a join: without statistics the planner would scan all contents.
pub(crate) const CONTENT: &str = concat!(
    "WITH r AS (SELECT position FROM audit_record ",
    "WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2) SELECT ",
    content_columns!(),
    " FROM content c WHERE ",
    written_at!("(SELECT position FROM r)"),
    " AND c.sha256 = $3"
);
pub(crate) const CHANGES_OF_PATH: &str = concat!(
    "SELECT r.position, ",
    record_columns!("r."),
    ", r.seq FROM audit_record r \
    WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND r.seq <= $2 \
    AND EXISTS (SELECT 1 FROM record_path p WHERE p.position = r.position AND p.path = $3) \
    ORDER BY r.seq DESC LIMIT $4"
);

pub(crate) const RUNS_WITH_STEPS: &str =
    "SELECT run_id FROM run WHERE run_no IN (SELECT run_no FROM step) ORDER BY run_no";
pub(crate) const DELETE_STEPS: &str = "DELETE FROM step WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// The next changes to purge in one transaction. Few, because other jobs wait for it.
pub(crate) const NEXT_PURGED: &str = "SELECT seq, position FROM audit_record \
    WHERE mutates AND outcome = 'ok' AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 \
    ORDER BY seq LIMIT 32";
pub(crate) const PURGE: &str = concat!("DELETE FROM content AS c WHERE ", written_at!("$1"));
pub(crate) const SET_PURGED: &str = "UPDATE run SET purged_seq = $2 WHERE run_id = $1";
pub(crate) const PURGED: &str = "SELECT purged_seq FROM run WHERE run_id = $1";
/// A subquery for each run, because a join would scan all records. Includes a change that was in flight when its run was deleted.
pub(crate) const UNPURGED: &str = "SELECT run_id FROM run WHERE state = 'deleted' AND (purged_seq < coalesce((\
      SELECT r.seq FROM audit_record r WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = run.run_no \
      ORDER BY r.seq DESC LIMIT 1), 0) \
    OR archived_seq >= (SELECT r.seq FROM audit_record r WHERE r.run_no = run.run_no ORDER BY r.seq LIMIT 1)) ORDER BY run_no";
pub(crate) const DELETE_ARCHIVED_APPROVALS: &str = "DELETE FROM approval WHERE run_no = \
    (SELECT run_no FROM run WHERE run_id = $1 AND archived_seq IS NOT NULL)";
/// The next archived records to delete in one transaction.
pub(crate) const NEXT_ARCHIVED: &str = "SELECT position FROM audit_record r JOIN run ON run.run_no = r.run_no \
    WHERE run_id = $1 AND seq <= archived_seq ORDER BY seq LIMIT 32";
/// What is deleted of the archived record at a position, in this order: the record itself at last.
pub(crate) const DELETE_ARCHIVED: [&str; 6] = [
    PURGE,
    "DELETE FROM artifact WHERE position = $1",
    "DELETE FROM upload WHERE position = $1",
    "DELETE FROM call_reply WHERE position = $1",
    "DELETE FROM record_path WHERE position = $1",
    "DELETE FROM audit_record WHERE position = $1",
];
/// What a record wrote besides itself: contents, its diff, an upload and its reply. The columns are a number for which of these,
/// the ID or the reply, the hash, the bytes or the compressed reply, the status, the size, and the diff that content needs.
pub(crate) const RECORD_DATA: &str = concat!(
    "WITH r AS (SELECT position FROM audit_record ",
    "WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2) ",
    "SELECT kind, name, sha256, bytes, status, raw_bytes, diff, diff_bytes FROM (",
    "SELECT CAST(0 AS BIGINT) AS kind, CAST(NULL AS TEXT) AS name, sha256, c.bytes, CAST(0 AS BIGINT) AS status, raw_bytes, ",
    "(SELECT a.diff FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20) AS diff, ",
    "(SELECT a.diff_bytes FROM artifact a WHERE c.needs_diff AND a.position = c.content_no >> 20) AS diff_bytes ",
    "FROM content c WHERE ",
    written_at!("(SELECT position FROM r)"),
    " UNION ALL SELECT 1, artifact_id, NULL, diff, 0, diff_bytes, NULL, NULL FROM artifact ",
    "WHERE position = (SELECT position FROM r) ",
    "UNION ALL SELECT 2, NULL, sha256, bytes, 0, raw_bytes, NULL, NULL FROM upload WHERE position = (SELECT position FROM r) ",
    "UNION ALL SELECT 3, body, NULL, packed, status, body_bytes, NULL, NULL FROM call_reply ",
    "WHERE position = (SELECT position FROM r)) AS data"
);

pub(crate) const APPROVAL_INPUT: &str = "SELECT input FROM approval WHERE approval_id = $1";
pub(crate) const EXPIRED_APPROVALS: &str = concat!(
    "SELECT approval_no, body, state, decision, ",
    select_voters!(),
    ", expires_at FROM approval WHERE state = 'pending' AND expires_at <= $1 ORDER BY expires_at LIMIT $2"
);

pub(crate) const REFER_TO_OBJECT: &str = "INSERT INTO object_reference (run_no, object, size_bytes, is_while_present) \
    SELECT run_no, $2, $3, $4 FROM run WHERE run_id = $1 ON CONFLICT (object, run_no) DO NOTHING";
/// Locks the row of the object `$1` until the commit, so that no claim passes a reference.
pub(crate) const USE_OBJECT: &str = "UPDATE stored_object SET reservation = reservation \
    WHERE object = $1 AND reservation = $2 AND claim IS NULL";
pub(crate) const ADD_OBJECT_PATH: &str = "INSERT INTO object_path (run_no, path_sha256, object) \
    SELECT run_no, $2, $3 FROM run WHERE run_id = $1 ON CONFLICT (run_no, path_sha256) DO UPDATE SET object = excluded.object";
pub(crate) const LEAVE_OBJECT_PATH: &str = "DELETE FROM object_path \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND path_sha256 = $2";
/// Locks the head of a run, as every transaction does before it changes other rows of the run.
pub(crate) const LOCK_HEAD: &str = "UPDATE run_head SET epoch = epoch \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// The references that end because no path of their run has the object.
pub(crate) const ENDED_REFERENCES: &str = "SELECT run_id, object FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE is_while_present AND NOT EXISTS (SELECT 1 FROM object_path p WHERE p.object = o.object AND p.run_no = o.run_no) \
    ORDER BY object, o.run_no LIMIT 100";
/// Subtracts the object `$2` from the history of the run `$1`, if its reference has ended.
pub(crate) const GIVE_BACK_OBJECT: &str = "UPDATE run_head SET history_bytes = history_bytes - coalesce((\
      SELECT size_bytes FROM object_reference o WHERE o.run_no = run_head.run_no AND object = $2 AND is_while_present AND NOT EXISTS (\
        SELECT 1 FROM object_path p WHERE p.object = o.object AND p.run_no = o.run_no)), 0) \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
pub(crate) const END_OBJECT_REFERENCE: &str = "DELETE FROM object_reference WHERE object = $2 AND is_while_present \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND NOT EXISTS (\
      SELECT 1 FROM object_path p WHERE p.object = object_reference.object AND p.run_no = object_reference.run_no)";
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
pub(crate) const OBJECT_REFERENCE: &str = "SELECT run_id FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE object = $1 AND state <> 'deleted' LIMIT 1";
pub(crate) const DELETE_OBJECT_REFERENCES: &str = "DELETE FROM object_reference \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";

pub(crate) const SETTING: &str = "SELECT value FROM setting WHERE name = $1";
pub(crate) const SET_SETTING: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
