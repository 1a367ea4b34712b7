//! Where a pattern occurs in a sequence.

/// Every occurrence of a pattern, overlapping ones too, by the method of Knuth, Morris and Pratt: each item is looked at once
/// or twice, however much the pattern is like itself.
pub(crate) struct Occurrences<'a, T> {
    items: &'a [T],
    pattern: &'a [T],
    /// For each length of a matched start of the pattern, the next shorter start that is its end as well.
    shorter: Vec<usize>,
    at: usize,
    matched: usize,
}

impl<'a, T: PartialEq> Occurrences<'a, T> {
    /// Looks in `items` from the item `from` on.
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
