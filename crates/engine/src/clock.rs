//! The clock and random IDs: the only module that reads the time or random numbers.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use model::{ApprovalId, ArtifactId, IdInvalid, RunId, Sha256, TokenId, ToolCallId};
use parking_lot::Mutex;

/// Returns the time, RFC 3339 UTC with microseconds. All stored times have this format, in which text order is time order.
pub fn now() -> String {
    format_time(clock())
}

/// Returns the microseconds from the Unix epoch to a time in the format of [`now`]; `None` for any other text.
pub fn micros_of(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<Timestamp>().ok()?.as_microsecond()).ok()
}

/// Returns the time of [`latest`] in seconds since the Unix epoch.
pub fn now_seconds() -> i64 {
    steady_time().as_second()
}

/// Returns the time in `seconds` from now, in the format of [`now`].
pub fn now_plus(seconds: i64) -> String {
    format_time(steady_time().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// Returns the time `millis` milliseconds after the Unix epoch, in the format of [`now`].
pub fn time_at(millis: i64) -> String {
    format_time(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX))
}

/// Returns the time by which everything expires, in the format of [`now`]. Unlike the system clock, it does not jump: if that is set
/// forward or back, the time passes as before until the clock has kept its new value for some minutes. So a clock that is wrong for a
/// moment neither ends nor revives anything, and one that is corrected is followed without a restart.
pub fn latest() -> String {
    format_time(steady_time())
}

fn steady_time() -> Timestamp {
    static STEADY: Mutex<Option<SteadyClock>> = Mutex::new(None);
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let mut steady = STEADY.lock();
    // Read under the lock, so that no reading is older than the one before.
    let (uptime, system) = (START.elapsed().saturating_add(passed_in_test()), clock());
    steady.get_or_insert_with(|| SteadyClock::new(system, uptime)).advance(system, uptime)
}

/// By how much the system clock may differ before it counts as set. A clock that NTP slews stays within this.
const MAX_DRIFT: SignedDuration = SignedDuration::from_secs(5);
/// How long the system clock keeps a new value before it is followed.
const SETTLING: Duration = Duration::from_mins(5);

/// A clock that follows the system clock, but not at once where that jumps.
struct SteadyClock {
    time: Timestamp,
    /// When `time` was: the time since the start of the process.
    at: Duration,
    /// By how much the system clock has jumped, and when that was noticed.
    jump: Option<(SignedDuration, Duration)>,
}

impl SteadyClock {
    fn new(system: Timestamp, uptime: Duration) -> Self {
        Self { time: system, at: uptime, jump: None }
    }

    /// Returns the time at `uptime`, when the system clock shows `system`.
    fn advance(&mut self, system: Timestamp, uptime: Duration) -> Timestamp {
        let passed = SignedDuration::try_from(uptime.saturating_sub(self.at)).unwrap_or(SignedDuration::MAX);
        self.time = self.time.checked_add(passed).unwrap_or(Timestamp::MAX);
        // A test that writes its file again takes back for a moment what it pretends to have passed.
        self.at = self.at.max(uptime);
        let ahead = system.duration_since(self.time);
        let is_settled = match self.jump {
            _ if ahead.abs() <= MAX_DRIFT => {
                self.jump = None;
                ahead.is_positive()
            }
            Some((jump, since)) if (ahead - jump).abs() <= MAX_DRIFT => uptime.saturating_sub(since) >= SETTLING,
            _ => {
                self.jump = Some((ahead, uptime));
                false
            }
        };
        if is_settled {
            (self.time, self.jump) = (system, None);
        }
        self.time
    }
}

#[expect(clippy::disallowed_methods, reason = "the only function that reads the clock")]
fn clock() -> Timestamp {
    Timestamp::now().saturating_add(offsets_in_test().0).unwrap_or(Timestamp::MIN)
}

/// Returns how much time a test pretends to have passed.
fn passed_in_test() -> Duration {
    offsets_in_test().1
}

/// Returns by how much a test has moved the system clock, and how much time it pretends to have passed: the file that
/// `WORKSPACED_CLOCK` names has seconds that have passed, or with ` set` after them, seconds by which the system clock alone is moved. In
/// debug builds only.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "a test sets it for one process, and no release build reads it")]
fn offsets_in_test() -> (SignedDuration, Duration) {
    static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WORKSPACED_CLOCK").ok());
    let text = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let (number, is_set) = text.trim().split_once(' ').map_or((text.trim(), false), |(number, _)| (number, true));
    let seconds = number.parse().unwrap_or(0);
    let passed = if is_set { 0 } else { u64::try_from(seconds).unwrap_or(0) };
    (SignedDuration::from_secs(seconds), Duration::from_secs(passed))
}

#[cfg(not(debug_assertions))]
const fn offsets_in_test() -> (SignedDuration, Duration) {
    (SignedDuration::ZERO, Duration::ZERO)
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
    let passed = |time: Timestamp| steady_time().duration_since(time).as_secs_f64();
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

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    /// A clock at second 0, the system clock's time as seconds.
    struct Rig(SteadyClock);

    impl Rig {
        fn new() -> Self {
            Self(SteadyClock::new(Timestamp::UNIX_EPOCH, Duration::ZERO))
        }

        /// Returns the time `uptime` seconds after the start, when the system clock is wrong by `error` seconds.
        fn at(&mut self, uptime: u64, error: i64) -> i64 {
            let system = Timestamp::from_second(i64::try_from(uptime).unwrap() + error).unwrap();
            self.0.advance(system, Duration::from_secs(uptime)).as_second()
        }
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_moment_is_not_followed() {
        for error in [DAY, -DAY, 60, -60] {
            let mut clock = Rig::new();
            for second in 10..30 {
                assert_eq!(clock.at(second, error), i64::try_from(second).unwrap(), "{error}");
            }
            for second in [30, 31, 600] {
                assert_eq!(clock.at(second, 0), i64::try_from(second).unwrap(), "{error}");
            }
            // Each time anew.
            assert_eq!(clock.at(700, error), 700);
            assert_eq!(clock.at(701, 0), 701);
        }
    }

    #[test]
    fn a_clock_that_keeps_its_new_value_is_followed() {
        for error in [DAY, -DAY, 60, -60] {
            let mut clock = Rig::new();
            assert_eq!(clock.at(10, error), 10);
            assert_eq!(clock.at(309, error), 309);
            assert_eq!(clock.at(310, error), 310 + error);
            assert_eq!(clock.at(311, error), 311 + error);
        }
    }

    #[test]
    fn a_clock_that_jumps_on_is_not_followed() {
        let mut clock = Rig::new();
        for (uptime, error) in [(10, DAY), (200, 2 * DAY), (400, DAY), (600, -DAY)] {
            assert_eq!(clock.at(uptime, error), i64::try_from(uptime).unwrap());
        }
        assert_eq!(clock.at(900, -DAY), 900 - DAY);
    }

    #[test]
    fn drift_is_followed_and_time_does_not_go_back_with_it() {
        let mut clock = Rig::new();
        assert_eq!(clock.at(10, 1), 11);
        assert_eq!(clock.at(20, 2), 22);
        assert_eq!(clock.at(21, -1), 23);
    }
}
