//! Inputs bent at random, the same for the same seed.

/// A generator of numbers: xorshift with a multiplication behind it.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence that `seed` stands for.
    pub(crate) fn new(seed: u64) -> Self {
        // Never zero, which it could not leave.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`; 0 where there is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or(0).checked_rem(bound).unwrap_or(0)
    }

    /// One of `items`.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'\r', b'/', b'.', b'"', b'\\', b' '];
        match self.pick(&TELLING) {
            Some(byte) if self.below(2) == 0 => *byte,
            _ => u8::try_from(self.below(256)).unwrap_or(0),
        }
    }

    /// A stretch of something `length` bytes long.
    fn stretch(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        let most = [1, 4, 32, 512][self.below(4)];
        from..(from + self.below(most) + 1).min(length)
    }
}

/// Bends `input` at one to eight places. `other` is a second input to take from, `words` are what the format is made of.
pub(crate) fn mutate(random: &mut Random, input: &[u8], other: &[u8], words: &[&[u8]], most: usize) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=random.below(8) {
        once(random, &mut out, other, words);
    }
    out.truncate(most);
    out
}

fn once(random: &mut Random, out: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let stretch = random.stretch(out.len());
    let empty = stretch.start..stretch.start;
    match random.below(9) {
        0 => {
            let byte = random.byte();
            if let Some(place) = out.get_mut(stretch.start) {
                *place = byte;
            }
        }
        1 => {
            let bit = random.below(8);
            if let Some(place) = out.get_mut(stretch.start) {
                *place ^= 1 << bit;
            }
        }
        2 => drop(out.drain(stretch)),
        3 => {
            let again = out[stretch].to_vec();
            out.splice(empty, again);
        }
        4 => {
            let bytes: Vec<u8> = (0..=random.below(8)).map(|_| random.byte()).collect();
            out.splice(empty, bytes);
        }
        5 | 6 => {
            let word = random.pick(words).map_or(&b""[..], |word| *word).to_vec();
            let place = if random.below(2) == 0 { empty } else { stretch };
            out.splice(place, word);
        }
        7 => {
            let taken = other[random.stretch(other.len())].to_vec();
            out.splice(stretch, taken);
        }
        _ => {
            // The start of one input and the end of another.
            out.truncate(stretch.start);
            out.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_bends_the_same_way_and_another_does_not() {
        let bent = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| mutate(&mut random, b"one input", b"another", &[b"word"], 64)).collect::<Vec<_>>()
        };
        assert_eq!(bent(1), bent(1));
        assert_ne!(bent(1), bent(2));
        assert!(bent(1).iter().all(|input| input.len() <= 64));
        assert!(bent(1).iter().filter(|input| *input != b"one input").count() > 40);
    }

    #[test]
    fn nothing_to_bend_is_no_fault() {
        let mut random = Random::new(3);
        for _ in 0..2000 {
            mutate(&mut random, b"", b"", &[], 8);
        }
    }
}
