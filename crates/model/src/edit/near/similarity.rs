//! How similar two lines are.

use crate::text::looks_alike;

/// The most bytes of a line of the text that are compared.
pub(crate) const MAX_LINE_BYTES: usize = 2000;
/// The most bytes of a searched line that are compared.
const MAX_SEARCHED_BYTES: usize = 400;
/// Words of 64 bits in a set of pairs.
pub(crate) const WORDS: usize = 8;

/// The pairs of neighbouring bytes in the start of a line, as a set of hashes.
pub(crate) struct Pairs {
    bits: [u64; WORDS],
    count: u32,
}

impl Pairs {
    pub(crate) fn of(line: &str) -> Self {
        let mut bits = [0_u64; WORDS];
        for pair in start_of(line.trim().as_bytes(), MAX_LINE_BYTES).windows(2) {
            let hash = u16::from_le_bytes([pair[0], pair[1]]).wrapping_mul(0x9e35) >> 7;
            bits[usize::from(hash) / 64] |= 1 << (hash % 64);
        }
        Self { count: bits.iter().map(|word| word.count_ones()).sum(), bits }
    }

    /// How much of this line is in `other`, and of `other` in this one, from 0 to 1. A part of a long line is similar to it.
    #[expect(clippy::cast_precision_loss, reason = "at most 512")]
    pub(crate) fn similarity(&self, other: &Self, is_equal: bool) -> f32 {
        if is_equal {
            return 1.0;
        }
        if self.count == 0 || other.count == 0 {
            return 0.0;
        }
        let shared: u32 = self.bits.iter().zip(&other.bits).map(|(one, two)| (one & two).count_ones()).sum();
        let (shared, mine, others) = (shared as f32, self.count as f32, other.count as f32);
        0.7 * shared / mine + 0.2 * 2.0 * shared / (mine + others)
    }
}

/// The steps that searches may still take. A step is the comparison of two bytes, about a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort(usize);

impl Effort {
    pub(crate) const fn new(steps: usize) -> Self {
        Self(steps)
    }

    /// Takes `steps`; `None` if fewer are left, and then none are left afterwards.
    pub(crate) fn take(&mut self, steps: usize) -> Option<()> {
        let left = self.0.checked_sub(steps);
        self.0 = left.unwrap_or(0);
        left.map(drop)
    }

    /// Runs `action` with at most `steps` of this effort.
    pub(crate) fn with_most<T>(&mut self, steps: usize, action: impl FnOnce(&mut Self) -> T) -> T {
        let most = self.0.min(steps);
        let mut part = Self(most);
        let result = action(&mut part);
        self.0 -= most - part.0;
        result
    }
}

/// How similar a line of the text is to a searched one, from 0 to 1; `None` once the effort is used up.
///
/// The searched line may be a part of the other: it is compared with the part that is most similar.
#[expect(clippy::cast_precision_loss, reason = "at most 2,000")]
pub(crate) fn line_similarity(searched: &str, line: &str, effort: &mut Effort) -> Option<f32> {
    if searched == line {
        return Some(1.0);
    }
    let (want, have) = (searched.trim(), line.trim());
    if want == have {
        return Some(0.97);
    }
    if want.is_empty() || have.is_empty() {
        return Some(0.0);
    }
    // These comparisons mostly end at the first character, but they pass over any number of invisible ones.
    effort.take(want.len().max(have.len()))?;
    if squeeze(want).eq(squeeze(have)) || looks_alike(want, have) {
        return Some(0.95);
    }
    if want.chars().flat_map(char::to_lowercase).eq(have.chars().flat_map(char::to_lowercase)) {
        return Some(0.9);
    }
    let (want, have) = (start_of(want.as_bytes(), MAX_SEARCHED_BYTES), start_of(have.as_bytes(), MAX_LINE_BYTES));
    effort.take(want.len() * have.len())?;
    let kept = 1.0 - distance(want, have) as f32 / want.len() as f32;
    let length = want.len().min(have.len()) as f32 / want.len().max(have.len()) as f32;
    Some(0.85 * kept + 0.05 * length)
}

/// The characters of a line that count: without white space, and with all quotes as `"`.
pub(crate) fn squeeze(line: &str) -> impl Iterator<Item = char> {
    let quote = |c: char| if matches!(c, '\'' | '“' | '”' | '‘' | '’' | '`') { '"' } else { c };
    line.chars().filter(|c| !c.is_whitespace()).map(quote)
}

/// The least number of bytes to insert, remove or replace so that `want` becomes some part of `have`.
fn distance(want: &[u8], have: &[u8]) -> usize {
    // A row for the first bytes of `want`; a part may begin anywhere, so that the first row is all zero.
    let mut row = vec![0; have.len() + 1];
    for (index, wanted) in want.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, byte) in have.iter().enumerate() {
            let replaced = diagonal + usize::from(wanted != byte);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row.into_iter().min().unwrap_or(want.len())
}

fn start_of(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn a_distance_is_that_to_the_nearest_part() {
        for (want, have, distance_to_part) in [
            ("abc", "abc", 0),
            ("abc", "xxabcxx", 0),
            ("abc", "xxacxx", 1),
            ("abc", "xxaxbcxx", 1),
            ("return", "retrun x", 2),
            ("abc", "", 3),
            ("abc", "xyz", 3),
        ] {
            assert_eq!(distance(want.as_bytes(), have.as_bytes()), distance_to_part, "{want} {have}");
        }
    }
}
