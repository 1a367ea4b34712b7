//! The clock and random IDs: the only module that reads the time or random numbers.

use jiff::{SignedDuration, Timestamp};
use model::{ApprovalId, ArtifactId, IdInvalid, RunId, Sha256, TokenId, ToolCallId};

/// Returns the time, RFC 3339 UTC with microseconds. All stored times have this format, in which text order is time order.
pub fn now() -> String {
    format_time(clock())
}

/// Returns the microseconds from the Unix epoch to a time in the format of [`now`]; `None` for any other text.
pub fn micros_of(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<Timestamp>().ok()?.as_microsecond()).ok()
}

/// Returns the time in seconds since the Unix epoch.
pub fn now_seconds() -> i64 {
    clock().as_second()
}

/// Returns the time in `seconds` from now, in the format of [`now`].
pub fn now_plus(seconds: i64) -> String {
    format_time(clock().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// Returns the time `millis` milliseconds after the Unix epoch, in the format of [`now`].
pub fn time_at(millis: i64) -> String {
    format_time(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX))
}

#[expect(clippy::disallowed_methods, reason = "the only function that reads the clock")]
fn clock() -> Timestamp {
    Timestamp::now().saturating_add(offset_in_test()).unwrap_or(Timestamp::MIN)
}

/// Returns by how much a test has moved the clock: the seconds in the file that `WORKSPACED_CLOCK` names. In debug builds only.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "a test sets it for one process, and no release build reads it")]
fn offset_in_test() -> SignedDuration {
    static FILE: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("WORKSPACED_CLOCK").ok());
    let text = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    SignedDuration::from_secs(text.trim().parse().unwrap_or(0))
}

#[cfg(not(debug_assertions))]
const fn offset_in_test() -> SignedDuration {
    SignedDuration::ZERO
}

/// Parses an RFC 3339 time. Returns it in the format of [`now`]. Of the last two days of the year 9999, whose end is written for "never",
/// it returns the last time that there is here.
///
/// # Errors
///
/// If `raw` is not an RFC 3339 time.
pub fn parse_time(raw: &str) -> Result<String, jiff::Error> {
    let is_after_last = || {
        let pieces = jiff::fmt::temporal::Pieces::parse(raw).ok();
        pieces.is_some_and(|pieces| {
            pieces.date() >= Timestamp::MAX.to_zoned(jiff::tz::TimeZone::UTC).date()
                && pieces.time().is_some()
                && pieces.offset().is_some()
        })
    };
    raw.parse().or_else(|error| if is_after_last() { Ok(Timestamp::MAX) } else { Err(error) }).map(format_time)
}

/// Returns the first time after `time`, which has the format of [`now`].
pub fn just_after(time: &str) -> String {
    // Sorts after `time` and before the next microsecond.
    format!("{time}~")
}

fn format_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns the seconds since `time`, which is in the format of [`now`]; 0 if it is not a time or in the future.
pub fn seconds_since(time: &str) -> f64 {
    let passed = |time: Timestamp| clock().duration_since(time).as_secs_f64();
    time.parse().map_or(0.0, passed).max(0.0)
}

/// Generates a secret of 256 bits, with a prefix.
pub fn new_secret(prefix: &str) -> String {
    let random: [u8; 32] = rand::random();
    format!("{prefix}_{}", Sha256::from_bytes(random))
}

/// Generates an ID: `prefix`, `_` and a UUIDv7.
fn new_id<T>(prefix: &str, parse: fn(&str) -> Result<T, IdInvalid>) -> T {
    let raw = format!("{prefix}_{}", uuid::Uuid::now_v7());
    match parse(&raw) {
        Ok(id) => id,
        Err(_) => unreachable!("every kind of ID allows letters, digits, `_` and `-`"),
    }
}

/// Generates the ID of a run.
pub fn new_run_id() -> RunId {
    new_id("run", RunId::parse)
}

/// Generates the ID of a tool call.
pub fn new_tool_call_id() -> ToolCallId {
    new_id("tc", ToolCallId::parse)
}

/// Generates the ID of an HTTP request whose caller gave none: a `UUIDv7`.
pub fn new_request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Generates the name of a claim: a `UUIDv7`.
pub fn new_claim() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Generates the ID of a token.
pub fn new_token_id() -> TokenId {
    new_id("tok", TokenId::parse)
}

/// Generates the ID of an artifact.
pub fn new_artifact_id() -> ArtifactId {
    new_id("art", ArtifactId::parse)
}

/// Generates the ID of an approval.
pub fn new_approval_id() -> ApprovalId {
    new_id("apr", ApprovalId::parse)
}
