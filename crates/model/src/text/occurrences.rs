//! Finds a pattern in a sequence.

/// Iterates over every occurrence of a pattern, overlapping ones included. The Knuth-Morris-Pratt algorithm keeps the time
/// linear even for repetitive patterns.
pub(crate) struct Occurrences<'a, T> {
    items: &'a [T],
    pattern: &'a [T],
    /// For each length of a matched prefix of the pattern, the length of its longest proper prefix that is also its suffix.
    shorter: Vec<usize>,
    at: usize,
    matched: usize,
}

impl<'a, T: PartialEq> Occurrences<'a, T> {
    /// Searches `items` from index `from` on.
    pub(crate) fn new(items: &'a [T], pattern: &'a [T], from: usize) -> Self {
        let mut shorter = vec![0; pattern.len() + 1];
        let mut matched = 0;
        for at in 1..pattern.len() {
            while matched > 0 && pattern[at] != pattern[matched] {
                matched = shorter[matched];
            }
            matched += usize::from(pattern[at] == pattern[matched]);
            shorter[at + 1] = matched;
        }
        Self { items, pattern, shorter, at: from, matched: 0 }
    }
}

impl<T: PartialEq> Iterator for Occurrences<'_, T> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.pattern.is_empty() {
            return None;
        }
        while let Some(item) = self.items.get(self.at) {
            self.at += 1;
            while self.matched > 0 && self.pattern.get(self.matched) != Some(item) {
                self.matched = self.shorter[self.matched];
            }
            self.matched += usize::from(self.pattern[self.matched] == *item);
            if self.matched == self.pattern.len() {
                return Some(self.at - self.matched);
            }
        }
        None
    }
}
