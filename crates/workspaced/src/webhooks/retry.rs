//! When a message is sent again.

use model::Sha256;

/// The attempts after which a message has failed: with the delays between them, about 24 hours.
pub(crate) const MAX_ATTEMPTS: u64 = 33;
/// The first and the longest delay, in seconds.
const DELAYS: (u64, u64) = (5, 3600);

/// Returns the seconds from a failed attempt, the number `attempts`, to the next one; `None` if there is none.
///
/// The delay doubles from 5 seconds to an hour. A fifth of it depends on the message, so that messages that failed together are
/// not sent together again.
pub(crate) fn delay_seconds(message_id: &str, attempts: u64) -> Option<u64> {
    if attempts >= MAX_ATTEMPTS {
        return None;
    }
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
    let delay = (DELAYS.0 << doublings).min(DELAYS.1);
    let digest = Sha256::of(format!("{message_id} {attempts}").as_bytes());
    let spread = u64::from(digest.as_bytes()[0]);
    Some(delay + delay * spread / (5 * 255))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_an_hour_and_end_after_a_day() {
        let delays: Vec<_> = (1..).map_while(|attempts| delay_seconds("msg_1", attempts)).collect();
        for (index, least) in [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600].into_iter().enumerate() {
            let delay = delays[index];
            assert!((least..=least + least / 5).contains(&delay), "{delay} s after attempt {}", index + 1);
        }
        assert_eq!(delays.len() as u64 + 1, MAX_ATTEMPTS);
        let hours = delays.iter().sum::<u64>() / 3600;
        assert!((23..=28).contains(&hours), "{hours} hours");
        let second: Vec<_> = (0..20).filter_map(|message| delay_seconds(&format!("msg_{message}"), 12)).collect();
        assert!(second.iter().any(|delay| *delay != second[0]), "messages are spread");
    }
}
