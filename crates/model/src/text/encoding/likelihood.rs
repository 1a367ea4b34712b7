//! Whether a text is plausible in one of the encodings in which characters have several bytes.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use super::Encoding;

/// Different characters that a text needs so that its encoding is certain; fewer may be plausible in several by chance.
const MIN_CHARACTERS: usize = 12;
/// Tenths of bits by which any other encoding must be less probable.
const MARGIN: usize = 80;
/// Tenths of bits of a sign or kana, of which there are few.
const SIGN_COST: usize = 90;
/// Tenths of bits of a character that is rare in the encoding's languages.
const RARE_COST: usize = 180;

/// The characters that are usual in an encoding, as the first of their bytes.
struct Repertoire {
    encoding: Encoding,
    signs: RangeInclusive<u8>,
    /// Also the other kana, where they are apart.
    letters: RangeInclusive<u8>,
    /// The characters of the first level, or the syllables.
    common: RangeInclusive<u8>,
    /// Tenths of bits of one of the latter: the logarithm of their number.
    common_cost: usize,
}

const REPERTOIRES: [Repertoire; 5] = [
    Repertoire {
        encoding: Encoding::Gbk,
        signs: 0xa1..=0xa1,
        letters: 0xa3..=0xa3,
        common: 0xb0..=0xd7,
        common_cost: 119,
    },
    Repertoire {
        encoding: Encoding::Big5,
        signs: 0xa1..=0xa2,
        letters: 0xa3..=0xa3,
        common: 0xa4..=0xc6,
        common_cost: 124,
    },
    Repertoire {
        encoding: Encoding::ShiftJis,
        signs: 0x81..=0x81,
        letters: 0x82..=0x83,
        common: 0x88..=0x97,
        common_cost: 115,
    },
    Repertoire {
        encoding: Encoding::EucJp,
        signs: 0xa1..=0xa1,
        letters: 0xa3..=0xa5,
        common: 0xb0..=0xcf,
        common_cost: 115,
    },
    Repertoire {
        encoding: Encoding::EucKr,
        signs: 0xa1..=0xa1,
        letters: 0xa3..=0xa3,
        common: 0xb0..=0xc8,
        common_cost: 112,
    },
];

/// Returns whether the text is long enough, plausible in `encoding`, and clearly less probable in any encoding in which characters
/// have several bytes. Each character counts once, so that repetitions prove nothing.
pub(super) fn is_most_plausible(bytes: &[u8], encoding: Encoding) -> bool {
    let is_own = |repertoire: &&Repertoire| repertoire.encoding == encoding;
    let most = match REPERTOIRES.iter().find(is_own) {
        Some(repertoire) => match repertoire.cost_of(bytes) {
            Some(cost) => cost + MARGIN,
            None => return false,
        },
        // A text whose characters have one byte is hardly ever plausible in these encodings.
        None if bytes.iter().filter(|byte| !byte.is_ascii()).collect::<HashSet<_>>().len() >= MIN_CHARACTERS => {
            usize::MAX
        }
        None => return false,
    };
    let mut others = REPERTOIRES.iter().filter(|repertoire| !is_own(repertoire));
    others.all(|other| other.cost_of(bytes).is_none_or(|cost| cost >= most))
}

impl Repertoire {
    /// How improbable the text is; `None` if it is not plausible: too short, not valid, or with many rare characters.
    fn cost_of(&self, bytes: &[u8]) -> Option<usize> {
        self.encoding.standard()?.decode_without_bom_handling_and_without_replacement(bytes)?;
        let characters = self.characters(bytes);
        let costs = characters.iter().map(|character| self.cost_of_character(character));
        let rare = costs.clone().filter(|cost| *cost == RARE_COST).count();
        (characters.len() >= MIN_CHARACTERS && rare * 5 <= characters.len()).then(|| costs.sum())
    }

    fn cost_of_character(&self, character: &[u8]) -> usize {
        // The second byte of what GBK and others add to the older sets, which is rare, is lower.
        let is_extension = |second: u8| second < 0xa1 && !matches!(self.encoding, Encoding::Big5 | Encoding::ShiftJis);
        match character {
            [_, second] if is_extension(*second) => RARE_COST,
            [first, _] if self.signs.contains(first) || self.letters.contains(first) => SIGN_COST,
            [first, _] if self.common.contains(first) => self.common_cost,
            _ => RARE_COST,
        }
    }

    /// The different characters of a valid text that are not ASCII.
    fn characters<'a>(&self, mut bytes: &'a [u8]) -> HashSet<&'a [u8]> {
        let mut characters = HashSet::new();
        while let Some(first) = bytes.first() {
            let length = match (self.encoding, first) {
                (_, 0..=0x7f) | (Encoding::ShiftJis, 0xa1..=0xdf) => 1,
                (Encoding::EucJp, 0x8f) => 3,
                _ => 2,
            };
            let (character, rest) = bytes.split_at(length.min(bytes.len()));
            if !first.is_ascii() {
                characters.insert(character);
            }
            bytes = rest;
        }
        characters
    }
}
