//! Numbers within a range.

use std::time::Duration;

use crate::error::ConfigError;

/// Maximum of settings in seconds: one day.
const MAX_SECONDS: u64 = 86_400;

/// Returns the number given for `--name`, or its default.
///
/// # Errors
///
/// Fails if the number is not between 1 and `max`.
pub(crate) fn within(name: &str, given: Option<u64>, default: u64, max: u64) -> Result<u64, ConfigError> {
    match given.unwrap_or(default) {
        number if (1..=max).contains(&number) => Ok(number),
        number => Err(ConfigError(format!("--{name} {number}: expected 1 to {max}"))),
    }
}

/// As [`within`], for counts.
pub(crate) fn count(name: &str, given: Option<u64>, default: u64, max: u64) -> Result<usize, ConfigError> {
    within(name, given, default, max).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// As [`within`], for durations of up to a day.
pub(crate) fn seconds(name: &str, given: Option<u64>, default: u64) -> Result<Duration, ConfigError> {
    within(name, given, default, MAX_SECONDS).map(Duration::from_secs)
}
