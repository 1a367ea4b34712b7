//! The changes between two lists of lines: a Myers search by `similar`, within a bound of work.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;

use foldhash::fast::RandomState;
use similar::algorithms::{DiffHook, myers};

use super::region::{CONTEXT, Region};

/// One change: these lines of the old side become those of the new side. Lines between two changes are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineChange {
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// Lines of both sides up to which the search returns the fewest changed lines. A larger search uses Git's heuristics.
const MAX_EXACT_LINES: usize = 4_000;
/// The [`cost`] of all searches of one diff; at worst some tenths of a second.
const MAX_COST: usize = cost(100_000);
/// Lines of both sides above which nothing is searched, so that no table of all lines is built.
const MAX_LINES: usize = 4_000_000;

/// The worst-case cost of a search with heuristics.
const fn cost(lines: usize) -> usize {
    lines.saturating_mul(lines.isqrt())
}

/// The changes that turn the region's old lines into its new ones, in order, with equal lines between any two.
pub(crate) fn changes(region: &Region<'_>) -> Vec<LineChange> {
    // Where lines follow the region, its last ones are context of the last change, so no change may include them.
    let context = if region.is_cut_after { CONTEXT } else { 0 };
    let (old, new) = (&region.old[..region.old.len() - context], &region.new[..region.new.len() - context]);
    if old.len() + new.len() > MAX_LINES {
        return vec![between_equal_ends(old, new)];
    }
    let (old_ids, new_ids) = number(old, new);
    // A line of one side only is always changed. Without such lines, the search of a rewritten file costs little.
    let (old_shared, new_shared) = (shared(&old_ids, &new_ids), shared(&new_ids, &old_ids));
    let runs = equal_runs(&pick(&old_ids, &old_shared), &pick(&new_ids, &new_shared));
    let equal = runs.into_iter().flat_map(|run| (0..run.lines).map(move |at| (run.old + at, run.new + at)));
    let equal = equal.map(|(old, new)| (old_shared[old], new_shared[new]));
    slide(changes_between(equal.chain([(old.len(), new.len())])), &old_ids, &new_ids)
}

/// Everything between the equal lines at both ends.
fn between_equal_ends(old: &[&[u8]], new: &[&[u8]]) -> LineChange {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let most = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    LineChange { old: head..old.len() - tail, new: head..new.len() - tail }
}

/// Gives equal lines equal numbers.
fn number<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> (Vec<u32>, Vec<u32>) {
    let mut numbers: HashMap<&[u8], u32, RandomState> =
        HashMap::with_capacity_and_hasher(old.len(), RandomState::default());
    let mut number = |line: &&'a [u8]| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(*line).or_insert(next)
    };
    let old = old.iter().map(&mut number).collect();
    (old, new.iter().map(&mut number).collect())
}

/// Indexes of the lines of `ids` that `others` contains too.
fn shared(ids: &[u32], others: &[u32]) -> Vec<usize> {
    let counts = counts(others, ids.iter().chain(others).max().map_or(0, |most| *most as usize + 1));
    (0..ids.len()).filter(|at| counts[ids[*at] as usize] > 0).collect()
}

/// How often each of `kinds` lines occurs in `ids`.
fn counts(ids: &[u32], kinds: usize) -> Vec<u32> {
    let mut counts = vec![0; kinds];
    for id in ids {
        counts[*id as usize] += 1;
    }
    counts
}

fn pick(ids: &[u32], indexes: &[usize]) -> Vec<u32> {
    indexes.iter().map(|at| ids[*at]).collect()
}

/// Lines that are the same on both sides: where they start, and how many they are.
struct EqualLines {
    old: usize,
    new: usize,
    lines: usize,
}

/// Collects what a search finds equal.
struct EqualRuns(Vec<EqualLines>);

impl DiffHook for EqualRuns {
    type Error = Infallible;

    fn equal(&mut self, old: usize, new: usize, lines: usize) -> Result<(), Infallible> {
        self.0.push(EqualLines { old, new, lines });
        Ok(())
    }
}

