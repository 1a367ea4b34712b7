//! The same search over a text that comes in pieces.

use std::collections::HashSet;

use aho_corasick::Input;

use super::{
    FORMS, MARKS, MAX_BEFORE_BYTES, MAX_KEY_BYTES, Skip, credential_at, end_of_label, is_private_key, skip_to_key,
};
use crate::Sha256;

/// So many bytes after the start of its mark tell what a credential is: more than the longest form looks at.
const LOOK_AHEAD: usize = 16 * 1024;
/// So many bytes are gathered before they are searched, so that small pieces do not cost a search each.
const GATHERED: usize = 64 * 1024;
/// More credentials of one text are not told apart.
const MAX_KNOWN: usize = 4096;

/// Searches a text piece by piece, with what it needs of the last piece kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct CredentialScan {
    /// The rest of the text so far: searched up to `from`, and a little before that for what a mark follows.
    window: Vec<u8>,
    from: usize,
    found: Credentials,
}

/// The credentials of one text: what each is, and a hash in place of its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// In the order of the text.
    list: Vec<(&'static str, Sha256)>,
    known: HashSet<Sha256>,
    /// What the first one is that is not in the list, where it is full.
    more: Option<&'static str>,
}

impl CredentialScan {
    /// Goes on with `piece`.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.window.extend_from_slice(piece);
        if self.window.len() - self.from >= GATHERED + LOOK_AHEAD {
            self.search(self.window.len() - LOOK_AHEAD, false);
        }
    }

    /// How many bytes are held of the text.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.window.capacity()
    }

    /// The text has ended.
    pub(crate) fn finish(mut self) -> Credentials {
        self.search(self.window.len(), true);
        self.found
    }

    /// Looks for every mark that begins before `end`, and forgets what is before it.
    fn search(&mut self, end: usize, is_last: bool) {
        let mut from = self.from;
        while from < end {
            let found =
                MARKS.as_ref().and_then(|marks| marks.find(Input::new(&self.window).span(from..self.window.len())));
            let Some(mark) = found.filter(|mark| mark.start() < end) else {
                from = end;
                break;
            };
            if !is_last && is_private_key(&FORMS[mark.pattern().as_usize()]) && self.wants_more(mark.end()) {
                // Goes on here when more of the text is there.
                from = mark.start();
                break;
            }
            from = mark.end();
            if let Some(found) = credential_at(&self.window, &mark) {
                self.found.add(found.what, &self.window[found.value]);
            }
        }
        let gone = from.saturating_sub(MAX_BEFORE_BYTES);
        self.window.drain(..gone);
        self.from = from - gone;
    }

    /// Whether the private key, the mark of whose head ends at `mark`, may go on behind the window. White space before the
    /// key goes from the window then, so that it stays small.
    fn wants_more(&mut self, mark: usize) -> bool {
        let Some(label) = end_of_label(&self.window[mark..]).map(|length| mark + length) else { return false };
        let body = &self.window[label..];
        let start = match skip_to_key(body) {
            Skip::To(start) if body.len() - start < MAX_KEY_BYTES => start,
            Skip::Ended => body.len(),
            Skip::To(_) | Skip::NoKey => return false,
        };
        let mut seam = body[..start].to_vec();
        seam.dedup_by(|byte, before| byte.is_ascii_whitespace() && before.is_ascii_whitespace());
        self.window.splice(label..label + start, seam);
        true
    }
}

impl Credentials {
    /// Adds those of the same text, read in another way.
    pub(crate) fn merge(&mut self, other: Self) {
        for (what, hash) in other.list {
            self.add_hash(what, hash);
        }
        self.more = self.more.or(other.more);
    }

    fn add(&mut self, what: &'static str, value: &[u8]) {
        self.add_hash(what, Sha256::of(value));
    }

    fn add_hash(&mut self, what: &'static str, hash: Sha256) {
        if self.list.len() == MAX_KNOWN && !self.known.contains(&hash) {
            self.more.get_or_insert(what);
        } else if self.known.insert(hash) {
            self.list.push((what, hash));
        }
    }

    /// The first of these that `old` does not hold, if any: what it is.
    pub(crate) fn not_in(&self, old: &Self) -> Option<&'static str> {
        self.list.iter().find(|(_, hash)| !old.known.contains(hash)).map(|(what, _)| *what).or(self.more)
    }
}
