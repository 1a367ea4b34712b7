//! Creations that an operator may repeat under an `Idempotency-Key`: a repetition returns what the first request has created, with
//! another token.
//!
//! The answer is stored in the transaction of the creation, without the token's secret.

use ledger::KeyedAnswer;
use model::{Code, Refusal, Sha256};
use serde::Serialize;

use crate::clock::{now, now_plus};

/// How long the answer to a key is kept, in seconds.
pub(crate) const KEPT_SECONDS: i64 = 24 * 60 * 60;

/// A request under an `Idempotency-Key`.
#[derive(Clone, Debug)]
pub struct KeyedRequest {
    /// The operator that chose the key, as the audit names it.
    pub(crate) operator: String,
    pub(crate) key: String,
    /// Hash of the operation and its input, by which a repetition is known from another request.
    pub(crate) request_sha256: Sha256,
}

impl KeyedRequest {
    /// The request of `operator` for `operation` with `input`, which is canonical JSON.
    pub fn new(operator: &str, key: &str, operation: &str, input: &str) -> Self {
        let request_sha256 = Sha256::of(format!("{operation}\n{input}").as_bytes());
        Self { operator: operator.to_owned(), key: key.to_owned(), request_sha256 }
    }

    pub(crate) fn key_sha256(&self) -> Sha256 {
        Sha256::of(self.key.as_bytes())
    }

    /// What no two requests under way may share.
    pub(crate) fn id(&self) -> Sha256 {
        Sha256::of(format!("{}\n{}", self.operator, self.key).as_bytes())
    }

    /// Returns `answer`, which must have no secret, as it is stored, and the current time.
    pub(crate) fn answer(&self, answer: &impl Serialize) -> (KeyedAnswer, String) {
        let answer = KeyedAnswer {
            operator: self.operator.clone(),
            key_sha256: self.key_sha256(),
            request_sha256: self.request_sha256,
            // Strings, numbers and lists always serialise.
            answer: serde_json::to_string(answer).unwrap_or_default(),
            expires_at: now_plus(KEPT_SECONDS),
        };
        (answer, now())
    }
}

/// The refusal of a keyed request whose answer was stored meanwhile, by an attempt whose outcome was uncertain.
pub(crate) fn key_taken() -> Refusal {
    let message = "a request under this idempotency key has been completed meanwhile";
    Refusal::new(Code::AlreadyExists, message, "Repeat it, for its answer.")
}
