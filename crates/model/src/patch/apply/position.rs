//! The one place at which a hunk may be applied, if there is one.

use std::ops::Range;

use super::super::file_patch::{Hunk, HunkLine};
use super::super::locate::{Finder, Matching};

/// What a hunk looks for.
pub(super) struct Wanted<'a> {
    /// Its context and deleted lines.
    pub(super) old: Vec<&'a [u8]>,
    /// Where it says that it stands, from 0.
    pub(super) stated: Option<usize>,
    pub(super) matching: Matching,
    /// Whether it can only be what the file begins with.
    pub(super) begins_file: bool,
    /// Whether it can only be what the file ends with.
    pub(super) ends_file: bool,
    /// Whether nothing stands around its change, so that only its number says where it belongs.
    bare: bool,
    /// Lines that stand above it.
    below: &'a [Vec<u8>],
}

/// Why a hunk has no place.
pub(super) enum Miss {
    /// Its lines stand nowhere.
    Nowhere,
    /// They stand at these lines, from 0, none of which it may take.
    Elsewhere(Vec<usize>),
    /// They stand at these lines, and nothing says which is meant.
    Ambiguous(Vec<usize>),
    /// They stand at the only place before a hunk that comes before.
    OutOfOrder(usize),
    /// A line that it should stand below is missing or there several times.
    Anchor(String),
    /// Looking would take too long.
    TooMuch,
}

impl<'a> Wanted<'a> {
    /// Takes what `hunk` looks for in a file; `crlf` says whether lines of that end in CRLF.
    pub(super) fn of(hunk: &'a Hunk, crlf: bool) -> Self {
        let context = |line: &&HunkLine| matches!(line, HunkLine::Context(_));
        let leading = hunk.lines.iter().take_while(context).count();
        let trailing = hunk.lines.iter().rev().take_while(context).count();
        let plain = hunk.lines.iter().all(|line| !line.bytes().ends_with(b"\r\n"));
        let old: Vec<_> = hunk.old_lines().collect();
        let numbered = hunk.old_start.is_some();
        let bare = numbered && leading == 0 && trailing == 0 && !old.is_empty();
        Self {
            stated: hunk.old_start.and_then(|start| usize::try_from(start.saturating_sub(1)).ok()),
            matching: if crlf && plain { Matching::AnyEnding } else { Matching::Exact },
            begins_file: !bare && hunk.old_start.is_some_and(|start| start <= 1),
            ends_file: if numbered { !bare && trailing == 0 } else { hunk.at_end },
            bare,
            below: &hunk.below,
            old,
        }
    }

    /// By how many lines a hunk that is placed at line `at` has moved.
    pub(super) fn offset_of(&self, at: usize) -> Option<i64> {
        self.stated.and_then(|stated| i64::try_from(at).ok()?.checked_sub(i64::try_from(stated).ok()?))
    }

    /// Finds the hunk's place behind what is `taken`; with `moved`, a hunk before it stood elsewhere than it said.
    pub(super) fn place(
        &self,
        finder: &mut Finder<'_>,
        lines: &[&[u8]],
        taken: &[Range<usize>],
        moved: bool,
    ) -> Result<usize, Miss> {
        let behind = taken.last().map_or(0, |range| range.end);
        let block = self.block(finder, lines, behind..lines.len())?;
        let first = block.start;
        let stands = |finder: &Finder<'_>, at: usize| {
            let fits = (!self.begins_file || at == 0) && (!self.ends_file || at + self.old.len() == lines.len());
            at >= first && fits && finder.stands(&self.old, self.matching, at)
        };
        // Where a hunk stands just as it says, it applies, even if it ends before the file does and has no line of context
        // to show for it: people and models leave that line out.
        let as_stated = |at: usize| {
            let stands_there = at >= first && finder.stands(&self.old, self.matching, at);
            stands_there && (!self.old.is_empty() || stands(finder, at))
        };
        if let Some(stated) = self.stated.filter(|stated| (!moved || self.bare) && as_stated(*stated)) {
            return Ok(stated);
        }
        if !self.bare && (self.begins_file || self.ends_file) {
            let only = if self.begins_file { Some(0) } else { lines.len().checked_sub(self.old.len()) };
            if let Some(only) = only.filter(|only| stands(finder, *only)) {
                return Ok(only);
            }
        }
        // Numbers that were wrong once say nothing on the order; a form without numbers has the order only.
        let from = if self.stated.is_some() { 0 } else { first };
        let places = finder.places(&self.old, self.matching, from, taken).ok_or(Miss::TooMuch)?;
        if places.is_empty() {
            return Err(Miss::Nowhere);
        }
        if self.bare || self.begins_file || self.ends_file {
            return Err(Miss::Elsewhere(places));
        }
        // Below the lines that the hunk names, what belongs to them comes before what only follows.
        let inside = places.partition_point(|place| *place < block.end);
        match places.as_slice() {
            [only, ..] if inside == 1 && !self.below.is_empty() => Ok(*only),
            [only] if *only >= first => Ok(*only),
            [only] => Err(Miss::OutOfOrder(*only)),
            _ => Err(Miss::Ambiguous(places)),
        }
    }

    /// The lines that belong to those which the hunk names as standing above it, within `all`.
    fn block(&self, finder: &mut Finder<'_>, lines: &[&[u8]], all: Range<usize>) -> Result<Range<usize>, Miss> {
        let mut block = all;
        for anchor in self.below {
            finder.charge(0).ok_or(Miss::TooMuch)?;
            let is = |line: &&[u8]| line.trim_ascii() == anchor.trim_ascii();
            let mut found = block.clone().filter(|at| is(&lines[*at]));
            match (found.next(), found.next()) {
                (Some(at), None) => block = at + 1..end_of_block(lines, at, block.end),
                (None, _) | (Some(_), Some(_)) => {
                    return Err(Miss::Anchor(String::from_utf8_lossy(anchor).into_owned()));
                }
            }
        }
        Ok(block)
    }
}

/// Where the lines end that belong to line `head`: before the next one that is indented no deeper and closes nothing.
fn end_of_block(lines: &[&[u8]], head: usize, end: usize) -> usize {
    let indent = |line: &[u8]| line.len() - line.trim_ascii_start().len();
    let closes = |line: &[u8]| matches!(line.trim_ascii_start().first(), None | Some(b'}' | b')' | b']' | b'{'));
    let beside = |at: &usize| indent(lines[*at]) <= indent(lines[head]) && !closes(lines[*at]);
    (head + 1..end).find(beside).unwrap_or(end)
}
