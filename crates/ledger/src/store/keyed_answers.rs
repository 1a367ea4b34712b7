//! The stored answers to requests that an operator may repeat under a key of its own.

use async_trait::async_trait;
use model::Sha256;

use super::Store;
use crate::backend::Backend;
use crate::insert::delete_expired_answers;
use crate::statement::Select;
use crate::{KeyedAnswer, Result, rows};

const ANSWER: Select<(Sha256, String, String)> = Select {
    sql: "SELECT request_sha256, answer, expires_at FROM keyed_answer \
    WHERE operator = $1 AND key_sha256 = $2 AND expires_at > $3",
    read: |row| Ok((rows::sha256(&row.bytes(0)?)?, row.text(1)?, row.text(2)?)),
};

/// The part of the ledger that has the answers under keys. An answer is stored with the record of its creation: see
/// [`Entry::keyed_answer`](crate::Entry::keyed_answer). Every method is one transaction.
#[async_trait]
pub trait KeyedAnswers: Send + Sync {
    /// Returns the answer under a key of `operator`, unless it has expired at `now`.
    async fn keyed_answer(&self, operator: &str, key_sha256: &Sha256, now: &str) -> Result<Option<KeyedAnswer>>;
    /// Deletes the answers that have expired at `now`.
    async fn delete_expired_answers(&self, now: &str) -> Result<()>;
}

#[async_trait]
impl<B: Backend> KeyedAnswers for Store<B> {
    async fn keyed_answer(&self, operator: &str, key_sha256: &Sha256, now: &str) -> Result<Option<KeyedAnswer>> {
        let found = self.one(ANSWER, vec![operator.into(), key_sha256.into(), now.into()]).await?;
        Ok(found.map(|(request_sha256, answer, expires_at)| KeyedAnswer {
            operator: operator.to_owned(),
            key_sha256: *key_sha256,
            request_sha256,
            answer,
            expires_at,
        }))
    }

    async fn delete_expired_answers(&self, now: &str) -> Result<()> {
        self.0.transact(None, vec![delete_expired_answers(now)]).await.map(drop)
    }
}
