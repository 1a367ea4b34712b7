//! Differences between lines that a reader cannot see.

use unicode_normalization::UnicodeNormalization as _;

use crate::path::confusables::{is_ignorable, to_ascii};

/// Runs of equal characters that are named on each side.
const NAMED_RUNS: usize = 3;
/// A line that takes more than this many times the bytes of another one does not look like it.
const MAX_RATIO: usize = 8;

/// Names the characters in which `want` and `have` differ, if a reader sees no difference. `source` says what `want` is a part of;
/// `have` is in a file.
pub(crate) fn unseen_difference(want: &str, have: &str, source: &str) -> Option<String> {
    if want == have || !looks_alike(want, have) {
        return None;
    }
    let (want, have): (Vec<_>, Vec<_>) = (want.chars().collect(), have.chars().collect());
    let start = want.iter().zip(&have).take_while(|(one, other)| one == other).count();
    let (want, have) = (&want[start..], &have[start..]);
    let end = want.iter().rev().zip(have.iter().rev()).take_while(|(one, other)| one == other).count();
    let (want, have) = (names(&want[..want.len() - end]), names(&have[..have.len() - end]));
    Some(format!("{have} in the file, {want} in {source}, at column {}", start + 1))
}

/// Whether a reader sees no difference between two lines.
pub(crate) fn looks_alike(want: &str, have: &str) -> bool {
    // A line with a multiple of the characters has to be read to its end for nothing else.
    let is_long = |one: &str, other: &str| one.len() / MAX_RATIO > other.len() + MAX_RATIO;
    !is_long(want, have) && !is_long(have, want) && looks(want).eq(looks(have))
}

/// The characters of a line as a reader sees them: composed, without invisible ones, and with one form of those that look alike.
fn looks(line: &str) -> impl Iterator<Item = char> {
    let mut after_space = false;
    let visible = line.trim_end().nfc().filter(|c| c.is_whitespace() || !(c.is_control() || is_ignorable(*c)));
    let one_form = visible.map(|c| match c {
        c if c.is_whitespace() => ' ',
        '“' | '”' | '„' | '″' => '"',
        '‘' | '’' | '‚' | '′' | '`' => '\'',
        c => to_ascii(c),
    });
    one_form.filter(move |c| !(std::mem::replace(&mut after_space, *c == ' ') && *c == ' '))
}

/// The code points of the first runs of equal characters: `U+0020 ×4`.
fn names(chars: &[char]) -> String {
    let runs: Vec<_> = chars.chunk_by(|one, other| one == other).collect();
    let name = |run: &&[char]| match run {
        [c] => format!("U+{:04X}", u32::from(*c)),
        [c, ..] => format!("U+{:04X} ×{}", u32::from(*c), run.len()),
        [] => String::new(),
    };
    match runs.len() {
        0 => "nothing".to_owned(),
        count => {
            let named: Vec<_> = runs.iter().take(NAMED_RUNS).map(name).collect();
            named.join(" ") + if count > NAMED_RUNS { " …" } else { "" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::unseen_difference;

    #[test]
    fn characters_that_look_the_same_are_named() {
        for (want, have, named) in [
            ("a b", "a\u{a0}b", "U+00A0 in the file, U+0020 in x, at column 2"),
            ("    a", "\ta", "U+0009 in the file, U+0020 ×4 in x, at column 1"),
            ("ab", "a\u{200b}b", "U+200B in the file, nothing in x, at column 2"),
            ("a  ", "a", "nothing in the file, U+0020 ×2 in x, at column 2"),
            ("caf\u{e9}", "cafe\u{301}", "U+0065 U+0301 in the file, U+00E9 in x, at column 4"),
            ("'a'", "’a’", "U+2019 U+0061 U+2019 in the file, U+0027 U+0061 U+0027 in x, at column 1"),
            ("p\u{430}ss", "pass", "U+0061 in the file, U+0430 in x, at column 2"),
        ] {
            assert_eq!(unseen_difference(want, have, "x").as_deref(), Some(named));
        }
        for (want, have) in [("a", "a"), ("a", "b"), ("ab", "a b"), ("a", "A"), ("\u{e9}", "e")] {
            assert_eq!(unseen_difference(want, have, "x"), None, "{want} {have}");
        }
    }
}
