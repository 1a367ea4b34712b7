//! Time and chance: the only place that asks for either.

use jiff::{SignedDuration, Timestamp};
use model::{ApprovalId, ArtifactId, IdInvalid, RunId, Sha256, TokenId, ToolCallId};

/// Now, RFC 3339 UTC with microseconds: the form of every stored time, in which text order is time order.
pub(crate) fn now() -> String {
    text_of(clock())
}

/// Now, in seconds since the epoch.
pub(crate) fn now_seconds() -> i64 {
    clock().as_second()
}

/// So many seconds from now, in the same form.
pub(crate) fn now_plus(seconds: i64) -> String {
    text_of(clock().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks the clock")]
fn clock() -> Timestamp {
    Timestamp::now()
}

/// Parses any RFC 3339 time and writes it in the form of stored times.
///
/// # Errors
///
/// Where `raw` is none.
pub(crate) fn parse_time(raw: &str) -> Result<String, jiff::Error> {
    raw.parse().map(text_of)
}

fn text_of(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// A new secret of 256 bits, with what it is for in front.
pub(crate) fn new_secret(prefix: &str) -> String {
    let random: [u8; 32] = rand::random();
    format!("{prefix}_{}", Sha256::from_bytes(random))
}

/// `prefix`, `_` and a UUIDv7.
fn new_id<T>(prefix: &str, parse: fn(&str) -> Result<T, IdInvalid>) -> T {
    let raw = format!("{prefix}_{}", uuid::Uuid::now_v7());
    match parse(&raw) {
        Ok(id) => id,
        Err(_) => unreachable!("every grammar of IDs takes letters, digits, `_` and `-`"),
    }
}

/// A new run's ID.
pub(crate) fn new_run_id() -> RunId {
    new_id("run", RunId::parse)
}

/// The ID of a call whose caller gave none.
pub(crate) fn new_tool_call_id() -> ToolCallId {
    new_id("tc", ToolCallId::parse)
}

/// A new token's ID.
pub(crate) fn new_token_id() -> TokenId {
    new_id("tok", TokenId::parse)
}

/// A new artifact's ID.
pub(crate) fn new_artifact_id() -> ArtifactId {
    new_id("art", ArtifactId::parse)
}

/// A new approval's ID.
pub(crate) fn new_approval_id() -> ApprovalId {
    new_id("apr", ApprovalId::parse)
}
