//! Detection of credentials in text. Only well-known forms count, to avoid false positives.
//!
//! Forms that harmless text also has are not detected: JSON web tokens (most test suites contain some), passwords in URLs,
//! and long random strings without a prefix of their issuer.

mod form;
mod free_text;
mod private_key;
mod scan;

use std::borrow::Cow;
use std::collections::HashSet;

use form::{BASE64, FoundCredential, URL_SAFE, credentials};

pub(crate) use scan::{CredentialScan, Credentials};

/// Returns the kind of the first well-known credential in `text`, if any, and never its value.
///
/// Takes time linear in the length of the text. Text with a byte order mark of UTF-16 is decoded first.
pub fn credential_in(text: &[u8]) -> Option<&'static str> {
    new_credential(None, text)
}

/// Returns the kind of the first well-known credential that `new` contains and `old` does not, if any, and never its value.
///
/// A file that already contains a credential, such as a test key, can therefore still be edited.
pub fn new_credential(old: Option<&[u8]>, new: &[u8]) -> Option<&'static str> {
    let new = decodings(new);
    let mut found = new.iter().flat_map(|text| values(text)).peekable();
    found.peek()?;
    let old = decodings(old.unwrap_or_default());
    let known: HashSet<&[u8]> = old.iter().flat_map(|text| values(text)).map(|(_, value)| value).collect();
    found.find(|(_, value)| !known.contains(value)).map(|(kind, _)| kind)
}

/// Whether a file whose first bytes are `head` is a private key, whatever its name.
pub(crate) fn is_key_file(head: &[u8]) -> bool {
    // Most files are decided by their first byte.
    private_key::is_key_file(&readable(head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head)))
}

/// Returns `text` with its credentials redacted, truncated to `max_chars` characters, and `…` where it is truncated.
///
/// Use it for messages that repeat a caller's input. Redaction comes first: truncation could shorten a credential so that
/// it is no longer recognized, and the message would show most of it.
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let redacted = redact(text);
    match redacted.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &redacted[..end]),
        None => redacted.into_owned(),
    }
}

/// Returns `text` with each credential replaced by `[redacted: kind]`, and borrows it if it contains none.
///
/// Use it for free text of people and agents: reasons, notes, labels. It removes more than [`credential_in`] detects: a
/// private key up to its end mark or the end of the text, every other form up to the end of its word; and JSON web tokens,
/// values of `Authorization` headers and passwords in URLs, all of which files may contain.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut redacted = String::new();
    let mut done = 0;
    for FoundCredential { kind, span, .. } in credentials(text.as_bytes()) {
        // Skips a mark inside a credential that is already redacted.
        if span.start < done {
            continue;
        }
        let end = if kind == "private key" { key_end(text, span.start) } else { word_end(text, span.end) };
        redacted.push_str(&text[done..span.start]);
        redacted.extend(["[redacted: ", kind, "]"]);
        done = end;
    }
    if done == 0 {
        return free_text::redact(Cow::Borrowed(text));
    }
    redacted.push_str(&text[done..]);
    free_text::redact(Cow::Owned(redacted))
}

/// Returns the end of the private key that starts at `start`.
fn key_end(text: &str, start: usize) -> usize {
    const END: &str = "-----END";
    let Some(end) = text[start..].find(END).map(|at| start + at + END.len()) else { return text.len() };
    text[end..].find("-----").map_or(text.len(), |at| end + at + "-----".len())
}

/// Returns the end of the word that continues at `from`. A form itself matches only a bounded part of a word.
fn word_end(text: &str, from: usize) -> usize {
    let is_part = |byte: &&u8| BASE64(byte) || URL_SAFE(byte);
    from + text.as_bytes().iter().skip(from).take_while(is_part).count()
}

/// Returns `text` with one byte for each ASCII character: decodes UTF-16 if a byte order mark announces it.
pub(crate) fn readable(text: &[u8]) -> Cow<'_, [u8]> {
    let decoded = match text {
        [0xff, 0xfe, rest @ ..] => encoding_rs::UTF_16LE.decode_without_bom_handling(rest).0,
        [0xfe, 0xff, rest @ ..] => encoding_rs::UTF_16BE.decode_without_bom_handling(rest).0,
        _ => return Cow::Borrowed(text),
    };
    Cow::Owned(decoded.into_owned().into_bytes())
}

/// Returns the possible decodings of `text`. If it contains NULs, one of them omits these, which reads UTF-16 without a byte
/// order mark.
fn decodings(text: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let text = readable(text);
    let dense = matches!(text, Cow::Borrowed(_)) && memchr::memchr(0, &text).is_some();
    let dense = dense.then(|| Cow::Owned(without_nul(&text)));
    [text].into_iter().chain(dense).collect()
}

pub(crate) fn without_nul(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| *byte != 0).collect()
}

/// Returns the kind and the identifying part of every credential in `text`.
fn values(text: &[u8]) -> impl Iterator<Item = (&'static str, &[u8])> {
    credentials(text).map(|found| (found.kind, &text[found.value]))
}

#[cfg(test)]
mod tests;
