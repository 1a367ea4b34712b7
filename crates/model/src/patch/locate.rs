//! Where a hunk's old lines stand in a file.

use std::collections::HashMap;
use std::ops::Range;

use crate::text::Occurrences;

/// Places of a hunk that a conflict tells.
pub(super) const MAX_PLACES: usize = 20;
/// Lines that the searches of one file may go over, together: some tenths of a second. A patch for which that is not
/// enough has thousands of hunks, none of which stands where it says.
const MAX_WORK: usize = 50_000_000;
/// A line that stands more often than this in a file says nothing on where a hunk was meant to be.
const TELLING: usize = 8;

/// How a hunk's lines are compared with the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matching {
    /// Byte by byte.
    Exact,
    /// LF and CRLF are the same.
    AnyEnding,
}

impl Matching {
    /// What is compared: the content, and whether the line has an end.
    fn key(self, line: &[u8]) -> (&[u8], bool) {
        match (self, line.strip_suffix(b"\n")) {
            (Self::Exact, _) => (line, true),
            (Self::AnyEnding, Some(content)) => (content.strip_suffix(b"\r").unwrap_or(content), true),
            (Self::AnyEnding, None) => (line, false),
        }
    }

    pub(super) fn same(self, one: &[u8], other: &[u8]) -> bool {
        self.key(one) == self.key(other)
    }
}

/// A file's lines, searched for hunks.
pub(super) struct Finder<'a> {
    lines: &'a [&'a [u8]],
    exact: Option<Index<'a>>,
    any_ending: Option<Index<'a>>,
    work: usize,
}

/// The file's lines by number, equal lines by the same: made for the first hunk that has to be searched for.
struct Index<'a> {
    numbers: HashMap<(&'a [u8], bool), u32>,
    lines: Vec<u32>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(lines: &'a [&'a [u8]]) -> Self {
        Self { lines, exact: None, any_ending: None, work: 0 }
    }

    /// Whether `old` stands at line `at`, counted from 0.
    pub(super) fn stands(&self, old: &[&[u8]], matching: Matching, at: usize) -> bool {
        let there = at.checked_add(old.len()).and_then(|end| self.lines.get(at..end));
        there.is_some_and(|there| there.iter().zip(old).all(|(line, old)| matching.same(line, old)))
    }

    /// The first places, from line `from` on, at which `old` stands that touch none of `taken`, at most [`MAX_PLACES`];
    /// `None` once the file's searches took too much. `taken` is in order.
    pub(super) fn places(
        &mut self,
        old: &[&[u8]],
        matching: Matching,
        from: usize,
        taken: &[Range<usize>],
    ) -> Option<Vec<usize>> {
        let (lines, pattern) = self.numbered(old, matching)?;
        let Some(pattern) = pattern.into_iter().collect::<Option<Vec<_>>>() else { return Some(Vec::new()) };
        let free = |at: &usize| {
            let next = taken.partition_point(|range| range.end <= *at);
            taken.get(next).is_none_or(|range| *at + pattern.len() <= range.start)
        };
        let found = Occurrences::new(lines, &pattern, from).filter(free).take(MAX_PLACES).collect();
        Some(found)
    }

    /// The place at which most of the telling lines of `old` would be where they are; `None` where none tells.
    pub(super) fn likeliest(&mut self, old: &[&[u8]]) -> Option<usize> {
        let (lines, pattern) = self.numbered(old, Matching::AnyEnding)?;
        let mut wanted: HashMap<u32, (usize, Vec<usize>)> = HashMap::new();
        for (at, number) in pattern.into_iter().enumerate() {
            if let Some(number) = number {
                wanted.entry(number).or_insert((at, Vec::new()));
            }
        }
        for (at, number) in lines.iter().enumerate() {
            if let Some((_, places)) = wanted.get_mut(number).filter(|(_, places)| places.len() <= TELLING) {
                places.push(at);
            }
        }
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for (at, places) in wanted.into_values().filter(|(_, places)| places.len() <= TELLING) {
            for start in places.into_iter().filter_map(|place| place.checked_sub(at)) {
                *votes.entry(start).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(start, votes)| (*votes, usize::MAX - start)).map(|(start, _)| start)
    }

    /// Charges one more look at every line; `None` once the file's searches took too much.
    pub(super) fn charge(&mut self, lines: usize) -> Option<()> {
        self.work += self.lines.len() + lines;
        (self.work <= MAX_WORK).then_some(())
    }

    /// The file's lines and those of `old` as numbers; charges the search that they are for.
    fn numbered(&mut self, old: &[&[u8]], matching: Matching) -> Option<(&[u32], Vec<Option<u32>>)> {
        self.charge(old.len())?;
        let index = match matching {
            Matching::Exact => &mut self.exact,
            Matching::AnyEnding => &mut self.any_ending,
        };
        let index = index.get_or_insert_with(|| Index::new(self.lines, matching));
        let pattern = old.iter().map(|line| index.numbers.get(&matching.key(line)).copied()).collect();
        Some((&index.lines, pattern))
    }
}

impl<'a> Index<'a> {
    fn new(lines: &[&'a [u8]], matching: Matching) -> Self {
        let mut numbers = HashMap::with_capacity(lines.len());
        let mut number = |line: &&'a [u8]| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(matching.key(line)).or_insert(next)
        };
        let lines = lines.iter().map(&mut number).collect();
        Self { numbers, lines }
    }
}
