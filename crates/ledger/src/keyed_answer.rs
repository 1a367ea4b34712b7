//! The stored answers to requests that an operator may repeat under a key of its own.

use async_trait::async_trait;
use model::Sha256;

use crate::backend::{Backend, Param, RowReader, Statement};
use crate::store::Store;
use crate::{Result, rows};

const ANSWER: &str = "SELECT request_sha256, answer, expires_at FROM keyed_answer \
    WHERE operator = $1 AND key_sha256 = $2 AND expires_at > $3";
const INSERT: &str = "INSERT INTO keyed_answer (operator, key_sha256, request_sha256, answer, expires_at) \
    VALUES ($1, $2, $3, $4, $5)";
const DELETE_EXPIRED: &str = "DELETE FROM keyed_answer WHERE expires_at <= $1";

/// The answer to a creation under a key. It has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedAnswer {
    /// The operator that chose the key.
    pub operator: String,
    /// Hash of the key.
    pub key_sha256: Sha256,
    /// Hash of the request, by which a repetition is known from another request.
    pub request_sha256: Sha256,
    /// The answer as JSON.
    pub answer: String,
    /// When the key may be used for another request, RFC 3339 UTC with microseconds.
    pub expires_at: String,
}

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
        let read = |row: &dyn RowReader| Ok((rows::sha256(&row.bytes(0)?)?, row.text(1)?, row.text(2)?));
        let found = self.0.fetch(ANSWER, vec![operator.into(), key_sha256.into(), now.into()], read).await?;
        Ok(found.into_iter().next().map(|(request_sha256, answer, expires_at)| KeyedAnswer {
            operator: operator.to_owned(),
            key_sha256: *key_sha256,
            request_sha256,
            answer,
            expires_at,
        }))
    }

    async fn delete_expired_answers(&self, now: &str) -> Result<()> {
        self.0.transact(None, vec![Statement::new(DELETE_EXPIRED, [now.into()])]).await.map(drop)
    }
}

impl KeyedAnswer {
    /// Returns the statements that store the answer, in the row of one that has expired at `now` if there is one.
    pub(crate) fn statements(&self, now: &str) -> [Statement; 2] {
        [Statement::new(DELETE_EXPIRED, [now.into()]), Statement::new(INSERT, self.params())]
    }

    fn params(&self) -> [Param<'static>; 5] {
        let Self { operator, key_sha256, request_sha256, answer, expires_at } = self;
        [
            operator.as_str().into(),
            key_sha256.into(),
            request_sha256.into(),
            answer.as_str().into(),
            expires_at.as_str().into(),
        ]
    }
}
