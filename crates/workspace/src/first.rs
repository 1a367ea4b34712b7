//! The first of many entries, as many as one answer tells.

use std::collections::BTreeMap;

use model::LogicalPath;

/// The entries of one answer have about so many bytes of JSON at the most; those after them are left out.
pub const MAX_ENTRIES_BYTES: usize = 2 << 20;

/// How many bytes an entry has in JSON whose other members take `beside`.
pub(crate) fn entry_bytes(path: &str, beside: usize) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    path.len() + path.bytes().map(more).sum::<usize>() + beside
}

/// The first entries in the order of their paths, however they come: as many as are asked for and as fit an answer.
#[derive(Debug)]
pub struct BoundedEntries<T> {
    kept: BTreeMap<LogicalPath, T>,
    bytes: usize,
    max_entries: usize,
    beside: usize,
    truncated: bool,
}

impl<T> BoundedEntries<T> {
    /// None yet; at most `max_entries`, each of which has `beside` bytes beside its path.
    pub fn new(max_entries: usize, beside: usize) -> Self {
        Self { kept: BTreeMap::new(), bytes: 0, max_entries, beside, truncated: false }
    }

    /// Adds an entry, and drops what does not fit any more.
    pub fn insert(&mut self, path: LogicalPath, entry: T) {
        let bytes = entry_bytes(path.as_str(), self.beside);
        if self.kept.insert(path, entry).is_none() {
            self.bytes += bytes;
        }
        while self.kept.len() > self.max_entries || self.bytes > MAX_ENTRIES_BYTES {
            let Some((path, _)) = self.kept.pop_last() else { break };
            self.bytes -= entry_bytes(path.as_str(), self.beside);
            self.truncated = true;
        }
    }

    /// Whether there is an entry at `path`.
    pub(crate) fn contains(&self, path: &LogicalPath) -> bool {
        self.kept.contains_key(path)
    }

    /// The entries in order, and whether some are missing.
    pub fn finish(self) -> (BTreeMap<LogicalPath, T>, bool) {
        (self.kept, self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(max_entries: usize, paths: impl IntoIterator<Item = String>) -> (Vec<String>, bool) {
        let mut first = BoundedEntries::new(max_entries, 100);
        for path in paths {
            first.insert(LogicalPath::parse(&path).unwrap(), ());
        }
        let (kept, truncated) = first.finish();
        (kept.into_keys().map(String::from).collect(), truncated)
    }

    #[test]
    fn the_first_are_kept_in_whatever_order_they_come() {
        let paths = || ["c", "a", "d", "b", "a"].map(str::to_owned);
        assert_eq!(kept(2, paths()), (vec!["a".to_owned(), "b".to_owned()], true));
        assert!(!kept(4, paths()).1);
    }

    #[test]
    fn they_fit_an_answer_as_they_are_written() {
        for (name, written) in [("n", 1), ("\u{1}", 6), ("\"", 2), ("ü", 2)] {
            let (kept, truncated) =
                kept(usize::MAX, (0..2000).map(|number| format!("{number:04}{}", name.repeat(2000))));
            assert!(truncated);
            let told = kept.len() * (4 + 2000 * written + 100);
            assert!((MAX_ENTRIES_BYTES - 20_000..=MAX_ENTRIES_BYTES).contains(&told), "{name:?}: {told}");
        }
    }
}
