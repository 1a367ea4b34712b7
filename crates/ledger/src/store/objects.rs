//! Which objects of the object store may be deleted, and by whom.
//!
//! An upload first *reserves* its object: the row of the object is young then, by the clock of the database. The commit that refers to
//! the object locks that row until it ends. Whoever deletes an object first makes a *claim* in its row, which is possible only while the
//! row is old and no run refers to the object, and which waits for the commits that have locked the row. Nobody reserves or refers
//! to a claimed object. So no process deletes what another one has put or is about to refer to, whatever their clocks say.

use std::time::Duration;

use async_trait::async_trait;
use model::RunId;

use super::Store;
use super::sql::LOCK_HEAD;
use crate::backend::Backend;
use crate::backend::object_sql::{END_CLAIM, LOCK, RESERVATION};
use crate::statement::{Check, Select, Statement};
use crate::{LedgerError, Result, rows};

/// The references that end because no path of their run has the object.
const ENDED_REFERENCES: Select<(RunId, String)> = Select {
    sql: "SELECT run_id, object FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE is_while_present AND NOT EXISTS (SELECT 1 FROM object_path p WHERE p.object = o.object AND p.run_no = o.run_no) \
    ORDER BY object, o.run_no LIMIT 100",
    read: |row| Ok((rows::run_id(row, 0)?, row.text(1)?)),
};
/// Subtracts the object `$2` from the history of the run `$1`, if its reference has ended.
const GIVE_BACK_OBJECT: &str = "UPDATE run_head SET history_bytes = history_bytes - coalesce((\
      SELECT size_bytes FROM object_reference o WHERE o.run_no = run_head.run_no AND object = $2 AND is_while_present AND NOT EXISTS (\
        SELECT 1 FROM object_path p WHERE p.object = o.object AND p.run_no = o.run_no)), 0) \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const END_OBJECT_REFERENCE: &str = "DELETE FROM object_reference WHERE object = $2 AND is_while_present \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND NOT EXISTS (\
      SELECT 1 FROM object_path p WHERE p.object = object_reference.object AND p.run_no = object_reference.run_no)";

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
    /// Ends references to objects that [last while a path has them](crate::ObjectHolder::Path), where no path of the run does, and
    /// subtracts them from its history. Returns how many; 0 if there are no more. Several transactions.
    async fn end_references(&self) -> Result<u64>;
}

/// How long a claim is valid after it was made or prolonged. The process that has it stops long before.
pub const CLAIM_VALIDITY: Duration = Duration::from_mins(1);

#[async_trait]
impl<B: Backend> ObjectLog for Store<B> {
    async fn reserve_object(&self, object: &str) -> Result<Option<i64>> {
        let reserve = Statement::new(B::OBJECT_SQL.reserve, [object.into()]);
        if self.0.transact(None, vec![reserve]).await? == 0 {
            return Ok(None);
        }
        self.one(RESERVATION, vec![object.to_owned().into()]).await
    }

    async fn claim_object(&self, object: &str, claim: &str, unused_for: Duration) -> Result<bool> {
        let sql = B::OBJECT_SQL;
        let unused_ms = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX / 2);
        let params = vec![object.to_owned().into(), unused_ms.into()];
        let state = self.one(sql.state, params).await?;
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
        let ended = self.all(ENDED_REFERENCES, Vec::new()).await?;
        for (run, object) in &ended {
            let params = || [run.as_str().into(), object.as_str().into()];
            let statements = vec![
                Statement::new(LOCK_HEAD, [run.as_str().into()]),
                Statement::new(GIVE_BACK_OBJECT, params()),
                Statement::new(END_OBJECT_REFERENCE, params()),
                // The object stays for as long as one that was put now.
                Statement::new(B::OBJECT_SQL.touch, [object.as_str().into()]),
            ];
            self.0.transact(Some(run.clone()), statements).await?;
        }
        Ok(ended.len() as u64)
    }
}
