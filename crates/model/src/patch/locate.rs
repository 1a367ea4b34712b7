//! Finds the lines of a file that match a hunk's old lines.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::edit::Effort;
use crate::text::Occurrences;

/// The most offsets of a hunk that a conflict lists.
pub(crate) const MAX_OFFSETS: usize = 20;
/// The most lines that all searches for the hunks of a patch may visit: some tenths of a second. Only a patch with thousands of
/// hunks, all at wrong line numbers, exceeds it.
const MAX_WORK: usize = 50_000_000;
/// The most steps of all searches for lines that are similar to those of a hunk: about a tenth of a second. They suffice for the
/// first conflicts of a patch, of which only a number are listed.
const MAX_SIMILARITY_STEPS: usize = 64_000_000;
/// The bytes that are read in the time of a visit of a line.
const BYTES_OF_VISIT: usize = 64;
/// A line with more occurrences than this does not indicate where a hunk was meant to apply.
const MAX_OCCURRENCES: usize = 8;

/// How a hunk's lines are compared with the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matching {
    /// Byte by byte.
    Exact,
    /// LF and CRLF are equal.
    AnyEnding,
    /// Blanks at the end of a line are ignored, and dashes, quotes and blanks of Unicode equal those of ASCII.
    Lenient,
}

/// How strictly hunks are compared with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchLeniency {
    /// Hunks match exactly, but for line endings.
    #[default]
    Strict,
    /// As the tools of providers apply patches: a hunk that is not found is searched for again without regard to blanks at the ends of
    /// lines and to the form of dashes, quotes and blanks, and applies if it then has one position. The file then ends in a newline.
    Lenient,
}

impl Matching {
    /// What is compared: the content, and whether the line has an ending.
    fn key(self, line: &[u8]) -> (Cow<'_, [u8]>, bool) {
        match (self, line.strip_suffix(b"\n")) {
            (Self::Exact, _) => (line.into(), true),
            (Self::AnyEnding, Some(content)) => (content.strip_suffix(b"\r").unwrap_or(content).into(), true),
            (Self::AnyEnding, None) => (line.into(), false),
            (Self::Lenient, _) => (plain(line), true),
        }
    }

    pub(crate) fn is_same(self, one: &[u8], other: &[u8]) -> bool {
        self.key(one) == self.key(other)
    }
}

/// A line without blanks at its end, and with the dashes, quotes and blanks of ASCII.
fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    let text = match std::str::from_utf8(line) {
        Ok(text) if !text.is_ascii() => text,
        Ok(_) | Err(_) => return line.trim_ascii_end().into(),
    };
    let plain: String = text.trim_end().chars().map(plain_char).collect();
    plain.into_bytes().into()
}

fn plain_char(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}

/// What may still be spent on searches for the hunks of a patch, in all its files together.
#[derive(Clone, Copy, Debug)]
pub struct PatchBudget {
    /// Visits of a line.
    work: usize,
    /// Comparisons with similar lines.
    pub(crate) similarity: Effort,
}

impl Default for PatchBudget {
    fn default() -> Self {
        Self { work: MAX_WORK, similarity: Effort::new(MAX_SIMILARITY_STEPS) }
    }
}

/// Searches a file's lines for hunks.
pub(crate) struct HunkFinder<'a> {
    lines: &'a [&'a [u8]],
    bytes: usize,
    exact: Option<Index<'a>>,
    any_ending: Option<Index<'a>>,
    lenient: Option<Index<'a>>,
    pub(crate) budget: PatchBudget,
}

/// The file's lines as numbers; equal lines have equal numbers. Built for the first hunk that needs a search.
struct Index<'a> {
    numbers: HashMap<(Cow<'a, [u8]>, bool), u32>,
    lines: Vec<u32>,
}

impl<'a> HunkFinder<'a> {
    pub(crate) fn new(lines: &'a [&'a [u8]], budget: PatchBudget) -> Self {
        let bytes = lines.iter().map(|line| line.len()).sum();
        Self { lines, bytes, exact: None, any_ending: None, lenient: None, budget }
    }

    /// Whether the file has the lines `old` at line `at`, counted from 0.
    pub(crate) fn matches_at(&self, old: &[&[u8]], matching: Matching, at: usize) -> bool {
        let found = at.checked_add(old.len()).and_then(|end| self.lines.get(at..end));
        found.is_some_and(|found| found.iter().zip(old).all(|(line, old)| matching.is_same(line, old)))
    }

    /// The first offsets of `old`, from line `from` on, that do not overlap `taken`, at most [`MAX_OFFSETS`]; `None` once the
    /// searches exceed their bound. `taken` is sorted.
    pub(crate) fn find_all(
        &mut self,
        old: &[&[u8]],
        matching: Matching,
        from: usize,
        taken: &[Range<usize>],
    ) -> Option<Vec<usize>> {
        let (lines, pattern) = self.numbered(old, matching)?;
        let Some(pattern) = pattern.into_iter().collect::<Option<Vec<_>>>() else { return Some(Vec::new()) };
        let is_free = |at: &usize| {
            let next = taken.partition_point(|range| range.end <= *at);
            taken.get(next).is_none_or(|range| *at + pattern.len() <= range.start)
        };
        let found = Occurrences::new(lines, &pattern, from).filter(is_free).take(MAX_OFFSETS).collect();
        Some(found)
    }

    /// The offset at which most of the rare lines of `old` match; `None` without such lines.
    pub(crate) fn likeliest(&mut self, old: &[&[u8]]) -> Option<usize> {
        let (lines, pattern) = self.numbered(old, Matching::AnyEnding)?;
        let mut wanted: HashMap<u32, (usize, Vec<usize>)> = HashMap::new();
        for (at, number) in pattern.into_iter().enumerate() {
            if let Some(number) = number {
                wanted.entry(number).or_insert((at, Vec::new()));
            }
        }
        let is_rare = |offsets: &[usize]| offsets.len() <= MAX_OCCURRENCES;
        for (at, number) in lines.iter().enumerate() {
            if let Some((_, offsets)) = wanted.get_mut(number).filter(|(_, offsets)| is_rare(offsets)) {
                offsets.push(at);
            }
        }
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for (at, offsets) in wanted.into_values().filter(|(_, offsets)| is_rare(offsets)) {
            for start in offsets.into_iter().filter_map(|offset| offset.checked_sub(at)) {
                *votes.entry(start).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(start, votes)| (*votes, usize::MAX - start)).map(|(start, _)| start)
    }

    /// Counts a visit of every line; `None` once the searches exceed their bound.
    pub(crate) fn charge(&mut self, lines: usize) -> Option<()> {
        let left = self.budget.work.checked_sub(self.lines.len() + lines);
        self.budget.work = left.unwrap_or(0);
        left.map(drop)
    }

    /// Counts a visit of every line, and of its bytes.
    pub(crate) fn charge_bytes(&mut self) -> Option<()> {
        self.charge(self.bytes / BYTES_OF_VISIT)
    }

    /// The file's lines and those of `old` as numbers. Charges the search that they are for.
    fn numbered(&mut self, old: &[&[u8]], matching: Matching) -> Option<(&[u32], Vec<Option<u32>>)> {
        self.charge(old.len())?;
        let index = match matching {
            Matching::Exact => &mut self.exact,
            Matching::AnyEnding => &mut self.any_ending,
            Matching::Lenient => &mut self.lenient,
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
