//! Examines content in pieces, without having all of it in memory.

use encoding_rs::{Decoder, UTF_16BE, UTF_16LE};

use crate::credential::{CredentialScan, Credentials, without_nul};
use crate::is_binary;

/// The first bytes that decide whether the content is binary.
const HEAD_BYTES: usize = 8 * 1024;
/// Bytes that are decoded at a time.
const DECODE_BYTES: usize = 16 * 1024;

/// Examines content piece by piece. The memory it needs does not depend on the content's length.
#[derive(Default)]
pub struct ContentScan {
    head: Vec<u8>,
    form: CharacterForm,
    lines: u64,
    /// The last character, as a byte.
    last: Option<u8>,
    credentials: CredentialScan,
    /// The same scan with NULs removed, from the first NUL on. Reads UTF-16 without a byte order mark.
    dense: Option<CredentialScan>,
}

/// The result of a [`ContentScan`].
#[derive(Clone, Debug, Default)]
pub struct ScannedContent {
    /// The number of lines of a text: its line endings, plus one for text after the last of them.
    pub lines: u64,
    /// Whether the first bytes indicate a binary file.
    pub is_binary: bool,
    credentials: Credentials,
}

/// How the bytes encode characters, by the first two bytes.
#[derive(Default)]
enum CharacterForm {
    #[default]
    Unknown,
    /// One byte for each ASCII character.
    Bytes,
    Utf16(Decoder),
}

impl std::fmt::Debug for ContentScan {
    // Bytes of a user's file must not appear in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContentScan({} lines)", self.lines)
    }
}

impl ScannedContent {
    /// Scans `content`, which is in memory.
    pub fn of(content: &[u8]) -> Self {
        let mut scan = ContentScan::default();
        scan.feed(content);
        scan.finish()
    }

    /// The kind of a well-known credential that this content contains and `old` does not, never its value. Agrees with
    /// [`new_credential`](crate::new_credential).
    pub fn new_credential(&self, old: &Self) -> Option<&'static str> {
        self.credentials.not_in(&old.credentials)
    }
}

