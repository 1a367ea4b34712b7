//! Generated source text, equal for equal seeds.

use sha2::Digest as _;

/// Words that are neither secrets nor keywords, and rare in real source code.
const WORDS: [&str; 32] = [
    "harbor", "lantern", "granite", "meadow", "copper", "willow", "ember", "saddle", "thicket", "pebble", "orchard",
    "timber", "marrow", "cinder", "velvet", "hollow", "bramble", "quarry", "tallow", "furrow", "kettle", "spindle",
    "gravel", "juniper", "mortar", "pewter", "russet", "sorrel", "tinder", "umber", "wicker", "yarrow",
];

/// A deterministic pseudo-random generator: xorshift64*.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator; each seed gives another sequence.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns the next number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % limit.max(1)
    }

    /// Returns the next word.
    pub(crate) fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

/// Returns a line of generated code without its line ending.
pub(crate) fn line(rng: &mut Rng) -> String {
    let (a, b, c) = (rng.word(), rng.word(), rng.word());
    let number = rng.below(10_000);
    match rng.below(8) {
        0 => String::new(),
        1 => format!("fn {a}_{b}_{number}({c}: u64) -> u64 {{"),
        2 => "}".to_owned(),
        3 => format!("    // the {a} of a {b} is beside the {c}"),
        4 => format!("    if {a}.{b}() > {number} {{ return {c}; }}"),
        5 => format!("        {a}.push({b}.{c}({number}, \"{c} {a}\"));"),
        _ => format!("    let {a}_{b} = {c}.{b}({number});"),
    }
}

/// Returns `count` lines of `width` bytes each, including the line ending.
pub(crate) fn lines_of(seed: u64, count: usize, width: usize) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let body = width.saturating_sub(1);
    let mut next_line = || {
        let mut text = format!("    let {} = {};", rng.word(), rng.below(1_000_000));
        while text.len() < body {
            text.push_str(" // ");
            text.push_str(rng.word());
        }
        text.truncate(body);
        // Some editors remove trailing white space.
        if text.ends_with(' ') {
            text.replace_range(body - 1.., ".");
        }
        text.push('\n');
        text
    };
    (0..count).map(|_| next_line()).collect()
}

/// Returns the SHA-256 in lower-case hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&sha2::Sha256::digest(bytes))
}

/// Returns the bytes in lower-case hexadecimal.
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
    fn lines_have_the_requested_number_and_width() {
        let lines = lines_of(7, 64, 64);
        assert_eq!(lines.len(), 64);
        assert!(lines.iter().all(|line| line.len() == 64 && line.ends_with('\n') && !line.ends_with(" \n")));
        assert_eq!(lines, lines_of(7, 64, 64));
        assert_ne!(lines, lines_of(8, 64, 64));
    }

    #[test]
    fn the_hash_is_a_standard_test_vector() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
