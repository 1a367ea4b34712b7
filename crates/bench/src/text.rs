//! Made-up source text: always the same for the same seed, and nobody's.

use sha2::Digest as _;

/// Words that are no secret, no keyword, and in no real tree.
const WORDS: [&str; 32] = [
    "harbor", "lantern", "granite", "meadow", "copper", "willow", "ember", "saddle", "thicket", "pebble", "orchard",
    "timber", "marrow", "cinder", "velvet", "hollow", "bramble", "quarry", "tallow", "furrow", "kettle", "spindle",
    "gravel", "juniper", "mortar", "pewter", "russet", "sorrel", "tinder", "umber", "wicker", "yarrow",
];

/// Numbers that look random and are not: xorshift64*.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % most.max(1)
    }

    /// The next word.
    pub(crate) fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

/// One line of made-up code, without its ending.
pub(crate) fn line(numbers: &mut Numbers) -> String {
    let (a, b, c) = (numbers.word(), numbers.word(), numbers.word());
    let number = numbers.below(10_000);
    match numbers.below(8) {
        0 => String::new(),
        1 => format!("fn {a}_{b}_{number}({c}: u64) -> u64 {{"),
        2 => "}".to_owned(),
        3 => format!("    // the {a} of a {b} is beside the {c}"),
        4 => format!("    if {a}.{b}() > {number} {{ return {c}; }}"),
        5 => format!("        {a}.push({b}.{c}({number}, \"{c} {a}\"));"),
        _ => format!("    let {a}_{b} = {c}.{b}({number});"),
    }
}

/// `count` lines of `width` bytes each with their ending.
pub(crate) fn lines_of(seed: u64, count: usize, width: usize) -> Vec<String> {
    let mut numbers = Numbers::new(seed);
    let body = width.saturating_sub(1);
    let mut fit = || {
        let mut text = format!("    let {} = {};", numbers.word(), numbers.below(1_000_000));
        while text.len() < body {
            text.push_str(" // ");
            text.push_str(numbers.word());
        }
        text.truncate(body);
        // A blank at the end would be cut by careful editors.
        if text.ends_with(' ') {
            text.replace_range(body - 1.., ".");
        }
        text.push('\n');
        text
    };
    (0..count).map(|_| fit()).collect()
}

/// Lower-case hex SHA-256, as callers write it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&sha2::Sha256::digest(bytes))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_many_and_as_wide_as_was_asked() {
        let lines = lines_of(7, 64, 64);
        assert_eq!(lines.len(), 64);
        assert!(lines.iter().all(|line| line.len() == 64 && line.ends_with('\n') && !line.ends_with(" \n")));
        assert_eq!(lines, lines_of(7, 64, 64));
        assert_ne!(lines, lines_of(8, 64, 64));
    }

    #[test]
    fn the_hash_is_the_one_of_the_standard() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
