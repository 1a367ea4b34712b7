//! The format of tokens. A token with an invalid checksum is refused without a ledger query.
//!
//! A token is `wsr_` or `wso_`, 43 characters of base 62 (256 random bits) and 6 for the CRC-32 of the text before them.

/// The prefix of run tokens.
pub(crate) const RUN_PREFIX: &str = "wsr";
/// The prefix of generated operator tokens.
pub(crate) const OPERATOR_PREFIX: &str = "wso";
/// Base-62 characters of 256 bits.
const SECRET_CHARS: usize = 43;
/// Base-62 characters of a CRC-32.
const CHECK_CHARS: usize = 6;
const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The format of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenForm {
    /// A run token with a valid checksum.
    Run,
    /// An operator token that the service has generated, with a valid checksum.
    Operator,
    /// Neither of them. Operator tokens of the configuration may have any format.
    Foreign,
}

impl TokenForm {
    /// Returns the format of `token`.
    pub(crate) fn of(token: &str) -> Self {
        let (checked, rest) = match token.split_once('_') {
            Some((RUN_PREFIX, rest)) => (Self::Run, rest),
            Some((OPERATOR_PREFIX, rest)) => (Self::Operator, rest),
            _ => return Self::Foreign,
        };
        if rest.len() != SECRET_CHARS + CHECK_CHARS || !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Self::Foreign;
        }
        let (secret, check) = token.split_at(token.len() - CHECK_CHARS);
        if checksum(secret) == check { checked } else { Self::Foreign }
    }
}

/// Creates a token of 256 bits with the given prefix.
pub(crate) fn new_token(prefix: &str) -> String {
    token_of(prefix, rand::random)
}

/// Generates a token with the given prefix from `random` bytes.
fn token_of(prefix: &str, mut random: impl FnMut() -> u8) -> String {
    let mut token = format!("{prefix}_");
    let digit = |number: u8| char::from(BASE_62[usize::from(number) % BASE_62.len()]);
    while token.len() < prefix.len() + 1 + SECRET_CHARS {
        let byte = random();
        // 248 is the largest multiple of 62 in a byte; other values would favour some characters.
        if byte < 248 {
            token.push(digit(byte % 62));
        }
    }
    let check = checksum(&token);
    token + &check
}

/// Returns the CRC-32 of `text` in base 62.
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
    fn a_token_is_recognised_by_its_checksum() {
        let mut next = 0_u8;
        let token = token_of(RUN_PREFIX, || {
            next = next.wrapping_add(37);
            next
        });
        assert_eq!((token.len(), TokenForm::of(&token)), (4 + 43 + 6, TokenForm::Run), "{token}");
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
            &format!("wsr_{}", "0f".repeat(32)),
        ] {
            assert_eq!(TokenForm::of(foreign), TokenForm::Foreign, "{foreign}");
        }
        assert_eq!(TokenForm::of(&token.replace("wsr_", "wso_")), TokenForm::Foreign);
    }

    #[test]
    fn every_checksum_has_the_same_length() {
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
