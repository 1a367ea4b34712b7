//! What a query may consist of, whatever its parameters mean.

/// The longest value, in bytes: that of a path.
const MAX_VALUE_BYTES: usize = 4096;
/// Parameters that are texts of several lines. They have bounds of their own, below that of a request's head.
const TEXTS: [&str; 1] = ["message"];

/// Checks the names and values of `query`, of which `known` are the parameters. The parser of the values takes bytes that are
/// no UTF-8 for replacement characters, and a database refuses a NUL: neither can be meant.
///
/// # Errors
///
/// What is wrong, for the caller to read.
pub(super) fn check(query: &str, known: &[String]) -> Result<(), String> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).map_err(|_| "a name in the query is not UTF-8".to_owned())?;
        if !known.contains(&name) {
            let shown = model::excerpt(&name, 100);
            return Err(format!("there is no query parameter `{}` here", shown.escape_debug()));
        }
        let value = decode(value).map_err(|_| format!("the query parameter `{name}` is not UTF-8"))?;
        let is_text = TEXTS.contains(&name.as_str());
        if !is_text && value.len() > MAX_VALUE_BYTES {
            let length = value.len();
            return Err(format!(
                "the query parameter `{name}` has {length} bytes; at most {MAX_VALUE_BYTES} are taken"
            ));
        }
        let is_bad = |character: &char| character.is_control() && !(is_text && matches!(character, '\t' | '\n' | '\r'));
        if let Some(bad) = value.chars().find(is_bad) {
            return Err(format!("the query parameter `{name}` holds the control character `{}`", bad.escape_debug()));
        }
    }
    Ok(())
}

/// A name or value as it is meant: `+` is a space, `%` and two digits is a byte.
fn decode(raw: &str) -> Result<String, std::string::FromUtf8Error> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (raw, mut decoded, mut at) = (raw.as_bytes(), Vec::with_capacity(raw.len()), 0);
    while let Some(byte) = raw.get(at) {
        let escaped = digit(raw.get(at + 1)).zip(digit(raw.get(at + 2))).filter(|_| *byte == b'%');
        let escaped = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        decoded.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_text_without_control_characters() {
        let known = ["tool".to_owned(), "message".to_owned()];
        for good in
            ["tool=a", "tool=%C3%BC+x%2fy", "tool", "tool=", "&&tool=a&", "tool=100%", "tool=%zz", "message=a%0Ab%09"]
        {
            assert_eq!(check(good, &known), Ok(()), "{good}");
        }
        let long = format!("tool={}", "a".repeat(4097));
        for bad in ["tool=%00", "tool=a%1fb", "tool=%7F", "tool=%C2%80", "tool=%FF", "tool=%C3", "tool=a%0A", &long] {
            assert!(check(bad, &known).unwrap_err().contains("`tool`"), "{bad}");
        }
        for bad in ["message=%00", "message=%1b", "other=1", "%FF=1", "tool%00=1"] {
            assert!(check(bad, &known).is_err(), "{bad}");
        }
    }
}
