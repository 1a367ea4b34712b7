//! The statements of reservations and claims. The two databases have different names for their clock.

use crate::statement::Select;

/// The statements that read the clock of a database.
pub(crate) struct ObjectSql {
    pub(crate) reserve: &'static str,
    /// Stores the object `$1`, if it is not known.
    pub(crate) note: &'static str,
    /// Selects whether the object `$1` has not been reserved for `$2` milliseconds, and whether a run refers to it.
    pub(crate) state: Select<(bool, bool)>,
    pub(crate) claim: &'static str,
    pub(crate) renew: &'static str,
    /// Makes the row of the object `$1` young.
    pub(crate) touch: &'static str,
}

/// The condition that a run refers to the object `$1`.
macro_rules! is_referenced {
    () => {
        "EXISTS (SELECT 1 FROM object_reference o JOIN run ON run.run_no = o.run_no WHERE o.object = $1 AND state <> 'deleted')"
    };
}

/// The statements, with the expression for the current time in milliseconds since 1970.
macro_rules! object_sql {
    ($now:literal) => {
        ObjectSql {
            reserve: concat!(
                "INSERT INTO stored_object (object, reservation, used_at_ms) VALUES ($1, ",
                $now,
                ", ",
                $now,
                ") ON CONFLICT (object) DO UPDATE SET used_at_ms = excluded.used_at_ms, claim = NULL, claimed_at_ms = NULL, \
                 reservation = CASE WHEN stored_object.claim IS NULL THEN stored_object.reservation ELSE excluded.reservation END \
                 WHERE stored_object.claim IS NULL OR stored_object.claimed_at_ms <= ",
                $now,
                " - 60000"
            ),
            note: concat!(
                "INSERT INTO stored_object (object, reservation, used_at_ms) VALUES ($1, ",
                $now,
                ", ",
                $now,
                ") ON CONFLICT (object) DO NOTHING"
            ),
            state: Select { sql: concat!(
                "SELECT used_at_ms <= ",
                $now,
                " - $2, ",
                is_referenced!(),
                " FROM stored_object WHERE object = $1"
            ), read: |row| Ok((row.bool(0)?, row.bool(1)?)) },
            claim: concat!(
                "UPDATE stored_object SET claim = $2, claimed_at_ms = ",
                $now,
                " WHERE object = $1 AND used_at_ms <= ",
                $now,
                " - $3 AND (claim IS NULL OR claimed_at_ms <= ",
                $now,
                " - 60000) AND NOT ",
                is_referenced!()
            ),
            renew: concat!(
                "UPDATE stored_object SET claimed_at_ms = ",
                $now,
                " WHERE object = $1 AND claim = $2 AND claimed_at_ms > ",
                $now,
                " - 60000"
            ),
            touch: concat!("UPDATE stored_object SET used_at_ms = ", $now, " WHERE object = $1"),
        }
    };
}

pub(crate) const SQLITE: ObjectSql = object_sql!("CAST(unixepoch('subsec') * 1000 AS INTEGER)");
pub(crate) const POSTGRES: ObjectSql = object_sql!("CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)");

pub(crate) const RESERVATION: Select<i64> =
    Select { sql: "SELECT reservation FROM stored_object WHERE object = $1 AND claim IS NULL", read: |row| row.int(0) };
/// Locks the row of the object `$1`. A statement that waits for a lock would not see the references that are committed meanwhile.
pub(crate) const LOCK: &str = "UPDATE stored_object SET reservation = reservation WHERE object = $1";
pub(crate) const END_CLAIM: &str = "DELETE FROM stored_object WHERE object = $1 AND claim = $2";
