//! The form of tokens: what this service can never have made is known by its look, and costs no question to anybody.
//!
//! A token is `wsr_` or `wso_`, 43 characters of base 62 (256 random bits) and 6 more for the CRC-32 of what comes before
//! them. Earlier versions made `wsr_` and 64 of hex, without a checksum.

/// What is before the random part of a run's token.
pub(crate) const RUN_PREFIX: &str = "wsr";
/// What is before the random part of an operator's token.
pub(crate) const OPERATOR_PREFIX: &str = "wso";
/// Characters of base 62 that hold 256 bits.
const SECRET_CHARS: usize = 43;
/// Characters of base 62 that hold a CRC-32.
const CHECK_CHARS: usize = 6;
/// Hexadecimal characters of a token of an earlier version.
const UNCHECKED_CHARS: usize = 64;
const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// How a run's token may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenForm {
    /// With a good checksum.
    Checked,
    /// Of an earlier version.
    Unchecked,
    /// As no run's token does; an operator's may have any form.
    Foreign,
}

impl TokenForm {
    /// The form of `token`.
    pub(crate) fn of(token: &str) -> Self {
        let Some(rest) = token.strip_prefix(RUN_PREFIX).and_then(|rest| rest.strip_prefix('_')) else {
            return Self::Foreign;
        };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if rest.len() == UNCHECKED_CHARS && rest.bytes().all(is_hex) {
            return Self::Unchecked;
        }
        if rest.len() != SECRET_CHARS + CHECK_CHARS || !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Self::Foreign;
        }
        let (secret, check) = token.split_at(token.len() - CHECK_CHARS);
        if checksum(secret) == check { Self::Checked } else { Self::Foreign }
    }
}

/// Creates a token of 256 bits with the given prefix.
pub(crate) fn new_token(prefix: &str) -> String {
    token_of(prefix, rand::random)
}

/// A token with the given prefix, of `random` bytes.
fn token_of(prefix: &str, mut random: impl FnMut() -> u8) -> String {
    let mut token = format!("{prefix}_");
    let digit = |number: u8| char::from(BASE_62[usize::from(number) % BASE_62.len()]);
    while token.len() < prefix.len() + 1 + SECRET_CHARS {
        let byte = random();
        // Of 256 bytes 248 are shared evenly among 62 characters.
        if byte < 248 {
            token.push(digit(byte % 62));
        }
    }
    let check = checksum(&token);
    token + &check
}

/// The CRC-32 of `text` in base 62.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [b'0'; CHECK_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE_62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.map(char::from).iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_checksum() {
        let mut next = 0_u8;
        let token = token_of(RUN_PREFIX, || {
            next = next.wrapping_add(37);
            next
        });
        assert_eq!((token.len(), TokenForm::of(&token)), (4 + 43 + 6, TokenForm::Checked), "{token}");
        for at in 4..token.len() {
            let mut other = token.clone().into_bytes();
            other[at] = if other[at] == b'a' { b'b' } else { b'a' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(TokenForm::of(&other), TokenForm::Foreign, "{other}");
        }
        for foreign in [
            "",
            "wsr",
            "wsr_",
            "x",
            &token[1..],
            &token[..token.len() - 1],
            &format!("{token}0"),
            &token.to_uppercase(),
        ] {
            assert_eq!(TokenForm::of(foreign), TokenForm::Foreign, "{foreign}");
        }
        assert_eq!(TokenForm::of(&format!("wsr_{}", "0f".repeat(32))), TokenForm::Unchecked);
        assert_eq!(TokenForm::of(&format!("wsr_{}", "0F".repeat(32))), TokenForm::Foreign);
        assert_eq!(TokenForm::of(&token.replace("wsr_", "wso_")), TokenForm::Foreign);
    }

    #[test]
    fn a_checksum_has_its_length_whatever_it_is() {
        // The check value of CRC-32 is 0xcbf43926.
        let value = checksum("123456789")
            .bytes()
            .fold(0_u64, |sum, digit| sum * 62 + BASE_62.iter().position(|known| *known == digit).unwrap() as u64);
        assert_eq!(value, 0xcbf4_3926);
        for number in 0..1000 {
            assert_eq!(checksum(&number.to_string()).len(), CHECK_CHARS);
        }
    }
}
