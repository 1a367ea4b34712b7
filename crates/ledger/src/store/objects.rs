//! Which objects of the object store may be deleted, and by whom.
//!
//! An upload first *reserves* its object: the row of the object is young then, by the clock of the database. The commit that refers to
//! the object locks that row until it ends. Whoever deletes an object first makes a *claim* in its row, which is possible only while the
//! row is old and no run refers to the object, and which waits for the commits that have locked the row. Nobody reserves or refers
//! to a claimed object. So no process deletes what another one has put or is about to refer to, whatever their clocks say.

use std::time::Duration;

use async_trait::async_trait;

use super::{Store, sql};
use crate::backend::{Backend, Check, RowReader, Statement};
use crate::{LedgerError, Result, rows};

/// The reservations and claims of objects.
#[async_trait]
pub trait ObjectLog: Send + Sync {
    /// Reserves an object for a commit that follows. Returns the number of the reservation, which the
    /// [entry](crate::EntryObject::reservation) names; `None` while the object is being deleted.
    async fn reserve_object(&self, object: &str) -> Result<Option<i64>>;
    /// Claims an object to delete it, if nobody has reserved it for `unused_for` and no run that is not deleted refers to it. The claim
    /// is valid for [`CLAIM_VALIDITY`]. An object that the database does not know counts as reserved now. Several transactions.
    async fn claim_object(&self, object: &str, claim: &str, unused_for: Duration) -> Result<bool>;
    /// Prolongs a claim. Returns false if it is not valid any more: the object must not be deleted.
    async fn renew_claim(&self, object: &str, claim: &str) -> Result<bool>;
    /// Ends a claim: the object is deleted. It may be reserved and put again.
    async fn end_claim(&self, object: &str, claim: &str) -> Result<()>;
    /// Ends references to objects that [last while a path has them](crate::EntryObject::path), where no path of the run does, and
    /// subtracts them from its history. Returns how many; 0 if there are no more. Several transactions.
    async fn end_references(&self) -> Result<u64>;
}

/// How long a claim is valid after it was made or prolonged. The process that has it stops long before.
pub const CLAIM_VALIDITY: Duration = Duration::from_mins(1);

/// The statements that read the clock of a database.
pub(crate) struct ObjectSql {
    reserve: &'static str,
    /// Stores the object `$1`, if it is not known.
    note: &'static str,
    /// Selects whether the object `$1` has not been reserved for `$2` milliseconds, and whether a run refers to it.
    state: &'static str,
    claim: &'static str,
    renew: &'static str,
    /// Makes the row of the object `$1` young.
    touch: &'static str,
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
            state: concat!(
                "SELECT used_at_ms <= ",
                $now,
                " - $2, ",
                is_referenced!(),
                " FROM stored_object WHERE object = $1"
            ),
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

const RESERVATION: &str = "SELECT reservation FROM stored_object WHERE object = $1 AND claim IS NULL";
/// Locks the row of the object `$1`. A statement that waits for a lock would not see the references that are committed meanwhile.
const LOCK: &str = "UPDATE stored_object SET reservation = reservation WHERE object = $1";
const END_CLAIM: &str = "DELETE FROM stored_object WHERE object = $1 AND claim = $2";

#[async_trait]
impl<B: Backend> ObjectLog for Store<B> {
    async fn reserve_object(&self, object: &str) -> Result<Option<i64>> {
        let reserve = Statement::new(B::OBJECT_SQL.reserve, [object.into()]);
        if self.0.transact(None, vec![reserve]).await? == 0 {
            return Ok(None);
        }
        self.one(RESERVATION, vec![object.to_owned().into()], |row| row.int(0)).await
    }

    async fn claim_object(&self, object: &str, claim: &str, unused_for: Duration) -> Result<bool> {
        let sql = B::OBJECT_SQL;
        let unused_ms = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX / 2);
        let params = vec![object.to_owned().into(), unused_ms.into()];
        let state = self.one(sql.state, params, |row| Ok((row.bool(0)?, row.bool(1)?))).await?;
        match state {
            None => {
                self.0.transact(None, vec![Statement::new(sql.note, [object.into()])]).await?;
                return Ok(false);
            }
            Some((true, false)) => {}
            Some(_) => return Ok(false),
        }
        let check = Some(Check::IsReserved(object.to_owned()));
        let lock = Statement { check, ..Statement::new(LOCK, [object.into()]) };
        let take = Statement::new(sql.claim, [object.into(), claim.into(), unused_ms.into()]);
        match self.0.transact(None, vec![lock, take]).await {
            // Another process has deleted it.
            Err(LedgerError::ObjectNotReserved(_)) => Ok(false),
            claimed => Ok(claimed? > 0),
        }
    }

    async fn renew_claim(&self, object: &str, claim: &str) -> Result<bool> {
        let renew = Statement::new(B::OBJECT_SQL.renew, [object.into(), claim.into()]);
        Ok(self.0.transact(None, vec![renew]).await? > 0)
    }

    async fn end_claim(&self, object: &str, claim: &str) -> Result<()> {
        let end = Statement::new(END_CLAIM, [object.into(), claim.into()]);
        self.0.transact(None, vec![end]).await.map(drop)
    }

    async fn end_references(&self) -> Result<u64> {
        let read = |row: &dyn RowReader| Ok((rows::run_id(row, 0)?, row.text(1)?));
        let ended = self.0.fetch(sql::ENDED_REFERENCES, Vec::new(), read).await?;
        for (run, object) in &ended {
            let params = || [run.as_str().into(), object.as_str().into()];
            let statements = vec![
                Statement::new(sql::LOCK_HEAD, [run.as_str().into()]),
                Statement::new(sql::GIVE_BACK_OBJECT, params()),
                Statement::new(sql::END_OBJECT_REFERENCE, params()),
                // The object stays for as long as one that was put now.
                Statement::new(B::OBJECT_SQL.touch, [object.as_str().into()]),
            ];
            self.0.transact(Some(run.clone()), statements).await?;
        }
        Ok(ended.len() as u64)
    }
}
