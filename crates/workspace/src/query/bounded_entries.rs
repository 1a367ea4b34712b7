//! The first entries of a list, bounded to the size of one answer.

use std::collections::BTreeMap;

use model::LogicalPath;

/// The maximum size of the entries of one answer, as JSON. Entries beyond it are left out.
pub const MAX_ENTRIES_BYTES: usize = 2 << 20;

/// Returns the JSON size of an entry whose members other than the path take `overhead` bytes.
pub(crate) fn entry_bytes(path: &str, overhead: usize) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    path.len() + path.bytes().map(more).sum::<usize>() + overhead
}

/// What entries are ordered by. At equal ranks it is their path.
pub trait EntryKey: Ord {
    /// Returns the path of the entry.
    fn path(&self) -> &LogicalPath;
}

impl EntryKey for LogicalPath {
    fn path(&self) -> &LogicalPath {
        self
    }
}

/// Collects entries that come in any order and keeps the first ones, up to a count and to [`MAX_ENTRIES_BYTES`].
#[derive(Debug)]
pub struct BoundedEntries<T, K = LogicalPath> {
    entries: BTreeMap<K, T>,
    bytes: usize,
    max_entries: usize,
    overhead: usize,
    /// The first entry that did not fit. None after it is kept, so that no entry between those that are kept is missing.
    first_dropped: Option<K>,
}

impl<T, K: EntryKey> BoundedEntries<T, K> {
    /// Creates an empty collection for at most `max_entries`, each with `overhead` bytes of JSON besides its path.
    pub fn new(max_entries: usize, overhead: usize) -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, max_entries, overhead, first_dropped: None }
    }

    /// Adds an entry, and drops the last ones beyond the bounds.
    pub fn insert(&mut self, key: K, entry: T) {
        if self.first_dropped.as_ref().is_some_and(|dropped| key >= *dropped) {
            return;
        }
        let bytes = entry_bytes(key.path().as_str(), self.overhead);
        if self.entries.insert(key, entry).is_none() {
            self.bytes += bytes;
        }
        while self.entries.len() > self.max_entries || self.bytes > MAX_ENTRIES_BYTES {
            let Some((key, _)) = self.entries.pop_last() else { break };
            self.bytes -= entry_bytes(key.path().as_str(), self.overhead);
            self.first_dropped = Some(key);
        }
    }

    /// Whether some entries were dropped.
    pub(crate) fn is_truncated(&self) -> bool {
        self.first_dropped.is_some()
    }

    /// Returns the entries in order, and whether some were dropped.
    pub fn finish(self) -> (BTreeMap<K, T>, bool) {
        let is_truncated = self.is_truncated();
        (self.entries, is_truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(max_entries: usize, paths: impl IntoIterator<Item = String>) -> (Vec<String>, bool) {
        let mut entries = BoundedEntries::new(max_entries, 100);
        for path in paths {
            entries.insert(LogicalPath::parse(&path).unwrap(), ());
        }
        let (entries, truncated) = entries.finish();
        (entries.into_keys().map(String::from).collect(), truncated)
    }

    #[test]
    fn the_first_entries_are_kept_in_any_order_of_insertion() {
        let paths = || ["c", "a", "d", "b", "a"].map(str::to_owned);
        assert_eq!(first(2, paths()), (vec!["a".to_owned(), "b".to_owned()], true));
        assert!(!first(4, paths()).1);
    }

    #[test]
    fn no_entry_is_kept_after_one_that_was_dropped() {
        let mut entries = BoundedEntries::new(10, MAX_ENTRIES_BYTES / 2 - 10);
        for path in ["a", "c-that-is-too-long", "d", "b"] {
            entries.insert(LogicalPath::parse(path).unwrap(), ());
        }
        let (entries, truncated) = entries.finish();
        assert_eq!(entries.into_keys().map(String::from).collect::<Vec<_>>(), ["a", "b"]);
        assert!(truncated);
    }

    #[test]
    fn the_entries_fit_an_answer_as_json() {
        for (name, written) in [("n", 1), ("\u{1}", 6), ("\"", 2), ("ü", 2)] {
            let (entries, truncated) =
                first(usize::MAX, (0..2000).map(|number| format!("{number:04}{}", name.repeat(2000))));
            assert!(truncated);
            let bytes = entries.len() * (4 + 2000 * written + 100);
            assert!((MAX_ENTRIES_BYTES - 20_000..=MAX_ENTRIES_BYTES).contains(&bytes), "{name:?}: {bytes}");
        }
    }
}