/// The unchanged lines. Lists too long for one search are split at lines that occur once on each side; parts for which the
/// work does not suffice have no equal lines.
fn equal_runs(old: &[u32], new: &[u32]) -> Vec<EqualLines> {
    let mut runs = EqualRuns(Vec::new());
    let lines = old.len() + new.len();
    if lines <= MAX_EXACT_LINES {
        let Ok(()) = myers::diff_deadline_raw(&mut runs, old, 0..old.len(), new, 0..new.len(), None);
        return runs.0;
    }
    let anchors = if cost(lines) > MAX_COST { anchors(old, new) } else { Vec::new() };
    let mut budget = MAX_COST;
    let (mut old_start, mut new_start) = (0, 0);
    for (old_at, new_at) in anchors.into_iter().chain([(old.len(), new.len())]) {
        let (old_part, new_part) = (old_start..old_at, new_start..new_at);
        if let Some(rest) = budget.checked_sub(cost(old_part.len() + new_part.len())) {
            budget = rest;
            let Ok(()) = myers::diff(&mut runs, old, old_part, new, new_part);
        }
        if old_at < old.len() {
            runs.0.push(EqualLines { old: old_at, new: new_at, lines: 1 });
        }
        (old_start, new_start) = (old_at + 1, new_at + 1);
    }
    runs.0
}

/// Pairs of equal lines that occur once on each side: the longest sequence that has the same order on both sides.
fn anchors(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let kinds = old.iter().chain(new).max().map_or(0, |most| *most as usize + 1);
    let (old_counts, new_counts) = (counts(old, kinds), counts(new, kinds));
    let is_unique = |id: u32| old_counts[id as usize] == 1 && new_counts[id as usize] == 1;
    let mut new_at = vec![0; kinds];
    for (at, id) in new.iter().enumerate() {
        new_at[*id as usize] = at;
    }
    let pairs: Vec<_> =
        old.iter().enumerate().filter(|(_, id)| is_unique(**id)).map(|(at, id)| (at, new_at[*id as usize])).collect();
    // `ends[n]` is the pair with the smallest new index that ends a sequence of n + 1 pairs; `before` links each sequence.
    let (mut ends, mut before) = (Vec::new(), vec![None; pairs.len()]);
    for (index, (_, new)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end: &usize| pairs[*end].1 < *new);
        before[index] = length.checked_sub(1).map(|last| ends[last]);
        if length == ends.len() { ends.push(index) } else { ends[length] = index }
    }
    let mut sequence: Vec<_> = std::iter::successors(ends.last().copied(), |index| before[*index]).collect();
    sequence.reverse();
    sequence.into_iter().map(|index| pairs[index]).collect()
}

/// Everything between equal lines, of which each is given by its indexes on both sides. The last ones are the ends of both sides.
fn changes_between(equal: impl Iterator<Item = (usize, usize)>) -> Vec<LineChange> {
    let (mut old, mut new) = (0, 0);
    let mut changes = Vec::new();
    for (old_at, new_at) in equal {
        if old_at > old || new_at > new {
            changes.push(LineChange { old: old..old_at, new: new..new_at });
        }
        (old, new) = (old_at + 1, new_at + 1);
    }
    changes
}

/// Moves pure insertions and pure deletions as far down as equal lines allow, and joins those that then touch: a new function
/// starts at its own first line, not at the end of the one before it.
fn slide(changes: Vec<LineChange>, old_ids: &[u32], new_ids: &[u32]) -> Vec<LineChange> {
    let mut moved = Vec::with_capacity(changes.len());
    let mut rest = changes.into_iter().peekable();
    while let Some(mut change) = rest.next() {
        loop {
            let most = rest.peek().map_or(old_ids.len(), |next| next.old.start) - change.old.end;
            let steps = steps_down(&change, most, old_ids, new_ids);
            change.old = change.old.start + steps..change.old.end + steps;
            change.new = change.new.start + steps..change.new.end + steps;
            let Some(next) = rest.next_if(|next| next.old.start == change.old.end) else { break };
            change = LineChange { old: change.old.start..next.old.end, new: change.new.start..next.new.end };
        }
        moved.push(change);
    }
    moved
}

/// By how many lines, at most `most`, a pure insertion or deletion can move down.
fn steps_down(change: &LineChange, most: usize, old_ids: &[u32], new_ids: &[u32]) -> usize {
    let (range, ids) = match (change.old.is_empty(), change.new.is_empty()) {
        (true, false) => (&change.new, new_ids),
        (false, true) => (&change.old, old_ids),
        (true, true) | (false, false) => return 0,
    };
    (0..most).take_while(|step| ids[range.start + step] == ids[range.end + step]).count()
}
