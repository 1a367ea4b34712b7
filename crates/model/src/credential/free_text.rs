//! Redaction of free text beyond the well-known forms. Reasons and notes need no tokens at all, but files may contain some
//! that are not secret.

use std::borrow::Cow;
use std::ops::Range;

use super::form::{ALNUM, BASE64, URL_SAFE};

/// Minimum characters of a token after `Bearer` or `Basic`.
const MIN_TOKEN_BYTES: usize = 8;
/// Minimum characters of each part after the first of a JSON web token.
const MIN_JWT_PART_BYTES: usize = 4;

/// Redacts JSON web tokens, values of `Authorization` headers, and passwords in URLs.
pub(crate) fn redact(text: Cow<'_, str>) -> Cow<'_, str> {
    let mut spans: Vec<_> = web_tokens(&text).chain(header_values(&text)).chain(passwords(&text)).collect();
    if spans.is_empty() {
        return text;
    }
    spans.sort_by_key(|(_, span)| span.start);
    let (mut redacted, mut done) = (String::with_capacity(text.len()), 0);
    for (kind, span) in spans {
        if span.start >= done {
            redacted.push_str(&text[done..span.start]);
            redacted.extend(["[redacted: ", kind, "]"]);
            done = span.end;
        }
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
}

type Span = (&'static str, Range<usize>);

fn web_tokens(text: &str) -> impl Iterator<Item = Span> {
    let bytes = text.as_bytes();
    text.match_indices("eyJ").filter_map(move |(start, _)| {
        let mut end = start + part_length(&bytes[start..]);
        for _ in 0..2 {
            let part = part_length(bytes.get(end + 1..)?);
            if bytes.get(end) != Some(&b'.') || part < MIN_JWT_PART_BYTES {
                return None;
            }
            end += 1 + part;
        }
        let begins_word = start == 0 || !ALNUM(&bytes[start - 1]);
        begins_word.then_some(("JSON web token", start..end))
    })
}

/// Returns the length of the part of a web token at the start of `rest`. It needs no limit because free text is short.
fn part_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| URL_SAFE(byte)).count()
}

fn header_values(text: &str) -> impl Iterator<Item = Span> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (at, name) in lower.match_indices("authorization") {
        let mut start = at + name.len();
        start += lower[start..].bytes().take_while(|byte| b" \t:=\"'".contains(byte)).count();
        for scheme in ["bearer", "basic", "token"] {
            let Some(rest) = lower[start..].strip_prefix(scheme) else { continue };
            let value = start + scheme.len() + (rest.len() - rest.trim_start().len());
            let is_token = |byte: &&u8| BASE64(byte) || URL_SAFE(byte) || matches!(byte, b'.' | b'~' | b'%');
            let length = text.as_bytes()[value..].iter().take_while(is_token).count();
            if length >= MIN_TOKEN_BYTES {
                found.push(("authorization", value..value + length));
            }
        }
    }
    found.into_iter()
}

fn passwords(text: &str) -> impl Iterator<Item = Span> {
    text.match_indices("://").filter_map(|(at, mark)| {
        let start = at + mark.len();
        let is_end = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '`');
        let authority = text[start..].split(is_end).next()?;
        let user = &authority[..authority.rfind('@')?];
        let colon = user.find(':')?;
        (colon + 1 < user.len()).then(|| ("password", start + colon + 1..start + user.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_and_passwords_are_redacted() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl-_x";
        for (text, expected) in [
            (format!("used {jwt}, then"), "used [redacted: JSON web token], then"),
            (format!("Authorization: Bearer {jwt}"), "Authorization: Bearer [redacted: JSON web token]"),
            (
                "curl -H 'authorization: Basic dXNlcjpwYXNzd29yZA=='".to_owned(),
                "curl -H 'authorization: Basic [redacted: authorization]'",
            ),
            ("see postgres://app:s3cr:et@db/x?y".to_owned(), "see postgres://app:[redacted: password]@db/x?y"),
            ("https://user:p%40ss@host".to_owned(), "https://user:[redacted: password]@host"),
        ] {
            assert_eq!(redact(Cow::Borrowed(&text)), expected);
        }
        for harmless in [
            "eyJ starts a token; a.b.c does not",
            "https://host:8080/a@b",
            "https://user@host/x:y",
            "authorization: bearer tokens are checked",
            "the Authorization header",
            "",
        ] {
            assert_eq!(redact(Cow::Borrowed(harmless)), harmless);
        }
    }
}
