//! When a certificate expires: the end of its validity, which is all that is read of it (RFC 5280, section 4.1).

use jiff::civil::{DateTime, date};

/// Tags of DER.
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns when the first of `chain` to expire does, in seconds since 1970; `None` if none of them can be read.
pub(crate) fn earliest<'a>(chain: impl Iterator<Item = &'a [u8]>) -> Option<i64> {
    chain.filter_map(not_after).min()
}

fn not_after(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = of_tag(SEQUENCE, certificate)?;
    let (mut rest, _) = of_tag(SEQUENCE, certificate)?;
    if let Some((_, after)) = of_tag(VERSION, rest) {
        rest = after;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        rest = of_tag(tag, rest)?.1;
    }
    let (validity, _) = of_tag(SEQUENCE, rest)?;
    let (_, _, after) = element(validity)?;
    let (tag, time, _) = element(after)?;
    seconds(tag, std::str::from_utf8(time).ok()?)
}

/// Returns the seconds since 1970 of a time, which is in UTC.
fn seconds(tag: u8, time: &str) -> Option<i64> {
    let time = match tag {
        // Two digits of the year, of which 50 is 1950.
        UTC_TIME => format!("{}{time}", if time.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &time).ok()?;
    Some(time.duration_since(date(1970, 1, 1).at(0, 0, 0, 0)).as_secs())
}

/// Returns the content of an element with this tag at the start of `bytes`, and what follows it.
fn of_tag(expected: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == expected).then_some((content, rest))
}

/// Returns the tag and the content of the element at the start of `bytes`, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, bytes) = bytes.split_first()?;
    let (first, bytes) = bytes.split_first()?;
    // The high bit says that the length is in so many bytes.
    let (length, bytes) = if *first < 0x80 {
        (usize::from(*first), bytes)
    } else {
        let (length, bytes) =
            bytes.split_at_checked(usize::from(first & 0x7f)).filter(|(length, _)| length.len() <= 4)?;
        (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), bytes)
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(seconds(UTC_TIME, "700101000010Z"), Some(10));
        assert_eq!(seconds(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(seconds(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        for (tag, time) in [(UTC_TIME, ""), (UTC_TIME, "ä"), (UTC_TIME, "7001010000Z"), (INTEGER, "700101000010Z")] {
            assert_eq!(seconds(tag, time), None, "{time}");
        }
    }

    #[test]
    fn what_is_not_a_certificate_has_no_expiry() {
        let cut = [SEQUENCE, 0x82, 0x01, 0x00, SEQUENCE, 0x03, INTEGER, 0x01];
        for bytes in [&[][..], &[SEQUENCE], &[SEQUENCE, 0x80], &[SEQUENCE, 0xff, 1, 2], &cut] {
            assert_eq!(earliest([bytes].into_iter()), None, "{bytes:?}");
        }
    }
}