impl ContentScan {
    /// Scans the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let before = self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(HEAD_BYTES - before)]);
        match &mut self.form {
            CharacterForm::Unknown if self.head.len() < 2 => {}
            CharacterForm::Unknown => {
                // The bytes in the head were not scanned yet.
                let start = self.head[..before].to_vec();
                match self.head[..2] {
                    [0xff, 0xfe] => self.form = CharacterForm::Utf16(UTF_16LE.new_decoder_without_bom_handling()),
                    [0xfe, 0xff] => self.form = CharacterForm::Utf16(UTF_16BE.new_decoder_without_bom_handling()),
                    _ => self.form = CharacterForm::Bytes,
                }
                if matches!(self.form, CharacterForm::Bytes) {
                    self.take(&start);
                    self.take(piece);
                } else {
                    self.decode(&piece[2 - before..], false);
                }
            }
            CharacterForm::Bytes => self.take(piece),
            CharacterForm::Utf16(_) => self.decode(piece, false),
        }
    }

    /// Ends the scan and returns its result.
    pub fn finish(mut self) -> ScannedContent {
        match &self.form {
            CharacterForm::Unknown => {
                let head = self.head.clone();
                self.take(&head);
            }
            CharacterForm::Bytes => {}
            CharacterForm::Utf16(_) => self.decode(&[], true),
        }
        let mut credentials = self.credentials.finish();
        if let Some(dense) = self.dense {
            credentials.merge(dense.finish());
        }
        let is_open = self.last.is_some_and(|last| last != b'\n');
        ScannedContent { lines: self.lines + u64::from(is_open), is_binary: is_binary(&self.head), credentials }
    }

    fn decode(&mut self, piece: &[u8], is_last: bool) {
        let (mut rest, mut text) = (piece, vec![0; DECODE_BYTES]);
        loop {
            let CharacterForm::Utf16(decoder) = &mut self.form else { return };
            let (result, read, written, _) = decoder.decode_to_utf8(rest, &mut text, is_last);
            rest = &rest[read..];
            self.take(&text[..written]);
            if result == encoding_rs::CoderResult::InputEmpty {
                return;
            }
        }
    }

    /// Scans text with one byte for each ASCII character.
    fn take(&mut self, text: &[u8]) {
        let Some(last) = text.last() else { return };
        self.lines += memchr::memchr_iter(b'\n', text).count() as u64;
        let is_utf16 = matches!(self.form, CharacterForm::Utf16(_));
        let first_nul = memchr::memchr(0, text).filter(|_| self.dense.is_none() && !is_utf16);
        let (before, rest) = text.split_at(first_nul.unwrap_or(0));
        self.credentials.feed(before);
        if first_nul.is_some() {
            // Up to here both readings are the same, so a credential may begin before the first NUL.
            self.dense = Some(self.credentials.clone());
        }
        self.credentials.feed(rest);
        if let Some(dense) = &mut self.dense {
            dense.feed(&without_nul(rest));
        }
        self.last = Some(*last);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{count_changes, new_credential};

    /// More bytes than a scan buffers before it searches.
    const MORE_THAN_BUFFERED: usize = 80 * 1024;
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n";

    fn in_pieces(content: &[u8], pieces: &[usize]) -> ScannedContent {
        let (mut scan, mut rest) = (ContentScan::default(), content);
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).clamp(1, rest.len().max(1)).min(rest.len()));
            scan.feed(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        scan.finish()
    }

    fn utf16(text: &str) -> Vec<u8> {
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    }

    /// Encodes `text` in UTF-16BE without a byte order mark.
    fn big_endian(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    #[test]
    fn a_key_after_much_white_space_is_found_and_is_the_same_key() {
        let token = format!("ghp_{}", "a1".repeat(20));
        for blanks in [10, 200, 7_000, 20_000, 500_000] {
            let text =
                format!("x\n{}{token}\n", KEY.replacen("-----\n", &format!("-----{}", "\n \t\r".repeat(blanks)), 1));
            for pieces in [&[1000][..], &[65_536, 1], &[1 << 22]] {
                let found = in_pieces(text.as_bytes(), pieces);
                assert_eq!(
                    found.new_credential(&ScannedContent::default()),
                    Some("private key"),
                    "{blanks} {pieces:?}"
                );
                assert_eq!(found.new_credential(&ScannedContent::of(KEY.as_bytes())), Some("GitHub token"));
            }
        }
        let mut scan = ContentScan::default();
        scan.feed(format!("-----{} PRIVATE KEY-----", "BEGIN").as_bytes());
        for _ in 0..200 {
            scan.feed(&b" ".repeat(65_536));
            assert!(scan.credentials.buffer_capacity() < 256 * 1024, "{}", scan.credentials.buffer_capacity());
        }
    }

    #[test]
    fn a_credential_is_found_across_any_pieces() {
        let token = format!("ghp_{}", "a1".repeat(20));
        for secret in [KEY, &token] {
            for before in [0, 1, 5, MORE_THAN_BUFFERED - 30, MORE_THAN_BUFFERED, 300_000] {
                let text = format!("{}\n{secret}\n{}", "x".repeat(before), "y\n".repeat(50_000));
                for bytes in [text.clone().into_bytes(), utf16(&text), utf16(&text)[2..].to_vec(), big_endian(&text)] {
                    for pieces in [&[1][..], &[3, 1000], &[65_536], &[1 << 20]] {
                        let found = in_pieces(&bytes, pieces).new_credential(&ScannedContent::default());
                        assert_eq!(found, new_credential(None, &bytes), "{before} {pieces:?}");
                        assert!(found.is_some());
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_with_its_first_nul_after_its_head_is_found() {
        for blanks in [0, 100, 30_000, 200_000] {
            let head = format!("-----{} PRIVATE KEY-----\n{}", "BEGIN", " ".repeat(blanks));
            let text = format!("{head}\0AKIA-----END PRIVATE KEY-----");
            for pieces in [&[1][..], &[1000], &[1 << 20]] {
                let found = in_pieces(text.as_bytes(), pieces).new_credential(&ScannedContent::default());
                assert_eq!(found, new_credential(None, text.as_bytes()), "{blanks} {pieces:?}");
                assert_eq!(found, Some("private key"));
            }
        }
    }

    #[test]
    fn a_credential_of_the_old_content_is_not_new() {
        let (old, new) = (ScannedContent::of(KEY.as_bytes()), format!("{}\n{KEY}", "x".repeat(200_000)));
        assert_eq!(in_pieces(new.as_bytes(), &[1000]).new_credential(&old), None);
        let other = new.replace("MIIE", "MIIF");
        assert_eq!(in_pieces(other.as_bytes(), &[1000]).new_credential(&old), Some("private key"));
    }

    #[test]
    fn lines_are_counted_as_the_diff_counts_them() {
        for text in ["", "a", "a\n", "a\nb", "\n\n", "a\r\nb\r\n"] {
            let counts = count_changes(b"", text.as_bytes());
            assert_eq!(in_pieces(text.as_bytes(), &[1]).lines, counts.insertions, "{text:?}");
            if !text.is_empty() {
                assert_eq!(in_pieces(&utf16(text), &[1]).lines, counts.insertions, "{text:?} in UTF-16");
            }
        }
        assert!(in_pieces(b"%PDF-1.7\nabc", &[4]).is_binary && !in_pieces(b"abc\n", &[2]).is_binary);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            parts in prop::collection::vec(prop_oneof![
                Just("sk-".to_owned()), Just("-----BEGIN ".to_owned()), Just("PRIVATE KEY-----\n".to_owned()),
                Just("-----END PRIVATE KEY-----".to_owned()), Just("AKIA".to_owned()), "[A-Z0-9]{16}", "[a-z0-9]{40}",
                Just("\n".to_owned()), Just(" ".to_owned()), Just("x".repeat(9000)), Just("ghp_".to_owned()),
                Just(" ".repeat(30_000)), Just("\0".to_owned()), Just("\\n".to_owned()),
            ], 0..60),
            pieces in prop::collection::vec(1_usize..40_000, 1..6),
        ) {
            let text = parts.concat();
            let found = in_pieces(text.as_bytes(), &pieces).new_credential(&ScannedContent::default());
            prop_assert_eq!(found, new_credential(None, text.as_bytes()));
        }
    }
}
