//! Private keys: PEM blocks, also as string literals or in URLs, and key files of `PuTTY`.

use memchr::memmem;

use super::form::{BASE64, MAX_BODY_BYTES, UPPER, run_length};

/// The mark at the start of the header of a PEM block.
pub(crate) const KEY_MARK: &str = "-----BEGIN";
/// Maximum bytes of a private key that are compared to decide whether the old text contains the same key.
pub(crate) const MAX_KEY_BYTES: usize = 8 * 1024;
/// Maximum bytes of separators between the header of a private key and its text, without white space.
const MAX_SEPARATOR_BYTES: usize = 1024;

/// Matches a PEM block after its mark: the label, separators, and then base64 or the header lines of a key.
///
/// The block may be a file, a string literal of a program or a part of a URL.
pub(crate) fn private_key(rest: &[u8]) -> Option<usize> {
    let start = key_start(rest)?;
    let key = &rest[start..rest.len().min(start + MAX_KEY_BYTES)];
    let length = run_length(key, BASE64);
    let headers = [&b"Proc-Type:"[..], b"DEK-Info:", b"Version:", b"Comment:"];
    let is_key =
        length >= 16 || (length > 0 && is_short_key(key)) || headers.iter().any(|header| key.starts_with(header));
    let value_length = || memmem::find(key, b"-----END").unwrap_or(length.max(1));
    is_key.then(|| start + value_length())
}

/// Returns the offset at which the text of a private key may start, counted from the end of its mark.
pub(crate) fn key_start(rest: &[u8]) -> Option<usize> {
    let label = label_end(rest)?;
    match skip_separators(&rest[label..]) {
        KeyStart::At(start) => Some(label + start),
        KeyStart::NoKey | KeyStart::EndOfText => None,
    }
}

/// Returns the end of a header that announces a private key. Its spaces may be URL-encoded.
pub(crate) fn label_end(rest: &[u8]) -> Option<usize> {
    let is_label = |byte: &u8| UPPER(byte) || matches!(byte, b' ' | b'+' | b'%');
    let length = run_length(rest, is_label);
    let label = rest[..length].strip_suffix(b"BLOCK").map_or(&rest[..length], |label| {
        [&b" "[..], b"+", b"%20"].iter().find_map(|space| label.strip_suffix(*space)).unwrap_or(label)
    });
    let is_private = [&b"PRIVATE KEY"[..], b"PRIVATE+KEY", b"PRIVATE%20KEY"].iter().any(|words| label.ends_with(words));
    (is_private && rest[length..].starts_with(b"-----")).then_some(length + 5)
}

/// Whether only base64, line ends and separators of string literals precede a nearby end mark.
fn is_short_key(key: &[u8]) -> bool {
    let near = &key[..key.len().min(MAX_BODY_BYTES)];
    let is_separator = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'\'' | b',' | b'%');
    memmem::find(near, b"-----END").is_some_and(|end| near[..end].iter().all(|byte| BASE64(byte) || is_separator(byte)))
}

/// Returns the start of a key's text after line ends, literal or escaped, and the separators of string literals.
///
/// White space has no maximum length. No mark starts inside it, so it is read only once.
pub(crate) fn skip_separators(body: &[u8]) -> KeyStart {
    let (mut quotes, mut separators, mut at) = (0, 0, 0);
    while separators < MAX_SEPARATOR_BYTES {
        let length = match &body[at..] {
            [b' ' | b'\t' | b'\r' | b'\n', ..] => {
                at += 1;
                continue;
            }
            [b'\\', b'u', b'0', b'0', b'0', b'a' | b'A' | b'd' | b'D', ..] => 6,
            [b'%', b'0', b'a' | b'A' | b'd' | b'D' | b'9', ..] | [b'%', b'2', b'0', ..] => 3,
            [b'\\', b'n' | b'r' | b't' | b'"' | b'\'' | b'`', ..] => 2,
            [b'\\' | b'+' | b'.' | b',' | b'#' | b'*' | b'>' | b'|', ..] => 1,
            [b'"' | b'\'' | b'`', ..] => {
                quotes += 1;
                1
            }
            [] => return KeyStart::EndOfText,
            _ if quotes % 2 == 0 => return KeyStart::At(at),
            _ => return KeyStart::NoKey,
        };
        separators += length;
        at += length;
    }
    KeyStart::NoKey
}

