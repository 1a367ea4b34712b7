//! The same search over a text that comes in pieces.

use std::collections::HashSet;

use aho_corasick::Input;

use super::{MARKS, credential_at};
use crate::Sha256;

/// So many bytes after the start of its mark tell what a credential is: more than the longest form looks at.
const LOOK_AHEAD: usize = 16 * 1024;
/// So many bytes are gathered before they are searched, so that small pieces do not cost a search each.
const GATHERED: usize = 64 * 1024;
/// More credentials of one text are not told apart.
const MAX_KNOWN: usize = 4096;

/// Searches a text piece by piece, with what it needs of the last piece kept.
#[derive(Debug, Default)]
pub(crate) struct CredentialScan {
    /// The rest of the text so far: searched up to `from`, and one byte before that for what a mark follows.
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
            self.search(self.window.len() - LOOK_AHEAD);
        }
    }

    /// The text has ended.
    pub(crate) fn finish(mut self) -> Credentials {
        self.search(self.window.len());
        self.found
    }

    /// Looks for every mark that begins before `end`, and forgets what is before it.
    fn search(&mut self, end: usize) {
        let mut from = self.from;
        while from < end {
            let found =
                MARKS.as_ref().and_then(|marks| marks.find(Input::new(&self.window).span(from..self.window.len())));
            let Some(mark) = found.filter(|mark| mark.start() < end) else {
                from = end;
                break;
            };
            from = mark.end();
            if let Some((what, value)) = credential_at(&self.window, &mark) {
                self.found.add(what, value);
            }
        }
        let gone = from.saturating_sub(1);
        self.window.drain(..gone);
        self.from = from - gone;
    }
}

impl Credentials {
    fn add(&mut self, what: &'static str, value: &[u8]) {
        let hash = Sha256::of(value);
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
