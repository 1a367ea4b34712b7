//! The reason of a change, as a header: UTF-8 as it is, or `utf-8\'\'` and percent-encoded UTF-8 as RFC 8187 defines it.

use model::Refusal;
use percent_encoding::percent_decode_str;

/// Returns the reason in the value of `X-Reason`.
///
/// # Errors
///
/// `INVALID_REQUEST` if an encoded value cannot be decoded.
pub(crate) fn decode(value: &str) -> Result<String, Refusal> {
    let Some(encoded) = encoded_part(value) else { return Ok(value.to_owned()) };
    let is_complete = |(at, _): (usize, _)| {
        let digits = encoded.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let decoded = percent_decode_str(encoded).decode_utf8().ok();
    let decoded = decoded.filter(|_| encoded.match_indices('%').all(is_complete));
    decoded.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        let message = "the header x-reason has an invalid percent-encoding";
        Refusal::invalid(message, "Send `utf-8\'\'` and the percent-encoded UTF-8 of the reason.")
    })
}

/// Returns what follows `utf-8\'LANGUAGE\'`. The language may be empty.
fn encoded_part(value: &str) -> Option<&str> {
    let prefix = value.get(..6).filter(|prefix| prefix.eq_ignore_ascii_case("utf-8\'"))?;
    let (language, encoded) = value[prefix.len()..].split_once('\'')?;
    language.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-').then_some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_text_or_percent_encoded() {
        for (value, reason) in [
            ("fix the build", "fix the build"),
            ("utf-8\'\'fix%20the%20build", "fix the build"),
            ("UTF-8\'en\'%E2%82%AC%0arates", "\u{20ac}\nrates"),
            ("utf-8 is the encoding", "utf-8 is the encoding"),
            ("it\'s 100%", "it\'s 100%"),
            ("utf-8\'\'", ""),
        ] {
            assert_eq!(decode(value).unwrap(), reason, "{value}");
        }
        for invalid in ["utf-8\'\'100%", "utf-8\'\'%e2%82", "utf-8\'\'%zz", "utf-8\'\'%4"] {
            assert_eq!(decode(invalid).unwrap_err().code, model::Code::InvalidRequest, "{invalid}");
        }
    }
}