/// What follows the header of a private key and its separators.
pub(crate) enum KeyStart {
    /// A possible key text starts at this offset.
    At(usize),
    /// Something other than a key: a string literal ends and no other starts, so program code follows; or there are too
    /// many separators.
    NoKey,
    /// The text ends after the separators.
    EndOfText,
}

/// Whether a file that begins with `head` is a private key: PEM, `PuTTY` or age. Only blank lines, comments, attributes as OpenSSL
/// writes them, and certificates may precede the key.
pub(crate) fn is_key_file(head: &[u8]) -> bool {
    let mut rest = head;
    loop {
        rest = rest.trim_ascii_start();
        let line = &rest[..memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len())];
        if line.starts_with(AGE_MARK) {
            return run_length(&line[AGE_MARK.len()..], UPPER) >= 58;
        }
        if let Some(key) = rest.strip_prefix(PUTTY_MARK.as_bytes()) {
            return putty_key(key).is_some();
        }
        if SSH2_MARKS.iter().any(|mark| line.starts_with(mark)) {
            return true;
        }
        let skipped = if let Some(block) = rest.strip_prefix(KEY_MARK.as_bytes()) {
            if private_key(block).is_some() {
                return true;
            }
            let Some(length) = other_block(block) else { return false };
            KEY_MARK.len() + length
        } else if is_about_key(line) {
            line.len()
        } else {
            return false;
        };
        rest = &rest[skipped..];
    }
}

const AGE_MARK: &[u8] = b"AGE-SECRET-KEY-1";
/// First lines of the private keys of ssh.com.
const SSH2_MARKS: [&[u8]; 2] = [b"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY", b"---- BEGIN SSH2 PRIVATE KEY"];
/// The mark of a key file of `PuTTY`.
pub(crate) const PUTTY_MARK: &str = "PuTTY-User-Key-File-";

/// Returns the length of a PEM block that is not a private key, counted from the end of its mark.
fn other_block(block: &[u8]) -> Option<usize> {
    const END: &[u8] = b"-----END";
    let end = memmem::find(block, END)? + END.len();
    let last = memmem::find(&block[end..], b"-----")? + b"-----".len();
    (!block.starts_with(b" PUBLIC") && run_length(&block[1..], |byte| *byte != b'\n') < MAX_BODY_BYTES)
        .then_some(end + last)
}

/// Whether a line is a comment, or an attribute that OpenSSL writes before a key.
fn is_about_key(line: &[u8]) -> bool {
    let is_attribute =
        [&b"Bag Attributes"[..], b"Key Attributes", b"friendlyName:", b"localKeyID:", b"subject=", b"issuer="];
    line.starts_with(b"#")
        || is_attribute.iter().any(|start| line.starts_with(start))
        // Object identifiers of other attributes: `2.16.840.1.113894.746875.1.1: …`.
        || (line.first().is_some_and(u8::is_ascii_digit)
            && memchr::memchr(b':', line).is_some_and(|at| line[..at].iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')))
}

/// Matches the key file of `PuTTY` after its mark, up to the header line of its private part.
pub(crate) fn putty_key(rest: &[u8]) -> Option<usize> {
    const LINES: &[u8] = b"Private-Lines:";
    const MAX_HEADER_BYTES: usize = 2048;
    memmem::find(&rest[..rest.len().min(MAX_HEADER_BYTES)], LINES).map(|at| at + LINES.len())
}
