//! Time and chance: the only place that asks for either.

#[cfg(debug_assertions)]
use std::sync::LazyLock;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use model::{ApprovalId, ArtifactId, IdInvalid, RunId, Sha256, TokenId, ToolCallId};
use parking_lot::Mutex;

/// Now, RFC 3339 UTC with microseconds: the form of every stored time, in which text order is time order.
pub fn now() -> String {
    text_of(clock())
}

/// Now, in seconds since the epoch.
pub fn now_seconds() -> i64 {
    clock().as_second()
}

/// So many seconds from now, in the same form.
pub fn now_plus(seconds: i64) -> String {
    text_of(latest_time().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// The latest time that this process has known, and goes on from there: what has expired stays expired, and what shall
/// expire does, also when the system's clock is set back.
pub fn latest() -> String {
    text_of(latest_time())
}

fn latest_time() -> Timestamp {
    static LATEST: Mutex<Option<(Timestamp, Instant)>> = Mutex::new(None);
    let mut latest = LATEST.lock();
    let (told, at) = (clock(), Instant::now());
    let (time, since) = latest.get_or_insert((told, at));
    let passed = SignedDuration::try_from(at.duration_since(*since)).unwrap_or_default();
    *time = time.checked_add(passed).unwrap_or(Timestamp::MAX).max(told);
    *since = at;
    *time
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks the clock")]
fn clock() -> Timestamp {
    Timestamp::now().saturating_add(offset()).unwrap_or(Timestamp::MIN)
}

/// How far a test has moved the clock: seconds in the file that `WORKSPACED_CLOCK` names. In debug builds only.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "a test sets it for one process, and no release build reads it")]
fn offset() -> SignedDuration {
    static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WORKSPACED_CLOCK").ok());
    let told = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    SignedDuration::from_secs(told.and_then(|told| told.trim().parse().ok()).unwrap_or(0))
}

#[cfg(not(debug_assertions))]
const fn offset() -> SignedDuration {
    SignedDuration::ZERO
}

/// Parses any RFC 3339 time and writes it in the form of stored times.
///
/// # Errors
///
/// Where `raw` is none.
pub fn parse_time(raw: &str) -> Result<String, jiff::Error> {
    raw.parse().map(text_of)
}

fn text_of(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// A new secret of 256 bits, with what it is for in front.
pub fn new_secret(prefix: &str) -> String {
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
pub fn new_run_id() -> RunId {
    new_id("run", RunId::parse)
}

/// The ID of a call whose caller gave none.
pub fn new_tool_call_id() -> ToolCallId {
    new_id("tc", ToolCallId::parse)
}

/// A new token's ID.
pub fn new_token_id() -> TokenId {
    new_id("tok", TokenId::parse)
}

/// A new artifact's ID.
pub fn new_artifact_id() -> ArtifactId {
    new_id("art", ArtifactId::parse)
}

/// A new approval's ID.
pub fn new_approval_id() -> ApprovalId {
    new_id("apr", ApprovalId::parse)
}
