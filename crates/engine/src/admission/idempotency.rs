//! Creations that an operator may repeat under an `Idempotency-Key`: a repetition returns the first answer.
//!
//! The answer is stored in the transaction of the creation, without the token's secret. The secret is derived from the key,
//! the operator and a secret of the service that is not in the database, so that a repetition can return it again.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use ledger::KeyedAnswer;
use model::Sha256;
use serde::Serialize;

use crate::clock::now_plus;

/// How long the answer to a key is kept, in seconds.
pub(crate) const KEPT_SECONDS: i64 = 24 * 60 * 60;
/// The purposes of the derived bytes.
pub(crate) const RUN_TOKEN: &str = "workspaced run token of a keyed request";
pub(crate) const OPERATOR_TOKEN: &str = "workspaced operator token of a keyed request";

/// A request under an `Idempotency-Key`.
#[derive(Clone, Debug)]
pub struct KeyedRequest {
    /// The operator that chose the key, as the audit names it.
    pub(crate) operator: String,
    pub(crate) key: String,
    /// Hash of the operation and its input, by which a repetition is known from another request.
    pub(crate) request_sha256: Sha256,
}

/// The secret of the service from which the tokens of keyed requests are derived.
#[derive(Clone, Copy)]
pub struct DerivationKey([u8; 32]);

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

    /// Returns `answer`, which must have no secret, as it is stored.
    pub(crate) fn answer(&self, answer: &impl Serialize) -> KeyedAnswer {
        KeyedAnswer {
            operator: self.operator.clone(),
            key_sha256: self.key_sha256(),
            request_sha256: self.request_sha256,
            // Strings, numbers and lists always serialise.
            answer: serde_json::to_string(answer).unwrap_or_default(),
            expires_at: now_plus(KEPT_SECONDS),
        }
    }
}

impl DerivationKey {
    /// Uses 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives the bytes of the secret of `token`, which has one of the purposes above, without an end.
    pub(crate) fn bytes(self, purpose: &str, request: &KeyedRequest, token: &str) -> impl FnMut() -> u8 {
        let Ok(mut mac) = Hmac::<sha2::Sha256>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes a key of any length")
        };
        for part in [purpose, &request.operator, &request.key, token] {
            // With its length, so that no two lists of parts have the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let mut blocks = (0_u32..).flat_map(move |block| {
            let bytes: [u8; 32] = mac.clone().chain_update(block.to_be_bytes()).finalize().into_bytes().into();
            bytes
        });
        move || blocks.next().unwrap_or_default()
    }
}

impl fmt::Debug for DerivationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivationKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_bytes(key: u8, operator: &str, idempotency_key: &str, token: &str) -> Vec<u8> {
        let request = KeyedRequest::new(operator, idempotency_key, "run.create", "{}");
        let mut next = DerivationKey::new([key; 32]).bytes(RUN_TOKEN, &request, token);
        (0..100).map(|_| next()).collect()
    }

    #[test]
    fn a_secret_depends_on_the_service_the_operator_the_key_and_the_token() {
        let first = first_bytes(1, "operator:a", "k", "tok_1");
        assert_eq!(first, first_bytes(1, "operator:a", "k", "tok_1"));
        assert_ne!(first[..32], first[32..64], "the second block differs from the first");
        for other in [
            first_bytes(2, "operator:a", "k", "tok_1"),
            first_bytes(1, "operator:b", "k", "tok_1"),
            first_bytes(1, "operator:a", "l", "tok_1"),
            first_bytes(1, "operator:a", "k", "tok_2"),
            first_bytes(1, "operator:", "ak", "tok_1"),
        ] {
            assert_ne!(first, other);
        }
    }
}
