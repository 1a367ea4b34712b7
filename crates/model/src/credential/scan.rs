//! Detection of credentials in a text that arrives in pieces.

use std::collections::HashSet;

use aho_corasick::Input;

use super::form::{FORMS, MARKS, MAX_BEFORE_BYTES, credential_at};
use super::private_key::{KeyStart, MAX_KEY_BYTES, label_end, skip_separators};
use crate::Sha256;

/// Bytes from the start of a mark that decide whether it begins a credential: more than the longest form reads.
const LOOKAHEAD_BYTES: usize = 16 * 1024;
/// Bytes that are buffered before a search, because a search for each small piece would be slow.
const SEARCH_BYTES: usize = 64 * 1024;
/// Maximum number of credentials of one text that are distinguished.
const MAX_CREDENTIALS: usize = 4096;

/// Searches a text piece by piece, and buffers the end of the text that later pieces may complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct CredentialScan {
    /// The end of the text so far. It is searched up to `from`; the bytes before `from` are the context of the next mark.
    window: Vec<u8>,
    from: usize,
    found: Credentials,
}

/// The credentials of one text: the kind of each, and a hash in place of its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// In the order of the text.
    list: Vec<(&'static str, Sha256)>,
    known: HashSet<Sha256>,
    /// The kind of the first credential that the full list omits.
    omitted: Option<&'static str>,
}

impl CredentialScan {
    /// Continues the scan with `piece`.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.window.extend_from_slice(piece);
        if self.window.len() - self.from >= SEARCH_BYTES + LOOKAHEAD_BYTES {
            self.search(self.window.len() - LOOKAHEAD_BYTES, false);
        }
    }

    /// Returns the capacity of the buffer in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_capacity(&self) -> usize {
        self.window.capacity()
    }

    /// Ends the text and returns its credentials.
    pub(crate) fn finish(mut self) -> Credentials {
        self.search(self.window.len(), true);
        self.found
    }

    /// Searches for every mark that starts before `end`, and removes the searched bytes from the window.
    fn search(&mut self, end: usize, is_last: bool) {
        let mut from = self.from;
        while from < end {
            let found =
                MARKS.as_ref().and_then(|marks| marks.find(Input::new(&self.window).span(from..self.window.len())));
            let Some(mark) = found.filter(|mark| mark.start() < end) else {
                from = end;
                break;
            };
            if !is_last && FORMS[mark.pattern().as_usize()].is_private_key() && self.needs_more(mark.end()) {
                // The next search continues here, with more of the text.
                from = mark.start();
                break;
            }
            from = mark.end();
            if let Some(found) = credential_at(&self.window, &mark) {
                self.found.add(found.kind, &self.window[found.value]);
            }
        }
        let removed = from.saturating_sub(MAX_BEFORE_BYTES);
        self.window.drain(..removed);
        self.from = from - removed;
    }

    /// Whether a private key whose mark ends at `mark` may continue after the window. If so, this removes repeated white space
    /// before the key, to keep the window small.
    fn needs_more(&mut self, mark: usize) -> bool {
        let Some(label) = label_end(&self.window[mark..]).map(|length| mark + length) else { return false };
        let body = &self.window[label..];
        let start = match skip_separators(body) {
            KeyStart::At(start) if body.len() - start < MAX_KEY_BYTES => start,
            KeyStart::EndOfText => body.len(),
            KeyStart::At(_) | KeyStart::NoKey => return false,
        };
        let mut separators = body[..start].to_vec();
        separators.dedup_by(|byte, before| byte.is_ascii_whitespace() && before.is_ascii_whitespace());
        self.window.splice(label..label + start, separators);
        true
    }
}

impl Credentials {
    /// Adds the credentials of another decoding of the same text.
    pub(crate) fn merge(&mut self, other: Self) {
        for (kind, hash) in other.list {
            self.add_hash(kind, hash);
        }
        self.omitted = self.omitted.or(other.omitted);
    }

    fn add(&mut self, kind: &'static str, value: &[u8]) {
        self.add_hash(kind, Sha256::of(value));
    }

    fn add_hash(&mut self, kind: &'static str, hash: Sha256) {
        if self.list.len() == MAX_CREDENTIALS && !self.known.contains(&hash) {
            self.omitted.get_or_insert(kind);
        } else if self.known.insert(hash) {
            self.list.push((kind, hash));
        }
    }

    /// Returns the kind of the first credential that `old` does not contain, if any.
    pub(crate) fn not_in(&self, old: &Self) -> Option<&'static str> {
        self.list.iter().find(|(_, hash)| !old.known.contains(hash)).map(|(kind, _)| *kind).or(self.omitted)
    }
}
